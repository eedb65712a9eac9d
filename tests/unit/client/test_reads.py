"""Pages of the log, out of stored batches."""

import pytest

from raftline.client.core.ports import Reply
from raftline.client.reads import page_of
from raftline.model.batch import NO_PRODUCER
from raftline.model.errors import InvalidArgument
from raftline.model.records import seal_batch


def test_a_page_ends_where_enough_is_read() -> None:
    rows = [(None, value, (), 5) for value in (b"a", b"b", b"c")]
    batch = seal_batch(rows, producer_id=NO_PRODUCER, producer_epoch=-1, base_sequence=-1)
    reply = Reply(200, b"", bytes(batch))
    page = page_of(reply, "t", 0, 0, 2)
    assert ([message.value for message in page.messages], page.next_offset) == ([b"a", b"b"], 2)
    assert page_of(reply, "t", 0, page.next_offset, 2).next_offset == 3
    for count in (0, -1):  # "at most -1" were all of them, "at most 0" an IndexError
        with pytest.raises(InvalidArgument):
            page_of(reply, "t", 0, 0, count)
