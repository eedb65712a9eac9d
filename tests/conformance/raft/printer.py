"""Writes rpcs, entries and progress the way the dialogues do."""

from raftline.raft.conf_change import Change, ChangeKind, decode_conf_change
from raftline.raft.core import Ready, SoftState
from raftline.raft.members import Members
from raftline.raft.progress import Progress, ProgressState
from raftline.raft.rpc import (
    LOCAL_APPEND,
    LOCAL_APPLY,
    ConfState,
    Entry,
    EntryKind,
    HardState,
    Rpc,
    RpcKind,
    Snapshot,
)
from raftline.raft.state import Role

KIND_NAMES = {
    RpcKind.HUP: "MsgHup",
    RpcKind.BEAT: "MsgBeat",
    RpcKind.PROPOSE: "MsgProp",
    RpcKind.APP: "MsgApp",
    RpcKind.APP_RESP: "MsgAppResp",
    RpcKind.VOTE: "MsgVote",
    RpcKind.VOTE_RESP: "MsgVoteResp",
    RpcKind.SNAP: "MsgSnap",
    RpcKind.HEARTBEAT: "MsgHeartbeat",
    RpcKind.HEARTBEAT_RESP: "MsgHeartbeatResp",
    RpcKind.UNREACHABLE: "MsgUnreachable",
    RpcKind.SNAP_STATUS: "MsgSnapStatus",
    RpcKind.CHECK_QUORUM: "MsgCheckQuorum",
    RpcKind.TRANSFER_LEADER: "MsgTransferLeader",
    RpcKind.TIMEOUT_NOW: "MsgTimeoutNow",
    RpcKind.READ_INDEX: "MsgReadIndex",
    RpcKind.READ_INDEX_RESP: "MsgReadIndexResp",
    RpcKind.PRE_VOTE: "MsgPreVote",
    RpcKind.PRE_VOTE_RESP: "MsgPreVoteResp",
    RpcKind.STORAGE_APPEND: "MsgStorageAppend",
    RpcKind.STORAGE_APPEND_RESP: "MsgStorageAppendResp",
    RpcKind.STORAGE_APPLY: "MsgStorageApply",
    RpcKind.STORAGE_APPLY_RESP: "MsgStorageApplyResp",
    RpcKind.FORGET_LEADER: "MsgForgetLeader",
}
ENTRY_NAMES = {
    EntryKind.NORMAL: "EntryNormal",
    EntryKind.CONF_CHANGE: "EntryConfChange",
    EntryKind.CONF_CHANGE_V2: "EntryConfChangeV2",
}
ROLE_NAMES = {
    Role.FOLLOWER: "StateFollower",
    Role.CANDIDATE: "StateCandidate",
    Role.LEADER: "StateLeader",
    Role.PRE_CANDIDATE: "StatePreCandidate",
}
PROGRESS_NAMES = {
    ProgressState.PROBE: "StateProbe",
    ProgressState.REPLICATE: "StateReplicate",
    ProgressState.SNAPSHOT: "StateSnapshot",
}
CHANGE_LETTERS = {
    ChangeKind.ADD_VOTER: "v",
    ChangeKind.ADD_LEARNER: "l",
    ChangeKind.REMOVE: "r",
    ChangeKind.UPDATE: "u",
}
ESCAPES = {ord("\\"): "\\\\", ord('"'): '\\"', 9: "\\t", 10: "\\n", 13: "\\r"}


def quote(data: bytes) -> str:
    """Return ``data`` in double quotes."""
    shown = [
        ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in data
    ]
    return f'"{"".join(shown)}"'


def show_ids(ids: tuple[int, ...]) -> str:
    return f"[{' '.join(map(str, ids))}]"


def show_group(ids: tuple[int, ...]) -> str:
    return f"({' '.join(f'{replica:x}' for replica in ids)})"


def show_bool(value: object) -> str:
    return "true" if value else "false"


def show_members(members: Members) -> str:
    text = f"voters={show_group(members.incoming)}"
    if members.outgoing:
        text += f"&&{show_group(members.outgoing)}"
    if members.learners:
        text += f" learners={show_group(members.learners)}"
    if members.learners_next:
        text += f" learners_next={show_group(members.learners_next)}"
    if members.auto_leave:
        text += " autoleave"
    return text


def show_progress(progress: Progress) -> str:
    words = [
        PROGRESS_NAMES[ProgressState(progress.state)],
        f"match={progress.match}",
        f"next={progress.next}",
    ]
    if progress.is_learner:
        words.append("learner")
    if progress.is_paused():
        words.append("paused")
    if progress.pending_snapshot:
        words.append(f"pendingSnap={progress.pending_snapshot}")
    if not progress.recent_active:
        words.append("inactive")
    count = len(progress.inflights.queue)
    if count:
        words.append(f"inflight={count}" + "[full]" * progress.inflights.is_full())
    return " ".join(words)


def show_progress_map(progress: dict[int, Progress]) -> list[str]:
    return [f"{replica}: {show_progress(progress[replica])}" for replica in sorted(progress)]


def show_conf(conf: ConfState) -> str:
    return (
        f"Voters:{show_ids(conf.voters)} VotersOutgoing:{show_ids(conf.voters_outgoing)} "
        f"Learners:{show_ids(conf.learners)} LearnersNext:{show_ids(conf.learners_next)} "
        f"AutoLeave:{show_bool(conf.auto_leave)}"
    )


def show_snapshot(snapshot: Snapshot) -> str:
    return f"Index:{snapshot.index} Term:{snapshot.term} ConfState:{show_conf(snapshot.conf)}"


def show_hard_state(state: HardState) -> str:
    vote = f" Vote:{state.vote}" if state.vote else ""
    return f"Term:{state.term}{vote} Commit:{state.commit}"


def show_soft_state(state: SoftState) -> str:
    return f"Lead:{state.leader} State:{ROLE_NAMES[state.role]}"


def show_changes(changes: tuple[Change, ...]) -> str:
    return " ".join(f"{CHANGE_LETTERS[ChangeKind(c.kind)]}{c.replica}" for c in changes)


def show_entry(entry: Entry) -> str:
    if entry.kind == EntryKind.NORMAL:
        body = quote(entry.data)
    else:
        body = show_changes(decode_conf_change(entry).changes)
    name = ENTRY_NAMES[EntryKind(entry.kind)]
    return f"{entry.term}/{entry.index} {name} {body}".rstrip()


def show_replica(replica: int) -> str:
    names = {0: "None", LOCAL_APPEND: "AppendThread", LOCAL_APPLY: "ApplyThread"}
    return names.get(replica) or f"{replica:x}"


def show_rpc(rpc: Rpc, indent: str = "") -> list[str]:
    """Return the lines that show ``rpc``."""
    text = (
        f"{indent}{show_replica(rpc.sender)}->{show_replica(rpc.to)} "
        f"{KIND_NAMES[RpcKind(rpc.kind)]} Term:{rpc.term} Log:{rpc.log_term}/{rpc.index}"
    )
    if rpc.reject:
        text += f" Rejected (Hint: {rpc.reject_hint})"
    if rpc.commit:
        text += f" Commit:{rpc.commit}"
    if rpc.vote:
        text += f" Vote:{rpc.vote}"
    if len(rpc.entries) == 1:
        text += f" Entries:[{show_entry(rpc.entries[0])}]"
    elif rpc.entries:
        shown = [f"\n{indent}  {show_entry(entry)}" for entry in rpc.entries]
        text += f" Entries:[{''.join(shown)}\n{indent}]"
    if rpc.snapshot is not None and rpc.snapshot.index:
        text += f"\n{indent}  Snapshot: {show_snapshot(rpc.snapshot)}"
    if rpc.responses:
        shown = [line for response in rpc.responses for line in show_rpc(response, indent + "  ")]
        text += " Responses:[\n" + "\n".join(shown) + f"\n{indent}]"
    return text.split("\n")


def show_ready(ready: Ready) -> list[str]:
    """Return the lines that show ``ready``."""
    lines: list[str] = []
    if ready.soft_state is not None:
        lines.append(show_soft_state(ready.soft_state))
    if ready.hard_state is not None:
        lines.append(f"HardState {show_hard_state(ready.hard_state)}")
    if ready.reads:
        reads = [f"{{{read.index} [{' '.join(map(str, read.context))}]}}" for read in ready.reads]
        lines.append(f"ReadStates [{' '.join(reads)}]")
    if ready.entries:
        lines += ["Entries:", *map(show_entry, ready.entries)]
    if ready.snapshot is not None:
        lines.append(f"Snapshot {show_snapshot(ready.snapshot)}")
    if ready.committed:
        lines += ["CommittedEntries:", *map(show_entry, ready.committed)]
    local = [rpc for rpc in (ready.append, ready.apply) if rpc is not None]
    if ready.rpcs or local:
        shown = [line for rpc in (*ready.rpcs, *local) for line in show_rpc(rpc)]
        lines += ["Messages:", *shown]
    if not lines:
        return ["<empty Ready>"]
    return [f"Ready MustSync={show_bool(ready.must_sync)}:", *lines]
