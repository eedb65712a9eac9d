"""Random lives of groups: never two owners, and once all is quiet everything is read, evenly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from raftline.machines.groups import commands as c
from raftline.machines.groups.machine import GroupsMachine
from raftline.machines.groups.views import member_view
from raftline.machines.machine import Refused
from raftline.model.groups import Offset, Places

NAMES = ("a", "b", "c", "d")
SIZES = {"s": c.TopicSize("us", 4, 1), "t": c.TopicSize("ut", 3, 1)}

member = st.sampled_from(NAMES)
topics = st.lists(st.sampled_from(("s", "t")), min_size=1, max_size=2, unique=True).map(tuple)
assignor = st.sampled_from(("", "sticky", "range", "round_robin"))
step = st.one_of(
    st.tuples(st.just("join"), member, topics, assignor),
    st.tuples(st.just("leave"), member),
    st.tuples(st.just("expire"), member),
    st.tuples(st.just("beat"), member),
    st.tuples(st.just("give"), member, st.integers(0, 3)),
    st.tuples(st.just("commit"), member, st.sampled_from(("s", "t")), st.integers(0, 3)),
    st.tuples(st.just("grow"), st.sampled_from(("s", "t")), st.integers(5, 7)),
    st.tuples(st.just("restart")),
)


class Life:
    """Clients that do as they are told, some late; and what each believes to be its own."""

    def __init__(self) -> None:
        self.machine = GroupsMachine()
        self.other = GroupsMachine()  # another replica, which never restarts
        self.at_ms = 0
        self.sizes = dict(SIZES)
        self.told: dict[str, int] = {}
        self.revoke: dict[str, Places] = {}
        self.reads: dict[str, set[tuple[str, int]]] = {}  # what each client reads right now

    def apply(self, command: c.Command):
        self.at_ms += 1
        before = self.machine.digest()
        events = self.machine.apply(1, 1, c.encode_command(command))
        self.other.apply(1, 1, c.encode_command(command))
        assert self.machine.digest() == self.other.digest(), "replicas differ"
        self.machine.check()
        if isinstance(events[0], Refused):
            at = self.machine.at_ms
            self.machine.at_ms = at - 1
            assert self.machine.digest() == before, "a refusal changed something"
            self.machine.at_ms = at
        return events

    def run(self, words) -> None:
        getattr(self, words[0])(*words[1:])
        self.check()

    def join(self, name, topics, assignor) -> None:
        # A client that joins anew has dropped what it had.
        self.gone(name)
        sizes = {topic: self.sizes[topic] for topic in topics}
        self.apply(
            c.Join("g", name, str(self.at_ms), "", topics, sizes, assignor, at_ms=self.at_ms + 1)
        )
        self.hear(name)

    def leave(self, name) -> None:
        self.gone(name)
        self.apply(c.Leave("g", name, at_ms=self.at_ms + 1))

    def expire(self, name) -> None:
        # A session is over only for who is silent: it has stopped reading by then.
        self.gone(name)
        group = self.machine.groups.get("g")
        row = group.members.get(name) if group else None
        if row is not None:
            self.apply(c.Expire("g", {name: row.joined_epoch}, self.at_ms + 1))

    def gone(self, name) -> None:
        self.reads.pop(name, None)
        self.revoke.pop(name, None)

    def beat(self, name, gave=None) -> None:
        told = self.told.get(name, 0)
        events = self.apply(c.Acknowledge("g", name, told, gave or {}, self.at_ms + 1))
        if isinstance(events[0], Refused):
            assert name not in self.reads, "a member that did nothing wrong was refused"
        else:
            self.hear(name)

    def give(self, name, count) -> None:
        """Give up some of what was asked for."""
        gave: Places = {}
        for topic, partitions in self.revoke.get(name, {}).items():
            gave[topic] = partitions[:count]
            self.reads[name] -= {(topic, partition) for partition in partitions[:count]}
        self.beat(name, gave)

    def hear(self, name) -> None:
        view = member_view(self.machine.group("g"), name)
        self.told[name] = view.generation
        self.revoke[name] = view.revoke
        places = [*view.partitions.items(), *view.revoke.items()]
        self.reads[name] = {(topic, p) for topic, numbers in places for p in numbers}

    def commit(self, name, topic, partition) -> None:
        offset = {topic: {partition: Offset(self.at_ms)}}
        told = self.told.get(name, 0)
        events = self.apply(c.Commit("g", name, told, offset, at_ms=self.at_ms + 1))
        if (topic, partition) in self.reads.get(name, ()):
            assert events[0].count == 1, "who reads a partition may commit it"
        elif not isinstance(events[0], Refused) and events[0].count:
            owner = self.machine.group("g").topics[topic].slots[partition].owner
            assert owner == name

    def grow(self, topic, count) -> None:
        if count > self.sizes[topic].count and "g" in self.machine.groups:
            self.sizes[topic] = c.TopicSize(self.sizes[topic].uuid, count, 1)
            self.apply(c.SetTopics("g", self.sizes, self.at_ms + 1))

    def restart(self) -> None:
        fresh = GroupsMachine()
        fresh.restore(self.machine.snapshot())
        assert fresh.snapshot() == self.machine.snapshot()
        self.machine = fresh

    def check(self) -> None:
        readers: dict[tuple[str, int], str] = {}
        for name, places in self.reads.items():
            for place in places:
                assert place not in readers, f"{place} is read by {readers[place]} and {name}"
                readers[place] = name


@settings(max_examples=150)
@given(st.lists(step, max_size=40))
def test_a_random_life(steps):
    life = Life()
    for words in steps:
        life.run(words)
    group = life.machine.groups.get("g")
    if group is None:
        return
    for _ in range(3):  # everybody does as told
        for name in sorted(life.reads):
            life.run(("give", name, 100))
    members = [name for name in sorted(life.reads) if name in group.members]
    group = life.machine.group("g")
    assert sorted(group.members) == members
    for topic, row in group.topics.items():
        able = [name for name in members if topic in group.members[name].topics]
        for slot in row.slots:
            assert slot.owner == slot.target
            assert (slot.owner in able) if able else not slot.owner
            assert slot.is_taken or not able
    if members and group.assignor == "sticky":
        wanted = {group.members[name].topics for name in members}
        loads = [len(life.reads[name]) for name in members]
        assert len(wanted) > 1 or max(loads) - min(loads) <= 1
