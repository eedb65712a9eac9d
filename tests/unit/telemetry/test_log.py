"""Log events: one line each, only wanted levels, and never a reason to stop."""

import errno
import io
import json
from pathlib import Path

import pytest

from raftline.telemetry.log import Log, no_log


def lines(form: str, level: str = "info") -> tuple[Log, io.StringIO]:
    stream = io.StringIO()
    return Log(lambda: 1_500, level=level, form=form, stream=stream), stream


def test_json_lines() -> None:
    log, stream = lines("json")
    log("info", "leader.elected", shard=7, where=Path("/x"), text='a "b"\n')
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line) == {
        "at_ms": 1_500,
        "level": "info",
        "event": "leader.elected",
        "shard": 7,
        "where": "/x",
        "text": 'a "b"\n',
    }


def test_console_lines() -> None:
    log, stream = lines("console")
    log("warning", "disk.slow", took_ms=12)
    assert stream.getvalue().endswith(".500 warning disk.slow took_ms=12\n")


@pytest.mark.parametrize(("level", "written"), [("debug", 4), ("info", 3), ("error", 1)])
def test_levels(level: str, written: int) -> None:
    log, stream = lines("json", level)
    for each in ("debug", "info", "warning", "error"):
        log(each, "thing.happened")
    assert len(stream.getvalue().splitlines()) == written


def test_a_closed_stream_is_no_error() -> None:
    log, stream = lines("json")
    stream.close()
    log("error", "thing.happened")
    no_log("error", "thing.happened", field=1)


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_does_not_stop_a_node() -> None:
    log = Log(lambda: 1_500, stream=FullDisk())
    log("warning", "disk.nearly_full")
