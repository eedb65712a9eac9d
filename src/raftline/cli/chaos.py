"""``raftline chaos``: hurt a cluster under load and see whether every promise is kept."""

import shutil
import signal
import tempfile
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from raftline.cli import exits
from raftline.cli.session import Session, console, table
from raftline.cli.words import duration_ms
from raftline.model.errors import InvalidArgument

PRESETS = "dqueue (the leader killed every 10 s for 60 s), failover (a leader killed twice), all"
COUNTED = {  # of the verdict, for people
    "append_ok": "batches acknowledged",
    "append_unknown": "batches without an answer",
    "append_refused": "batches refused",
    "read_ok": "reads answered",
    "queue sent": "messages sent to the queue",
    "queue delivered": "deliveries",
    "queue acked": "acks",
    "queue fenced": "settles refused because the lease had moved on",
    "queue dead": "dead letters",
    "queue cancelled": "cancelled before they were due",
    "queue late": "delayed messages more than 1 s late",
    "keyed sent": "messages with keys, to an ordered group",
    "keyed delivered": "their deliveries",
    "kafka sent": "messages acknowledged to Kafka producers",
    "kafka unknown": "Kafka messages without a delivery report",
    "kafka producers made anew": "Kafka producers made anew after that",
    "kafka read": "messages read by the Kafka group",
    "kafka assignments": "assignments of partitions in that group",
    "catalog_calls": "answered calls that create or delete a topic",
}
AGAIN = {
    "queue again: ": "delivered again: ",
    "kafka again: ": "read again by the Kafka group: ",
}


def chaos(
    context: typer.Context,
    preset: Annotated[str, typer.Option(help=PRESETS)] = "",
    seconds: Annotated[
        float | None, typer.Option(min=1, max=86_400, help="how long faults go on (60)")
    ] = None,
    nodes: Annotated[int, typer.Option(min=3, max=9, help="nodes of the cluster")] = 3,
    faults: Annotated[
        str, typer.Option(help="kinds, with commas, or all (`--list` shows them)")
    ] = "",
    every: Annotated[
        str, typer.Option(help="begin a fault so often; without it one after another")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="fixes which faults come in which order")] = 1,
    data_dir: Annotated[
        Path | None, typer.Option(help="where nodes live and the evidence stays")
    ] = None,
    take: Annotated[
        bool,
        typer.Option(
            "--take", help="load and judge the cluster of --server; somebody else hurts it"
        ),
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="show the catalogue of faults")] = False,
) -> int:
    """Start a cluster, put load on it, break it in every way, and judge it by the promises.

    Producers, workers, schedulers, Kafka clients and creators of topics go on all the time. In the
    end everything is read back: lost, doubled, reordered, early or fenced-and-yet-accepted messages
    are named, and the evidence stays. As root nodes get disks that lose what was not synced and a
    network that loses packets. Exit code 9: a promise was broken, or the cluster did not come back.

    For example: raftline chaos --seconds 300 --faults kill-leader,cut,wipe
    """
    from raftline.chaos.faults import BY_NAME
    from raftline.chaos.rig import ChaosProblem
    from raftline.chaos.run import PRESETS as KNOWN
    from raftline.chaos.run import NoFault, Plan, run_chaos

    session: Session = context.obj
    if listed:
        return _list(session, BY_NAME.values())
    if preset and preset not in KNOWN:
        raise InvalidArgument(f"no preset {preset}", f"one of: {', '.join(sorted(KNOWN))}")
    plan = KNOWN.get(preset, Plan())
    changes: dict[str, Any] = {"seed": seed, "nodes": nodes}
    if seconds is not None:
        changes["seconds"] = seconds
    every_ms = duration_ms(every, "--every")
    if every_ms is not None:
        changes["every_s"] = every_ms / 1000
    if faults and faults != "all":
        changes["faults"] = _named(faults, BY_NAME)
    if take:
        changes["servers"] = session.servers
        changes.setdefault("faults", ("transfer",))
    import msgspec

    plan = msgspec.structs.replace(plan, **changes)
    directory = data_dir or Path(tempfile.mkdtemp(prefix="raftline-chaos-"))
    _check_directory(directory)
    # Whoever asks politely: what was started is ended, as after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: it outlives the terminal
            signal.signal(number, _interrupt)
    try:
        verdict = run_chaos(plan, directory, session.note)
    except KeyboardInterrupt:
        session.note("stopped before its end: nothing was judged")
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    except NoFault as problem:
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
        raise InvalidArgument(str(problem), "raftline chaos --list") from problem
    except (ChaosProblem, OSError) as problem:  # OSError: a helper that is gone, a full disk
        exits.complain(f"the run did not come to its end: {problem}", f"logs: {directory}")
        return exits.CHECK_FAILED
    if verdict.clean and data_dir is None:
        shutil.rmtree(directory)
    _show(session, verdict)
    return exits.DONE if verdict.clean else exits.CHECK_FAILED


def _check_directory(directory: Path) -> None:
    """Refuse a directory that holds a cluster, or that cannot be written."""
    if any(directory.glob("node-*")):
        raise InvalidArgument(f"{directory} holds a cluster already", "name an empty --data-dir")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise InvalidArgument(
            f"{directory} cannot be written: {error.strerror}", "name another --data-dir"
        ) from error


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _named(faults: str, known: dict[str, Any]) -> tuple[str, ...]:
    names = tuple(filter(None, (name.strip() for name in faults.split(","))))
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise InvalidArgument(f"no fault {', '.join(wrong) or faults!r}", "raftline chaos --list")
    return names


def _list(session: Session, faults: Any) -> int:
    rows = table("fault", "what happens", "here")
    found: list[dict[str, str]] = []
    for fault in faults:
        why = fault.needs()
        usual = "yes" if fault.is_usual else "if named"
        rows.add_row(fault.name, fault.text, f"not here: {why}" if why else usual)
        found.append({"fault": fault.name, "text": fault.text, "why_not": why})
    session.table(found, rows)
    return exits.DONE


def _show(session: Session, verdict: Any) -> None:
    import msgspec

    rows = table("what", ">count")
    for name, words in COUNTED.items():
        if name in verdict.counts:
            rows.add_row(words, f"{verdict.counts[name]:,}")
    for name, count in verdict.counts.items():
        for prefix, words in AGAIN.items():
            if name.startswith(prefix):
                rows.add_row(f"{words}{name.removeprefix(prefix)}", f"{count:,}")
    for words, count in (
        ("acknowledged messages lost", verdict.lost),
        ("stored twice", verdict.duplicated),
        ("out of order", verdict.reordered),
        ("delivered early", verdict.early),
        ("settles of a lost lease accepted", verdict.fenced_accepted),
    ):
        rows.add_row(words, f"{count:,}")
    rows.add_row("longest time without an ack", f"{verdict.outage_ms_max / 1000:.1f} s")
    rows.add_row("promises broken", f"{len(verdict.violations)}")
    session.table(msgspec.to_builtins(verdict), rows)
    if session.json:
        return
    said = console()
    happened = ", ".join(f"{name} {count}" for name, count in verdict.faults.items() if count)
    said.print(f"faults: {happened}")
    for outage in verdict.outages:
        said.print(f"outage: {outage}", markup=False)
    for name, why in verdict.left_out.items():
        said.print(f"left out: {name} ({why})")
    for violation in verdict.violations[:10]:
        said.print(violation[:1000], markup=False)
    if verdict.clean:
        said.print(f"every promise was kept in {verdict.seconds:.0f} s", style="green")
    else:
        said.print(f"a promise was broken; evidence: {verdict.evidence}", style="red")
