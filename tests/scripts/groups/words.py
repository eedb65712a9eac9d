"""Words of a groups script. Time stands still but for ``wait``. A member remembers the generation
it was told last and says it with everything it sends; ``generation=N`` says another.

topic NAME PARTITIONS            create a topic, or give it more partitions; groups hear of it
drop NAME                        delete a topic
join GROUP MEMBER TOPIC... [assignor=NAME] [again] become a member (again: another instance of it)
beat GROUP MEMBER [gave=PLACES]  a heartbeat; ``gave=orders/2,3`` gives revoked partitions up
leave GROUP MEMBER
expire GROUP MEMBER...           the leader has not heard from them for too long; ``b@2``: from
                                 the one that joined at 2
commit GROUP MEMBER PLACE@OFFSET...   MEMBER ``-``: nobody's
reset GROUP PLACE@OFFSET...
delete GROUP
form GROUP MEMBER... [protocol=NAME] [leader=MEMBER] [generation=N]
                                 a classic group's next generation; ``a!one`` is static
assign GROUP PLACES-OF-MEMBERS... [generation=N]   what its leader assigned: ``a=orders/0,1``
dismiss GROUP MEMBER...          members of a classic group left, or fell silent
substitute GROUP OLD NEW!INSTANCE  a static member came back under another name
forget GROUP PLACES...           drop cursors
classic GROUP                    a classic group: state, protocol, leader, who has what
wait MS
restart                          restore a fresh machine from the snapshot
show GROUP                       who reads what; ``a>b``: a has it and is asked to give it to b
cursors GROUP
pauses GROUP
"""

from raftline.machines.groups import commands as c
from raftline.machines.groups import events as ev
from raftline.machines.groups.machine import GroupsMachine
from raftline.machines.groups.views import group_view, member_view
from raftline.machines.machine import Refused
from raftline.model.classic_groups import ClassicMember, Offered, Share
from raftline.model.groups import Offset, Offsets, Places


class Words:
    def __init__(self) -> None:
        self.machine = GroupsMachine()
        self.at_ms = 0
        self.topics: dict[str, c.TopicSize] = {}
        self.told: dict[tuple[str, str], int] = {}
        self.instances: dict[tuple[str, str], int] = {}

    def check(self) -> None:
        self.machine.check()

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        if verb == "assign":
            return self._assign(words)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        words = [word for word in words if "=" not in word]
        run = getattr(self, f"_{verb}", None)
        return run(words, options) if run else [f"unknown word {verb}"]

    def _apply(self, command: c.Command) -> list[str]:
        events = self.machine.apply(1, 1, c.encode_command(command))
        return [text for event in events if (text := told(event))]

    # Topics and time.

    def _topic(self, words, options) -> list[str]:
        name, count = words[0], int(words[1])
        known = self.topics.get(name)
        made = known or c.TopicSize(f"{name}-{self.at_ms}", 0, self.at_ms)
        self.topics[name] = c.TopicSize(made.uuid, count, made.created_ms)
        return self._tell_all(name, self.topics[name])

    def _drop(self, words, options) -> list[str]:
        gone = self.topics.pop(words[0])
        return self._tell_all(words[0], c.TopicSize(gone.uuid, 0, gone.created_ms))

    def _tell_all(self, name: str, size: c.TopicSize) -> list[str]:
        out: list[str] = []
        for group in sorted(self.machine.groups):
            row = self.machine.groups[group]
            if name in row.topics or any(name in m.topics for m in row.members.values()):
                out += self._apply(c.SetTopics(group, {name: size}, self.at_ms))
        return out

    def _wait(self, words, options) -> list[str]:
        self.at_ms += int(words[0])
        return []

    def _restart(self, words, options) -> list[str]:
        fresh = GroupsMachine()
        fresh.restore(self.machine.snapshot())
        assert fresh.snapshot() == self.machine.snapshot()
        self.machine = fresh
        return []

    # Members.

    def _join(self, words, options) -> list[str]:
        again = "again" in words
        group, member, *topics = [word for word in words if word != "again"]
        key = (group, member)
        self.instances[key] = self.instances.get(key, 0) + again
        command = c.Join(
            group,
            member,
            f"{member}{self.instances[key]}",
            "",
            tuple(topics),
            {name: self.topics[name] for name in topics if name in self.topics},
            options.get("assignor", ""),
            at_ms=self.at_ms,
        )
        out = self._apply(command)
        return out if out[0].startswith("refused") else [*out, *self._view(group, member)]

    def _beat(self, words, options) -> list[str]:
        group, member = words
        gave = places(options.get("gave", ""))
        generation = self._generation(group, member, options)
        out = self._apply(c.Acknowledge(group, member, generation, gave, self.at_ms))
        return out if out and out[0].startswith("refused") else [*out, *self._view(group, member)]

    def _view(self, group: str, member: str) -> list[str]:
        view = member_view(self.machine.group(group), member)
        self.told[(group, member)] = view.generation
        text = f"{member} hears {view.generation}, {view.state}: {written(view.partitions)}"
        return [text + (f"; give up {written(view.revoke)}" if view.revoke else "")]

    def _generation(self, group: str, member: str, options) -> int:
        return int(options.get("generation", self.told.get((group, member), 0)))

    def _leave(self, words, options) -> list[str]:
        generation = self._generation(words[0], words[1], options)
        return self._apply(c.Leave(words[0], words[1], generation, self.at_ms))

    def _expire(self, words, options) -> list[str]:
        group = self.machine.groups.get(words[0])
        members = group.members if group else {}
        joined: dict[str, int] = {}
        for word in words[1:]:
            name, _, epoch = word.partition("@")
            joined[name] = int(epoch) if epoch else members[name].joined_epoch
        return self._apply(c.Expire(words[0], joined, self.at_ms))

    # Classic groups.

    def _form(self, words, options) -> list[str]:
        group, *names = words
        known = self.machine.groups.get(group)
        generation = int(options.get("generation", (known.epoch if known else 0) + 1))
        protocol = options.get("protocol", "range")
        members = tuple(classic_member(name, protocol) for name in names)
        leader = options.get("leader", members[0].id)
        return self._apply(
            c.Form(group, generation, "consumer", protocol, leader, members, self.at_ms)
        )

    def _assign(self, words) -> list[str]:
        group, *rows = words
        shares: dict[str, Share] = {}
        generation = self.machine.groups[group].epoch
        for row in rows:
            name, text = row.split("=", 1)
            if name == "generation":
                generation = int(text)
            else:
                shares[name] = Share(text.encode(), places(text))
        return self._apply(c.Assign(group, generation, shares, self.at_ms))

    def _dismiss(self, words, options) -> list[str]:
        return self._apply(c.Dismiss(words[0], tuple(words[1:]), self.at_ms))

    def _substitute(self, words, options) -> list[str]:
        group, old, new = words
        member = classic_member(new, "range")
        return self._apply(c.Substitute(group, old, member, self.at_ms))

    def _forget(self, words, options) -> list[str]:
        return self._apply(c.DropCursors(words[0], places("+".join(words[1:])), self.at_ms))

    def _classic(self, words, options) -> list[str]:
        group = self.machine.group(words[0])
        if group.classic is None:
            return [f"{group.name} is not classic"]
        view = group.classic.view(group.name, group.epoch)
        head = f"{view.group} {view.state} at {view.generation}"
        if view.members:
            head += f": {view.protocol or 'no protocol'}, led by {view.leader or 'nobody'}"
        return [head, *(f"{row.id}: {written(row.places)}" for row in view.members)]

    # Cursors.

    def _commit(self, words, options) -> list[str]:
        group, member, *rows = words
        member = "" if member == "-" else member
        generation = self._generation(group, member, options)
        offsets = cursors(rows)
        sizes = {name: self.topics[name] for name in offsets if name in self.topics}
        return self._apply(c.Commit(group, member, generation, offsets, sizes, self.at_ms))

    def _reset(self, words, options) -> list[str]:
        offsets = cursors(words[1:])
        sizes = {name: self.topics[name] for name in offsets if name in self.topics}
        return self._apply(c.Reset(words[0], offsets, sizes, self.at_ms))

    def _delete(self, words, options) -> list[str]:
        return self._apply(c.Delete(words[0], at_ms=self.at_ms))

    # Looking.

    def _show(self, words, options) -> list[str]:
        view = group_view(self.machine.group(words[0]))
        rows: dict[str, list[str]] = {}
        for row in view.partitions:
            who = row.owner if row.owner == row.target else f"{row.owner}>{row.target}"
            rows.setdefault(row.topic, []).append(who or "-")
        head = f"{view.group} {view.state} at {view.generation}"
        return [head, *(f"{topic}: {' '.join(who)}" for topic, who in rows.items())]

    def _cursors(self, words, options) -> list[str]:
        view = group_view(self.machine.group(words[0]))
        return [f"{r.topic}/{r.partition}@{r.offset}" for r in view.partitions if r.offset >= 0]

    def _pauses(self, words, options) -> list[str]:
        p = self.machine.group(words[0]).pauses
        return [f"{p.count} pauses: last {p.last_ms} ms, max {p.max_ms}, in all {p.total_ms}"]


def told(event: object) -> str:
    match event:
        case Refused():
            return f"refused {event.code}: {event.message}"
        case ev.Joined():
            return f"{event.member} joined {event.group} at {event.epoch} ({event.how})"
        case ev.Left():
            return f"{', '.join(event.members) or 'nobody'} left {event.group} at {event.epoch}"
        case ev.Acknowledged():
            return f"{event.member} gave up {written(event.revoked)}" if event.revoked else ""
        case ev.Given():
            return f"{event.member} is given {written(event.places)}"
        case ev.Committed():
            refused = f", not {written(event.refused)}" if event.refused else ""
            return f"{event.count} cursors committed{refused}"
        case ev.TopicsSet():
            return f"{event.group} knows its topics at {event.epoch}"
        case ev.WasReset():
            return f"{event.count} cursors reset"
        case ev.CursorsDropped():
            refused = f", not {written(event.refused)}" if event.refused else ""
            return f"{event.count} cursors dropped{refused}"
        case ev.Formed():
            return f"{event.group} formed at {event.epoch}"
        case ev.Assigned():
            return f"{event.group} assigned at {event.epoch}" + ("" if event.is_new else " before")
        case ev.Substituted():
            return f"{event.member} has the place of {event.old}"
        case ev.Deleted():
            return f"{event.group} deleted"
        case _:
            return ""


def classic_member(text: str, protocol: str) -> ClassicMember:
    name, _, instance = text.partition("!")
    offers = (Offered(protocol, name.encode()),)
    return ClassicMember(name, instance, "app", "/here", 10_000, 60_000, offers, ("orders",))


def written(rows: Places) -> str:
    return " ".join(f"{topic}/{','.join(map(str, rows[topic]))}" for topic in rows) or "nothing"


def places(text: str) -> Places:
    found: Places = {}
    for word in filter(None, text.split("+")):
        topic, numbers = word.split("/")
        found[topic] = [int(number) for number in numbers.split(",")]
    return found


def cursors(rows: list[str]) -> Offsets:
    offsets: Offsets = {}
    for row in rows:
        place, offset = row.split("@")
        topic, partition = place.split("/")
        offsets.setdefault(topic, {})[int(partition)] = Offset(int(offset))
    return offsets
