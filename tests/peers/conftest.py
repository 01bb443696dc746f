"""For every test against a real program: skips are failures, and no process may be left behind.

A peer that is missing or does not start is a failure here. A skipped test would suggest that we
still work with a program that was never run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from dragoman.transports.process.environment import owner
from dragoman.transports.process.guard import guard
from dragoman.transports.process.strays import find_owned
from tests.integration.conftest import own_children

# Must come before the import: its assertions then report as much detail as those of a test file.
pytest.register_assert_rewrite("tests.peers.turns")

from tests.peers.agents import kept_processes  # noqa: E402 - see above


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which is a failure here: {call.excinfo}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, which is a failure here"
    return report


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    guard.protect()
    children = own_children()
    yield
    left = set(find_owned(owner())) - kept_processes()
    assert not left, f"processes with our mark were left: {left}"
    left = own_children() - children - {guard.warden_pid}
    assert not left, f"children were left, perhaps as zombies: {left}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory for a peer."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty directory for a peer to work in."""
    path = tmp_path / "workspace"
    path.mkdir()
    return path
