"""What every test lives under: skips need a listed reason, generated files can be accepted."""

import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write expected files anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test of all: begun last, it would run beside an idle core."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether expected files are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="module")
def module_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A directory for what the tests of a module share; gone with the last, unless one failed.

    Every node of a cluster allocates its write-ahead log before it starts: what is left behind
    by a whole run would fill the disk and the last clusters would rightly refuse messages.
    """
    failed = request.session.testsfailed
    path = tmp_path_factory.mktemp(request.path.stem)
    yield path
    if request.session.testsfailed == failed:
        shutil.rmtree(path, ignore_errors=True)


def allowed_skips(text: str) -> frozenset[str]:
    lines = (line.strip() for line in text.splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def refuse_unlisted_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip (or an expected failure) without a listed reason into a failure."""
    if report.outcome != "skipped":
        return
    where = report.longrepr
    reason = getattr(report, "wasxfail", None)
    if reason is None:
        reason = str(where[2]) if isinstance(where, tuple) else str(where)
    reason = reason.removeprefix("reason: ").removeprefix("Skipped: ")
    if reason not in allowed_skips(ALLOWED_SKIPS.read_text()):
        report.outcome = "failed"
        report.longrepr = f"skipped for a reason not in tests/allowed_skips.txt: {reason!r}"
        if hasattr(report, "wasxfail"):
            del report.wasxfail


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_unlisted_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_unlisted_skip(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum up, over all workers, the faults the simulated seeds met."""
    totals: dict[str, int] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "faults by class" and isinstance(value, dict):
                    for fault, count in value.items():
                        totals[fault] = totals.get(fault, 0) + int(count)
    if totals:
        terminalreporter.section("simulated faults by class")
        for fault, count in sorted(totals.items()):
            terminalreporter.write_line(f"{count:6} {fault}")
