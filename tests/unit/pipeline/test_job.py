"""A job that is asked to stop ends after what it is at, also when Spark has taken the signals."""

import signal
from typing import Any

import pytest

from raftline.pipeline import job as job_module
from raftline.pipeline.job import Job


def test_the_first_signal_asks_and_the_second_ends() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Job("archive", "http://127.0.0.1:1") as job:
        signal.raise_signal(signal.SIGINT)
        assert job.is_stopping
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_spark_does_not_keep_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)

    def open_session(*_: Any) -> Any:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as SparkContext does
        return _Session()

    monkeypatch.setattr(job_module, "open_session", open_session)
    with Job("archive", "http://127.0.0.1:1") as job:
        assert job.spark is job.spark
        signal.raise_signal(signal.SIGINT)
        assert job.is_stopping
    assert signal.getsignal(signal.SIGINT) is before


class _Session:
    """Stands for Spark's session, which needs a JVM."""

    def stop(self) -> None:
        pass
