"""The parts of a partition's snapshot."""

import pytest

from raftline.machines.partition.parts import Freeze, freeze_parts, restore_parts
from raftline.model.errors import NewerFormat


class Words:
    """A part that keeps a text."""

    def __init__(self, text: bytes = b"") -> None:
        self.text = text

    def freeze(self) -> Freeze:
        text = self.text
        return lambda: text

    def restore(self, data: bytes) -> None:
        self.text = data

    def check(self) -> None:
        assert self.text != b"broken"


def test_what_is_frozen_does_not_follow_later_changes_and_empty_parts_take_no_room():
    one, two = Words(b"one"), Words()
    join = freeze_parts([("one", one), ("two", two)])
    one.text = b"later"
    assert join() == [("one", b"one")]


def test_a_part_without_a_section_is_emptied():
    one, two = Words(b"old"), Words(b"old")
    restore_parts([("one", one), ("two", two)], [("two", b"new")], 2)
    assert (one.text, two.text) == (b"", b"new")


def test_a_section_of_an_unknown_part_is_refused_before_anything_changes():
    one = Words(b"old")
    with pytest.raises(NewerFormat, match="'three'"):
        restore_parts([("one", one)], [("one", b"new"), ("three", b"x")], 2)
    assert one.text == b"old"
