"""The checker of linearizability: what it lets pass, and what it names."""

import pytest

from raftline.chaos.linear import FOREVER_MS, Change, check_partitions, is_linearizable
from raftline.testing.history import History


def change(what: str, at: tuple[float, float], told: bool | None) -> Change:
    return Change(what, *at, told)


@pytest.mark.parametrize(
    ("changes", "fine"),
    [
        ([], True),
        ([change("create", (0, 1), True), change("delete", (2, 3), True)], True),
        ([change("delete", (0, 1), True)], False),  # nothing was there
        ([change("create", (0, 1), True), change("create", (2, 3), True)], False),
        ([change("create", (0, 1), True), change("delete", (2, 3), False)], False),
        # At the same time: one of them was first.
        ([change("create", (0, 5), True), change("delete", (1, 4), False)], True),
        ([change("create", (0, 5), True), change("delete", (1, 4), True)], True),
        # Nobody knows whether it happened: before, later or never.
        ([change("create", (0, FOREVER_MS), None), change("delete", (9, 10), True)], True),
        ([change("create", (0, FOREVER_MS), None), change("delete", (9, 10), False)], True),
        (
            [
                change("create", (0, FOREVER_MS), None),
                change("delete", (1, 2), True),
                change("delete", (3, 4), True),
            ],
            False,
        ),
    ],
)
def test_an_order_that_explains_the_answers(changes: list[Change], fine: bool):
    assert is_linearizable(changes) is fine


def test_many_calls_without_an_answer_do_not_make_the_search_long():
    changes = [change("create", (i, FOREVER_MS), None) for i in range(40)]
    changes += [change("delete", (i, FOREVER_MS), None) for i in range(40)]
    for i in range(50, 130, 2):
        what = "create" if i % 4 else "delete"
        changes.append(change(what, (i, i + 1), True))
    assert is_linearizable(changes)
    # Forty creates nobody heard of explain forty deletes in a row, not forty-one.
    changes = [change("create", (i, FOREVER_MS), None) for i in range(40)]
    changes += [change("delete", (i, i + 0.5), True) for i in range(50, 90)]
    assert is_linearizable(changes)
    assert not is_linearizable([*changes, change("delete", (95, 96), True)])


def history(*rows: tuple[str, float, float, int, int]) -> History:
    """Return a history of appends (offset, count) and linearizable reads (commit end)."""
    found = History()
    for kind, invoked, ended, first, second in rows:
        op = found.invoke(kind, invoked, "n", "t", 0, 1000)
        if kind == "append":
            op.offset, op.count = first, second
        else:
            op.commit_end, op.linearizable = first, True
        found.end(op, ended, "ok")
    return found


def test_a_log_whose_offsets_follow_time_is_fine():
    rows = [("append", 0, 2, 0, 5), ("append", 1, 3, 5, 1), ("read", 4, 5, 6, 0)]
    assert not list(check_partitions(history(*rows)))


@pytest.mark.parametrize(
    ("rows", "rule"),
    [
        ([("append", 0, 1, 7, 1), ("append", 2, 3, 5, 1)], "L1"),
        ([("append", 0, 1, 7, 1), ("read", 2, 3, 7, 0)], "L2"),
        ([("read", 0, 1, 9, 0), ("read", 2, 3, 8, 0)], "L3"),
    ],
)
def test_what_contradicts_time_is_named(rows: list[tuple[str, float, float, int, int]], rule: str):
    (violation,) = check_partitions(history(*rows))
    assert rule in violation.text
    assert "t/0" in violation.evidence


def test_calls_at_the_same_time_may_come_in_any_order():
    rows = [("append", 0, 5, 7, 1), ("append", 1, 4, 5, 1), ("read", 2, 3, 6, 0)]
    assert not list(check_partitions(history(*rows)))
