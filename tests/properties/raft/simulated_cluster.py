"""A cluster in one thread whose net and machines fail in any way that a seed says.

State: replicas with a disk each (what was synced) and work not synced yet, rpcs in flight, and
what the checker has seen. One step does one random thing; everything is checked as it happens.

Invariants checked:
    I1  election safety: a term has one leader.
    I2  log matching: an index and a term name one entry, and one entry before it.
    I3  leader completeness: a new leader holds every entry that was ever applied.
    I4  state machine safety: nobody applies another entry at an index than anybody else.
    I5  a read is answered with an index that covers all that was applied when it was asked.
"""

import random

from raftline.raft.conf_change import (
    Change,
    ChangeKind,
    ConfChangeV2,
    Transition,
    decode_conf_change,
)
from raftline.raft.core import Config, Raft, Ready, Role
from raftline.raft.errors import ConfChangeFault, Refused
from raftline.raft.members import plan_change
from raftline.raft.progress import ProgressState
from raftline.raft.rpc import ConfState, Entry, EntryKind, HardState, Rpc, Snapshot
from raftline.raft.storage import MemoryLog

REPLICAS_MAX = 6
FLIGHT_MAX = 200


class Disk(MemoryLog):
    """What was synced. A snapshot for others is always of the newest applied state."""

    __slots__ = ("newest",)

    def __init__(self) -> None:
        super().__init__()
        self.newest = Snapshot()

    def snapshot(self) -> Snapshot:
        return self.newest

    def stored(self) -> Snapshot:
        return super().snapshot()


class Machine:
    """One replica: its core, its disk, and what its disk has not synced yet."""

    __slots__ = ("appends", "applies", "disk", "raft", "up")

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.up = True
        self.appends: list[Rpc] = []
        self.applies: list[Rpc] = []


class SimulatedCluster:
    """Replicas, net and checker, moved by one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        self.options = {
            "election_ticks": 5,
            "async_storage_writes": rng.random() < 0.75,
            "pre_vote": rng.random() < 0.5,
            "check_quorum": rng.random() < 0.5,
            "commit_rides": rng.random() < 0.5,
            "heartbeats_ride": rng.random() < 0.5,
            "inflight_max": rng.choice([1, 3, 256]),
            "message_bytes_max": rng.choice([1, 40, 1 << 63]),
            "committed_bytes_max": rng.choice([0, 30]),
            "step_down_on_removal": True,
            "own_vote_first": True,
        }
        self.losses = rng.choice([0.0, 0.05, 0.2])
        self.storm = rng.choice([0.02, 0.08, 0.22])
        self.sync_rate = rng.choice([0.1, 0.3])  # a slow disk, or not
        self.count = rng.choice([1, 3, 3, 5])
        self.machines: dict[int, Machine] = {}
        self.flight: list[Rpc] = []
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}  # I1
        self.written: dict[tuple[int, int], tuple[int, bytes]] = {}  # I2
        self.applied: dict[int, Entry] = {}  # I4
        self.applied_last = 2
        self.reads: dict[bytes, int] = {}  # I5: what was applied when it was asked
        self.answered = 0
        self.proposed = 0
        voters = tuple(range(1, self.count + 1))
        first = Snapshot(2, 1, ConfState(voters))
        for replica in range(1, REPLICAS_MAX + 1):
            disk = Disk()
            if replica in voters:
                disk.apply_snapshot(first)
            self.machines[replica] = Machine(disk)
            self.start(replica)

    # --- machines

    def start(self, replica: int) -> None:
        machine = self.machines[replica]
        disk = machine.disk
        machine.up = True
        machine.appends, machine.applies = [], []
        disk.newest = disk.stored()  # the machine was in memory
        applied = disk.newest.index
        config = Config(id=replica, rng=self.rng, applied=applied, **self.options)
        machine.raft = Raft(config, disk)

    def crash(self, replica: int) -> None:
        """Lose all that was not synced."""
        self.machines[replica].up = False

    def work(self, replica: int) -> None:
        """Take what the core hands out."""
        machine = self.machines[replica]
        raft = machine.raft
        if not raft.has_ready():
            return
        ready = raft.ready()
        if raft.role is Role.LEADER:
            self.saw_leader(raft)
        for read in ready.reads:
            self.answered += 1
            assert read.index >= self.reads[read.context], read  # I5
        if self.options["async_storage_writes"]:
            machine.appends += [ready.append] if ready.append else []
            machine.applies += [ready.apply] if ready.apply else []
            self.send(ready.rpcs)
        else:
            self.work_at_once(machine, ready)

    def work_at_once(self, machine: Machine, ready: Ready) -> None:
        self.write(machine, ready.hard_state, ready.entries, ready.snapshot)
        self.apply(machine, ready.committed)
        self.send(ready.rpcs)
        machine.raft.advance()

    def sync(self, machine: Machine) -> None:
        """Do the oldest write and let its responses go."""
        rpc = machine.appends.pop(0)
        hard_state = HardState(rpc.term, rpc.vote, rpc.commit) if rpc.term else None
        self.write(machine, hard_state, rpc.entries, rpc.snapshot)
        self.respond(machine, rpc.responses)

    def finish(self, machine: Machine) -> None:
        """Apply the oldest batch of committed entries."""
        rpc = machine.applies.pop(0)
        self.apply(machine, rpc.entries)
        self.respond(machine, rpc.responses)

    def respond(self, machine: Machine, responses: list[Rpc]) -> None:
        for rpc in responses:
            if rpc.to == machine.raft.id:
                self.step(machine, rpc)
            else:
                self.send([rpc])

    def write(
        self,
        machine: Machine,
        hard_state: HardState | None,
        entries: list[Entry],
        snapshot: Snapshot | None,
    ) -> None:
        disk = machine.disk
        if hard_state is not None:
            disk.set_hard_state(hard_state)
        if snapshot is not None:
            disk.apply_snapshot(snapshot)
            disk.newest = snapshot
        disk.append(entries)
        for entry in entries:
            if entry.index < disk.first_index():
                continue
            seen = (disk.term(entry.index - 1), entry.data)
            key = (entry.index, entry.term)
            assert self.written.setdefault(key, seen) == seen, entry  # I2

    def apply(self, machine: Machine, entries: list[Entry]) -> None:
        for entry in entries:
            assert self.applied.setdefault(entry.index, entry) == entry, entry  # I4
            self.applied_last = max(self.applied_last, entry.index)
            conf = machine.disk.newest.conf
            if entry.kind != EntryKind.NORMAL:
                conf = machine.raft.apply_conf_change(decode_conf_change(entry), entry.index)
            machine.disk.newest = Snapshot(entry.index, entry.term, conf)

    def saw_leader(self, raft: Raft) -> None:
        if raft.term in self.leaders:
            assert self.leaders[raft.term] == raft.id, raft.term  # I1
            return
        self.leaders[raft.term] = raft.id
        for index in range(raft.log.first_index(), self.applied_last + 1):
            assert raft.log.term_at(index) == self.applied[index].term, index  # I3

    # --- the net

    def send(self, rpcs: list[Rpc]) -> None:
        for rpc in rpcs:
            if (rpc.sender, rpc.to) not in self.cut and self.rng.random() >= self.losses:
                self.flight.append(rpc)

    def deliver(self) -> None:
        rng = self.rng
        at = rng.randrange(min(len(self.flight), 8))  # near the front: late, but not forever
        rpc = self.flight[at]
        if rng.random() >= self.losses:  # else it comes again
            del self.flight[at]
        del self.flight[:-FLIGHT_MAX]
        machine = self.machines[rpc.to]
        if machine.up:
            self.step(machine, rpc)
            self.work(rpc.to)

    def step(self, machine: Machine, rpc: Rpc) -> None:
        try:
            machine.raft.step(rpc)
        except Refused:
            return

    def part(self) -> None:
        """Cut the net in two, one way or both."""
        group = {replica for replica in self.machines if self.rng.random() < 0.4}
        both_ways = self.rng.random() < 0.7
        for one in self.machines:
            for other in self.machines:
                if one in group and other not in group:
                    self.cut.add((one, other))
                    self.cut |= {(other, one)} if both_ways else set()

    # --- clients

    def propose(self, machine: Machine) -> None:
        self.proposed += 1
        try:
            machine.raft.propose([b"%d" % self.proposed])
        except Refused:
            return

    def read(self, machine: Machine) -> None:
        context = b"%d" % len(self.reads)
        self.reads[context] = self.applied_last
        machine.raft.read_index(context)

    def change(self, machine: Machine) -> None:
        """Propose a change that the leader's configuration allows."""
        rng, raft = self.rng, machine.raft
        if raft.role is not Role.LEADER:
            return
        kinds = (ChangeKind.ADD_VOTER, ChangeKind.ADD_LEARNER, ChangeKind.REMOVE)
        changes = tuple(
            Change(rng.choice(kinds), rng.randrange(1, REPLICAS_MAX + 1))
            for _ in range(rng.randrange(0, 3))
        )
        change = ConfChangeV2(changes, rng.choice(list(Transition)) if changes else 0)
        try:
            voters = plan_change(raft.members, change).members.incoming
            # One of two cannot be removed while it leads: once it knows, nobody can be told.
            if raft.id in voters or len(raft.members.incoming) > 2:
                raft.propose_conf_change(change)
        except (ConfChangeFault, Refused):
            return

    def compact(self, machine: Machine) -> None:
        """Keep a snapshot of what is applied and drop some of the log behind it."""
        disk = machine.disk
        index = disk.newest.index
        if disk.stored().index < index <= disk.last_index():
            disk.create_snapshot(index, disk.newest.conf, b"")
            behind = min(index, machine.raft.applied)
            if behind >= disk.first_index():
                disk.compact(self.rng.randrange(disk.first_index(), behind + 1))

    # --- a run

    def random_step(self) -> None:
        """Mostly go on with what is under way; now and then ask for something or break it."""
        rng = self.rng
        if self.flight and rng.random() < 0.5:
            self.deliver()
            return
        replica = rng.choice(self.taking_part())
        machine = self.machines[replica]
        if not machine.up:
            if rng.random() < 0.4:
                self.start(replica)
            return
        chance = rng.random()
        if chance < self.sync_rate:
            if machine.appends:
                self.sync(machine)
        elif chance < 0.5:
            if machine.applies:
                self.finish(machine)
        elif chance < 0.5 + self.storm:
            self.disturb(machine)
        elif chance < 0.75:
            machine.raft.tick()
        else:
            self.ask(machine)
        if machine.up:
            self.work(replica)

    def taking_part(self) -> list[int]:
        """Return who is in anybody's configuration."""
        known = {replica for m in self.machines.values() for replica in m.raft.progress}
        return sorted(known)

    def ask(self, machine: Machine) -> None:
        chance = self.rng.random()
        if chance < 0.5:
            self.propose(machine)
        elif chance < 0.8:
            self.read(machine)
        elif chance < 0.9:
            self.change(machine)
        elif chance < 0.95:
            machine.raft.transfer_leadership(self.rng.randrange(1, REPLICAS_MAX + 1))
        else:
            machine.raft.flush_commit()

    def disturb(self, machine: Machine) -> None:
        other = self.rng.randrange(1, REPLICAS_MAX + 1)
        chance = self.rng.random()
        if chance < 0.25:
            self.crash(machine.raft.id)
        elif chance < 0.35:
            self.part()
        elif chance < 0.55:
            self.cut.clear()
        elif chance < 0.62:
            self.compact(machine)
        elif chance < 0.68:
            machine.raft.forget_leader()
        elif chance < 0.86:
            machine.raft.campaign()
        elif chance < 0.9:
            machine.raft.report_unreachable(other)
        else:
            machine.raft.report_snapshot(other, ok=chance < 0.95)

    def calm_round(self) -> None:
        """Tick everyone once, then do and deliver all there is."""
        for replica, machine in self.machines.items():
            raft = machine.raft
            raft.tick()
            raft.flush_commit()
            for other, progress in raft.progress.items():
                if progress.state == ProgressState.SNAPSHOT:
                    raft.report_snapshot(other, ok=False)
            self.work(replica)
        busy = True
        while busy:
            busy = bool(self.flight)
            while self.flight:
                rpc = self.flight.pop(0)
                self.step(self.machines[rpc.to], rpc)
            for replica, machine in self.machines.items():
                busy |= machine.raft.has_ready() or bool(machine.appends or machine.applies)
                self.work(replica)
                while machine.appends:
                    self.sync(machine)
                while machine.applies:
                    self.finish(machine)

    def heal(self) -> None:
        """End all faults, and check that the cluster works and agrees again."""
        self.losses = 0.0
        self.cut.clear()
        for replica, machine in self.machines.items():
            if not machine.up:
                self.start(replica)
        for _ in range(100):
            self.calm_round()
            leader = self.settled_leader()
            if leader is not None:
                break
        else:
            raise AssertionError("no leader that everyone follows")
        term, index = leader.propose([b"last"])
        for _ in range(30):
            self.calm_round()
        assert self.applied[index].term == term, index
        for replica in leader.members.everyone():
            assert self.machines[replica].raft.applied >= index, replica

    def settled_leader(self) -> Raft | None:
        rafts = [machine.raft for machine in self.machines.values()]
        leader = max(rafts, key=lambda raft: (raft.role is Role.LEADER, raft.term))
        members = [self.machines[replica].raft for replica in leader.members.everyone()]
        settled = (
            leader.role is Role.LEADER
            and leader.commit == leader.last_index
            and leader.id in leader.progress
            and not leader.is_learner
            and not leader.lead_transferee
            and not leader.members.is_joint()
            and all(raft.leader == leader.id and raft.term == leader.term for raft in members)
        )
        if not settled and leader.role is Role.LEADER and leader.members.is_joint():
            try:
                leader.propose_conf_change(ConfChangeV2())
            except Refused:
                return None
        return leader if settled else None
