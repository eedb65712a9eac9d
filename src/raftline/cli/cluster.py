"""``raftline cluster``: status, membership, moving replicas, verifying them."""

from typing import Annotated, Any

import typer

from raftline.cli import exits
from raftline.cli.session import Session, coloured, table
from raftline.config.quantities import show_bytes
from raftline.model.errors import RaftlineError, UnknownNode

commands = typer.Typer(help="The cluster: status, nodes, replicas.", no_args_is_help=True)

Node = Annotated[str, typer.Argument(help="a node, by name or number")]
Partition = Annotated[str, typer.Argument(help="topic/partition, for example orders/2")]


@commands.command()
def status(context: typer.Context) -> None:
    """Show nodes, leaders and health."""
    session: Session = context.obj
    reply = session.client.cluster()
    names = {node["id"]: node["name"] for node in reply["nodes"]}
    rows = table(
        ">id",
        "node",
        "state",
        "rack",
        "http",
        "peer",
        ">free",
        ">clock",
        title=_headline(reply, names),
    )
    for node in reply["nodes"]:
        rows.add_row(
            str(node["id"]), node["name"], coloured(node["state"]), node["rack"],
            node["http"], node["peer"],
            show_bytes(node["free_bytes"]) if node["free_bytes"] >= 0 else "?",
            f"{node['clock_offset_ms']:+d} ms",
        )  # fmt: skip
    session.table(reply, rows)


@commands.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="name of the new node")],
    address: Annotated[str, typer.Argument(help="its peer address, host:port")],
) -> None:
    """Admit a node. It is started with: raftline serve --id NAME --join HOST:PORT."""
    _administer(context, "add", f"added {name}", name=name, address=address)


@commands.command()
def remove(
    context: typer.Context,
    node: Node,
    force: Annotated[bool, typer.Option("--force", help="even if it is silent")] = False,
) -> None:
    """Take a node out of the cluster, after its replicas moved elsewhere."""
    _administer(context, "remove", f"removing {node}", node=_number(context.obj, node), force=force)


@commands.command()
def replace(
    context: typer.Context,
    node: Node,
    by: Annotated[str, typer.Option("--by", help="the node that takes its place")],
) -> None:
    """Give every replica of one node to another."""
    session: Session = context.obj
    _administer(
        context,
        "replace",
        f"replacing {node} by {by}",
        node=_number(session, node),
        by=_number(session, by),
    )


@commands.command()
def move(
    context: typer.Context,
    partition: Partition,
    target: Annotated[str, typer.Option("--to", help="node that gets it")],
    source: Annotated[
        str, typer.Option("--from", help="node that gives its replica up; none: one replica more")
    ] = "",
) -> None:
    """Move one replica from node to node while writes go on; without --from, add one."""
    session: Session = context.obj
    topic, number = _coordinates(partition)
    arguments: dict[str, object] = {"topic": topic, "partition": number}
    text = f"{target} gets a replica of {partition}"
    if source:
        arguments["from_node"] = _number(session, source)
        text = f"moving {partition} from {source} to {target}"
    _administer(context, "move", text, **arguments, to_node=_number(session, target))


@commands.command()
def transfer(
    context: typer.Context,
    partition: Partition,
    target: Annotated[str, typer.Option("--to", help="node that shall lead")],
) -> None:
    """Hand the leadership of a partition to another replica."""
    topic, number = _coordinates(partition)
    _administer(
        context,
        "transfer",
        f"{partition} is led by {target}",
        topic=topic,
        partition=number,
        to_node=_number(context.obj, target),
    )


@commands.command()
def recover(
    context: typer.Context,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="go on although acknowledged messages may be gone")
    ] = False,
) -> None:
    """Go on after the majority of a shard's replicas is gone for good."""
    session: Session = context.obj
    members = _members(session)
    reply = session.client.administer("recover", accept_loss=accept_loss)
    lost = [f"{name}: lost, no live node has it" for name in reply.get("lost", ())]
    left = _members(session)
    gone = members - left if left else set[str]()  # also where there is a majority without them
    removed = [f"{name}: removed for good, it did not answer" for name in sorted(gone)]
    done = [*reply.get("forced", ()), *lost, *removed]
    text = "\n".join(["recovered", *done]) if done else "nothing to recover: no majority is missing"
    session.answer(reply, text)


def _members(session: Session) -> set[str]:
    try:
        rows = session.client.cluster().get("nodes", ())
    except RaftlineError:
        return set()
    return {row["name"] for row in rows if row["state"] != "removed"}


@commands.command()
def verify(context: typer.Context) -> int:
    """Compare all replicas of all shards, byte for byte. Exit code 9 if any differ."""
    session: Session = context.obj
    reply = session.client.verify()
    rows = table(
        "shard", ">node", ">log_start", ">commit_end", "log", "state", "verdict",
        title="all replicas are identical" if reply["identical"] else "REPLICAS DIFFER",
    )  # fmt: skip
    for shard in reply["shards"]:
        verdict = "identical" if shard["identical"] else "DIFFERENT"
        for replica in shard["replicas"]:
            rows.add_row(
                shard["name"], str(replica["node"]), str(replica["log_start"]),
                str(replica["commit_end"]), replica["log"][:12], replica["state"][:12],
                replica["error"] or verdict,
            )  # fmt: skip
    session.table(reply, rows)
    return exits.DONE if reply["identical"] else exits.CHECK_FAILED


def _administer(context: typer.Context, verb: str, text: str, **arguments: object) -> None:
    session: Session = context.obj
    reply = session.client.administer(verb, **arguments)
    session.answer(reply, str(reply.get("message") or text))


def _number(session: Session, node: str) -> int:
    """Return the number of a node that people may name."""
    if node.isdecimal():
        return int(node)
    for row in session.client.cluster()["nodes"]:
        if row["name"] == node:
            return row["id"]
    raise UnknownNode(node)


def _coordinates(text: str) -> tuple[str, int]:
    topic, slash, partition = text.rpartition("/")
    if not slash or not topic or not partition.isdecimal():
        raise typer.BadParameter(f"{text!r}: write topic/partition, for example orders/2")
    return topic, int(partition)


def _headline(reply: dict[str, Any], names: dict[int, str]) -> str:
    leader = names.get(reply["catalog_leader"], "nobody")
    words = [
        f"cluster {reply['cluster'][:8]}",
        f"seen from {reply['name']}",
        f"catalog led by {leader}",
        f"{reply['shards']} shards here",
    ]
    if reply["leaderless"]:
        words.append(f"without leader: {', '.join(reply['leaderless'][:5])}")
    if reply["quarantined"]:
        words.append(f"quarantined: {', '.join(reply['quarantined'][:5])}")
    if reply["reason"]:
        words.append(reply["reason"])
    return " · ".join(words)
