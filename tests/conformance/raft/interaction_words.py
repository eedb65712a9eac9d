"""The words of a dialogue between replicas, one method per word.

``add-nodes 3 voters=(1,2,3) index=10``, ``campaign 1``, ``stabilize 1 2 log-level=none``,
``deliver-msgs 2 type=MsgApp drop=(3)``, ``propose 1 text``, ``status 1``, ... Words of our own
beside the usual ones: ``read-index 2 text``, ``flush-commit 1``, ``report-snapshot 1 3 ok=true``.
"""

from collections.abc import Callable

import msgspec

from raftline.raft.conf_change import (
    Change,
    ChangeKind,
    ConfChange,
    ConfChangeV2,
    Transition,
)
from raftline.raft.core import Role
from raftline.raft.rpc import Rpc, RpcKind, Snapshot
from tests.conformance.raft.cluster import EXPECTED, LEVELS, QUIET, Cluster, Complaint, Seat, spoken
from tests.conformance.raft.dialogue import Step
from tests.conformance.raft.printer import (
    CHANGE_LETTERS,
    KIND_NAMES,
    ROLE_NAMES,
    show_entry,
    show_progress_map,
    show_rpc,
)

KINDS = {name: kind for kind, name in KIND_NAMES.items()}
CHANGES = {letter: kind for kind, letter in CHANGE_LETTERS.items()}
TRANSITIONS = {
    "auto": Transition.AUTO,
    "implicit": Transition.JOINT_IMPLICIT,
    "explicit": Transition.JOINT_EXPLICIT,
}
FLAGS = {
    "async-storage-writes": "async_storage_writes",
    "prevote": "pre_vote",
    "checkquorum": "check_quorum",
    "disable-conf-change-validation": "conf_change_validation_disabled",
    "step-down-on-removal": "step_down_on_removal",
    "commit-rides": "commit_rides",
}
NUMBERS = {
    "inflight": "inflight_max",
    "max-committed-size-per-ready": "committed_bytes_max",
}


class InteractionWords:
    """Runs the steps of one dialogue, in order."""

    def __init__(self) -> None:
        self.cluster = Cluster()

    def run(self, step: Step) -> list[str]:
        cluster = self.cluster
        cluster.out = []
        word: Callable[[Step], None] | None = getattr(
            self, "do_" + step.verb.replace("-", "_"), None
        )
        try:
            if word is None:
                raise Complaint("unknown command")
            word(step)
        except EXPECTED as error:
            cluster.out = [] if cluster.level == QUIET else cluster.out
            cluster.out.append(spoken(error))
        return cluster.out

    def seats(self, step: Step) -> list[Seat]:
        return [self.cluster.seats[int(word) - 1] for word in step.words()]

    def seat(self, step: Step) -> Seat:
        return self.cluster.seats[int(step.arguments[0].key) - 1]

    def each(self, step: Step, title: str, work: Callable[[Seat], None]) -> None:
        seats = self.seats(step)
        for seat in seats:
            if len(seats) == 1:
                work(seat)
            else:
                self.cluster.print(f"> {seat.raft.id} {title}")
                self.cluster.indented(lambda seat=seat: work(seat))

    # --- setting up

    def do__breakpoint(self, step: Step) -> None:
        """Do nothing; a place to stop at."""

    def do_add_nodes(self, step: Step) -> None:
        voters: list[int] = []
        learners: list[int] = []
        template: dict[str, object] = {}
        index, content = 0, ""
        for key, value in step.options():
            if key == "voters":
                voters.append(int(value))
            elif key == "learners":
                learners.append(int(value))
            elif key == "index":
                index = template["applied"] = int(value)
            elif key == "content":
                content = value
            elif key in FLAGS:
                template[FLAGS[key]] = parse_bool(value)
            elif key in NUMBERS:
                template[NUMBERS[key]] = int(value)
            elif key == "read-only":
                if value not in ("safe", "lease-based"):
                    raise Complaint(f'invalid read-only option "{value}"')
                template["read_only_lease_based"] = value == "lease-based"
        conf = msgspec.structs.replace(
            Snapshot().conf, voters=tuple(voters), learners=tuple(learners)
        )
        snapshot = Snapshot(index, 0, conf, content.encode())
        self.cluster.add(int(step.arguments[0].key), template, snapshot)

    def do_log_level(self, step: Step) -> None:
        self.set_level(step.arguments[0].key)

    def set_level(self, name: str) -> None:
        if name.upper() not in LEVELS:
            raise Complaint(f"log levels must be either of [{' '.join(LEVELS)}]")
        self.cluster.level = LEVELS.index(name.upper())

    def do_set_randomized_election_timeout(self, step: Step) -> None:
        options = dict(step.options())
        self.seat(step).raft.election_timeout_ticks = int(options["timeout"])

    # --- commands to a replica

    def do_campaign(self, step: Step) -> None:
        self.seat(step).raft.campaign()

    def do_propose(self, step: Step) -> None:
        self.seat(step).raft.propose([step.arguments[1].key.encode()])

    def do_propose_conf_change(self, step: Step) -> None:
        v1, transition = False, Transition.AUTO
        for key, value in step.options():
            if key == "v1":
                v1 = parse_bool(value)
            elif key == "transition":
                if value not in TRANSITIONS:
                    raise Complaint(f"unknown transition {value}")
                transition = TRANSITIONS[value]
            else:
                raise Complaint(f"unknown command {key}")
        changes = parse_changes(" ".join(step.text))
        raft = self.seat(step).raft
        if not v1:
            raft.propose_conf_change(ConfChangeV2(changes, transition))
        elif len(changes) > 1 or transition != Transition.AUTO:
            raise Complaint("v1 conf change can only have one operation and no transition")
        else:
            raft.propose_conf_change(ConfChange(changes[0].kind, changes[0].replica))

    def do_read_index(self, step: Step) -> None:
        self.seat(step).raft.read_index(step.arguments[1].key.encode())

    def do_flush_commit(self, step: Step) -> None:
        self.seat(step).raft.flush_commit()

    def do_forget_leader(self, step: Step) -> None:
        self.seat(step).raft.forget_leader()

    def do_transfer_leadership(self, step: Step) -> None:
        options = dict(step.options())
        source = self.cluster.seats[int(options["from"]) - 1]
        source.raft.transfer_leadership(int(options["to"]))

    def do_report_unreachable(self, step: Step) -> None:
        seats = self.seats(step)
        if len(seats) != 2:
            raise Complaint(
                "must specify exactly two node indexes: node on which to report, and reported node"
            )
        seats[0].raft.report_unreachable(seats[1].raft.id)

    def do_report_snapshot(self, step: Step) -> None:
        reporter, target = self.seats(step)
        options = dict(step.options())
        reporter.raft.report_snapshot(target.raft.id, parse_bool(options["ok"]))

    def do_send_snapshot(self, step: Step) -> None:
        source, target = self.seats(step)
        raft = source.raft
        snapshot = source.disk.snapshot()
        rpc = Rpc(RpcKind.SNAP, target.raft.id, raft.id, raft.term, snapshot=snapshot)
        self.cluster.flight.append(rpc)
        self.cluster.print(*show_rpc(rpc))

    def do_compact(self, step: Step) -> None:
        seat = self.seat(step)
        seat.disk.compact(int(step.arguments[1].key))
        self.show_log(seat)

    def do_tick_election(self, step: Step) -> None:
        seat = self.seat(step)
        for _ in range(seat.config.election_ticks):
            seat.raft.tick()

    def do_tick_heartbeat(self, step: Step) -> None:
        seat = self.seat(step)
        for _ in range(seat.config.heartbeat_ticks):
            seat.raft.tick()

    # --- moving things along

    def do_process_ready(self, step: Step) -> None:
        self.each(step, "handling Ready", self.cluster.process_ready)

    def do_process_append_thread(self, step: Step) -> None:
        self.each(step, "processing append thread", self.cluster.process_append)

    def do_process_apply_thread(self, step: Step) -> None:
        self.each(step, "processing apply thread", self.cluster.process_apply)

    def do_deliver_msgs(self, step: Step) -> None:
        kind = -1
        targets: list[tuple[int, bool]] = []
        for argument in step.arguments:
            if not argument.values:
                targets.append((int(argument.key), False))
            elif argument.key == "drop":
                targets += [(int(value), True) for value in argument.values]
            elif argument.key == "type":
                kind = int(KINDS[argument.values[0]])
        moved = [self.cluster.deliver(replica, kind, drop=drop) for replica, drop in targets]
        if not sum(moved):
            self.cluster.print("no messages")

    def do_stabilize(self, step: Step) -> None:
        before = self.cluster.level
        try:
            for key, value in step.options():
                if key == "log-level":
                    self.set_level(value)
            self.cluster.stabilize(self.seats(step) or self.cluster.seats)
        finally:
            self.cluster.level = before

    # --- looking

    def do_raft_log(self, step: Step) -> None:
        self.show_log(self.seat(step))

    def show_log(self, seat: Seat) -> None:
        first, last = seat.disk.first_index(), seat.disk.last_index()
        if last < first:
            self.cluster.print(f"log is empty: first index={first}, last index={last}")
            return
        entries = seat.disk.entries(first, last + 1, 1 << 63)
        self.cluster.print(*map(show_entry, entries))

    def do_raft_state(self, step: Step) -> None:
        for seat in self.cluster.seats:
            raft = seat.raft
            part = "(Voter)" if raft.id in raft.members.voters() else "(Non-Voter)"
            self.cluster.print(
                f"{raft.id}: {ROLE_NAMES[raft.role]} {part} Term:{raft.term} Lead:{raft.leader}"
            )

    def do_status(self, step: Step) -> None:
        raft = self.seat(step).raft
        if raft.role is Role.LEADER:
            self.cluster.print(*show_progress_map(raft.progress))


def parse_bool(text: str) -> bool:
    return {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}[
        text.lower()
    ]


def parse_changes(text: str) -> tuple[Change, ...]:
    """Return the changes written as ``v1 l2 r3 u4``."""
    changes: list[Change] = []
    for word in text.split():
        if len(word) < 2:
            raise Complaint(f"unknown token {word}")
        if word[0] not in CHANGES:
            raise Complaint(f"unknown input: {word}")
        changes.append(Change(int(ChangeKind(CHANGES[word[0]])), int(word[1:])))
    return tuple(changes)
