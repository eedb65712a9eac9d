"""Sealed batches for these tests."""

from raftline.model.records import seal_batch


def batch(*values: bytes) -> bytes:
    """Seal values as one batch."""
    return seal_batch([(None, value, (), 1_000 + at) for at, value in enumerate(values)])


BATCH = batch(b"value")
