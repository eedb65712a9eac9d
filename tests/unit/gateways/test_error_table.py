"""Every error has a row, every row an error."""

from raftline.gateways.error_table import ERROR_TABLE, row_of
from raftline.model.errors import ERRORS, NotLeader, RaftlineError

GRPC = {
    "NOT_FOUND", "ALREADY_EXISTS", "INVALID_ARGUMENT", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL",
}  # fmt: skip


def test_every_leaf_has_a_row_and_every_row_a_leaf() -> None:
    assert set(ERROR_TABLE) == set(ERRORS.values())


def test_rows_are_possible() -> None:
    for error, row in ERROR_TABLE.items():
        assert 400 <= row.http <= 599, error
        assert row.exit in {1, 2, 4, 5, 6, 7, 8}, error
        assert row.grpc in GRPC, error


def test_what_may_be_retried_looks_so_in_http() -> None:
    for error, row in ERROR_TABLE.items():
        if error.retry:
            assert row.http in {429, 503, 504, 507}, error


def test_an_error_without_a_row_is_internal() -> None:
    class Odd(RaftlineError):
        code = "odd"

    assert row_of(Odd("x")).http == 500
    assert row_of(NotLeader("orders/1")).http == 503
