"""The checker on histories written by hand: a unit test per violation, and one that is clean."""

import pytest

from raftline.testing.checker import check
from raftline.testing.history import Final, History, Op, Producer, ReplicaLog

TOPIC = "t/0"


class Story:
    """A small history with three replicas that agree, to be spoilt by a test."""

    def __init__(self) -> None:
        self.history = History()
        self.now_ms = 0.0
        self.runs: list[tuple[int, int, int]] = []
        self.log_start = 0

    def append(
        self,
        body: bytes,
        offset: int,
        *,
        outcome: str = "ok",
        store: bool = True,
        producer: Producer | None = None,
        error: str = "",
        took_ms: float = 1.0,
    ) -> Op:
        op = self.history.invoke("append", self.now_ms, "node-1", "t", 0, 1_000.0)
        op.ident = self.history.sent(body)
        op.count = 2
        op.timestamps_ms = (int(self.now_ms) + 1000, int(self.now_ms) + 1001)
        op.producer = producer
        if outcome == "ok":
            op.offset = offset
        self.now_ms += took_ms
        if outcome:
            self.history.end(op, self.now_ms, outcome, error)
        if store:
            self.runs.append((offset, 2, op.ident))
        self.now_ms += 1.0
        return op

    def read(self, offset: int, runs: list[tuple[int, int, int]], end: int) -> Op:
        op = self.history.invoke("read", self.now_ms, "node-2", "t", 0, 1_000.0)
        op.offset, op.runs, op.log_start, op.commit_end = offset, tuple(runs), 0, end
        self.history.end(op, self.now_ms + 1, "ok")
        self.now_ms += 2.0
        return op

    def final(self) -> Final:
        end = self.runs[-1][0] + self.runs[-1][1] if self.runs else 0
        logs = tuple(
            ReplicaLog(f"node-{i}", self.log_start, end, tuple(self.runs)) for i in (1, 2, 3)
        )
        return Final(replicas={TOPIC: logs}, boot_ms=100.0, recovery_ms=100.0)


@pytest.fixture
def story() -> Story:
    s = Story()
    for i in range(4):
        s.append(b"body %d" % i, i * 2)
    return s


def named(story: Story, final: Final | None = None) -> tuple[str, ...]:
    return check(story.history, final or story.final()).promises


def test_a_good_run_is_clean(story: Story) -> None:
    story.append(b"lost in the net", 8, outcome="unknown", store=False)
    story.append(b"stored after all", 8, outcome="unknown")
    story.append(b"refused", 10, outcome="refused", store=False, error="no_leader: x")
    story.read(3, story.runs[1:3], 8)
    verdict = check(story.history, story.final())
    assert verdict.clean, verdict
    assert verdict.counts["append_ok"] == 4
    assert str(verdict).startswith("clean: ")


def test_p1_an_acknowledged_batch_is_gone(story: Story) -> None:
    story.append(b"acked", 8, store=False)
    assert named(story) == ("P1",)


def test_p1_the_log_begins_later_than_anybody_asked(story: Story) -> None:
    del story.runs[0]
    story.log_start = 2
    assert "P1" in named(story)


def test_a_trim_explains_a_later_beginning(story: Story) -> None:
    op = story.history.invoke("trim", story.now_ms, "node-1", "t", 0, 1_000.0)
    op.offset = 3
    story.history.end(op, story.now_ms + 1, "unknown", "timed_out: x")
    story.log_start = 3
    story.runs = [run for run in story.runs if run[0] + run[1] > 3]
    assert named(story) == ()


def test_p1_a_whole_partition_is_gone(story: Story) -> None:
    assert named(story, Final(boot_ms=1.0, recovery_ms=1.0)) == ("P1",)


def test_p1_a_linearizable_read_misses_what_was_acknowledged(story: Story) -> None:
    story.read(0, story.runs[:2], 4).linearizable = True
    assert named(story) == ("P1",)


def test_p2_something_was_read_that_is_not_there(story: Story) -> None:
    ghost = story.append(b"ghost", 8, outcome="unknown", store=False)
    story.read(8, [(8, 2, ghost.ident)], 8)
    assert named(story) == ("P2",)


def test_p2_the_readable_end_went_back(story: Story) -> None:
    story.read(8, [], 10)
    assert named(story) == ("P2",)


def test_p2_replicas_differ(story: Story) -> None:
    final = story.final()
    other = (*story.runs[:2], (4, 2, story.runs[3][2]), (6, 2, story.runs[2][2]))
    one, two, _ = final.replicas[TOPIC]
    final.replicas[TOPIC] = (one, two, ReplicaLog("node-3", 0, 8, other))
    assert "P2" in named(story, final)


def test_p2_a_replica_stays_behind(story: Story) -> None:
    final = story.final()
    one, two, _ = final.replicas[TOPIC]
    final.replicas[TOPIC] = (one, two, ReplicaLog("node-3", 0, 6, tuple(story.runs[:3])))
    assert named(story, final) == ("P2",)


def test_p2_verify_complains(story: Story) -> None:
    final = story.final()
    final.verify = "t/0: node 3 differs"
    assert named(story, final) == ("P2",)


def test_p3_a_hole(story: Story) -> None:
    story.append(b"late", 9)
    assert "P3" in named(story)


def test_p3_an_offset_is_given_twice(story: Story) -> None:
    story.append(b"again", 6, store=False)
    assert "P3" in named(story)


def test_p3_an_offset_changes_its_meaning(story: Story) -> None:
    story.runs[1], story.runs[2] = (2, 2, story.runs[2][2]), (4, 2, story.runs[1][2])
    assert named(story) == ("P3",)


def test_p3_a_repeated_sequence_is_stored_twice(story: Story) -> None:
    producer = Producer(7, 0, 0)
    story.append(b"seq 0", 8, outcome="unknown", producer=producer)
    story.append(b"seq 0", 10, producer=producer)
    assert named(story) == ("P3",)


def test_p3_a_repeat_gets_another_offset(story: Story) -> None:
    producer = Producer(7, 0, 0)
    story.append(b"seq 0", 8, producer=producer)
    story.append(b"seq 0", 9, producer=producer, store=False)
    assert named(story) == ("P3",)


def test_p3_a_faithful_producer_is_refused(story: Story) -> None:
    story.append(
        b"seq 5", 8, outcome="refused", store=False, producer=Producer(7, 0, 5),
        error="out_of_order: expected 0",
    )  # fmt: skip
    assert named(story) == ("P3",)


def test_p3_sent_later_lies_before(story: Story) -> None:
    first = story.append(b"first", 10)
    story.append(b"second", 8)
    story.runs[-2:] = [(8, 2, story.runs[-1][2]), (10, 2, first.ident)]
    assert named(story) == ("P3",)


def test_p3_a_read_jumps(story: Story) -> None:
    story.read(0, [story.runs[0], story.runs[2]], 8)
    assert named(story) == ("P3",)


def test_p3_a_read_begins_elsewhere(story: Story) -> None:
    story.read(5, [story.runs[1]], 8)
    assert named(story) == ("P3",)


def test_p3_a_read_gives_another_offset_than_the_log(story: Story) -> None:
    story.read(8, [(8, 2, story.runs[0][2])], 8)
    assert named(story) == ("P3",)


@pytest.mark.parametrize(("answer", "promises"), [(2, ()), (3, ("P3",)), (-1, ("P3",))])
def test_p3_a_lookup_by_time(story: Story, answer: int, promises: tuple[str, ...]) -> None:
    op = story.history.invoke("lookup", story.now_ms, "node-1", "t", 0, 1_000.0)
    op.time_ms, op.offset, op.commit_end = 1002, answer, 8
    story.history.end(op, story.now_ms + 1, "ok")
    assert named(story) == promises


def test_p9_a_node_sends_the_caller_away(story: Story) -> None:
    story.append(b"x", 8, outcome="refused", store=False, error="not_leader: node 2 does")
    assert named(story) == ("P9",)


def test_p9_refused_with_all_well(story: Story) -> None:
    op = story.append(b"x", 8, outcome="refused", store=False, error="unknown_topic: t")
    op.calm = True
    assert named(story) == ("P9",)


def test_p9_empty_directories_do_not_boot(story: Story) -> None:
    final = story.final()
    final.boot_ms = -1.0
    assert named(story, final) == ("P9",)


def test_p10_a_call_never_ends(story: Story) -> None:
    story.append(b"x", 8, outcome="", store=False)
    assert named(story) == ("P10",)


def test_p10_a_call_ends_late(story: Story) -> None:
    story.append(b"x", 8, took_ms=5_000.0)
    assert named(story) == ("P10",)


def test_a_late_end_is_excused_when_the_process_was_stopped(story: Story) -> None:
    story.append(b"x", 8, outcome="unknown", store=False, took_ms=5_000.0).excused = True
    assert named(story) == ()


def test_p10_a_refused_batch_is_stored(story: Story) -> None:
    story.append(b"x", 8, outcome="refused", error="no_leader: x")
    assert named(story) == ("P10",)


@pytest.mark.parametrize("recovery_ms", [-1.0, 60_000.0])
def test_p10_writes_do_not_come_back(story: Story, recovery_ms: float) -> None:
    final = story.final()
    final.recovery_ms = recovery_ms
    assert named(story, final) == ("P10",)


def test_p11_bytes_that_nobody_sent_are_read(story: Story) -> None:
    story.read(0, [(0, 2, story.history.ident_of(b"bodX 0"))], 8)
    assert named(story) == ("P11",)


def test_p11_a_replica_serves_bytes_that_nobody_sent(story: Story) -> None:
    final = story.final()
    one, two, _ = final.replicas[TOPIC]
    bad = (*story.runs[:3], (6, 2, story.history.ident_of(b"?")))
    final.replicas[TOPIC] = (one, two, ReplicaLog("node-3", 0, 8, bad))
    assert "P11" in named(story, final)


def test_p11_a_replica_is_unreadable_and_nobody_says_so(story: Story) -> None:
    final = story.final()
    final.unread = ("t/0 on node-3: damaged",)
    assert named(story, final) == ("P11",)
    final.out_of_service = ("t/0",)
    assert named(story, final) == ()


def test_an_uncaught_exception_is_a_bug(story: Story) -> None:
    final = story.final()
    final.bugs = ("Traceback ...",)
    assert named(story, final) == ("BUG",)


def test_a_torn_read_reply_is_an_alien_run() -> None:
    history = History()
    ((offset, _, ident),) = history.runs_of(b"\0" * 30)
    assert offset == -1
    assert ident < 0
