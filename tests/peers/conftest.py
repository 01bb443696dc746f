"""For every test against a real program: nothing is skipped, and no process is left behind.

A peer that is missing or does not start is a failure here: a skipped test would say that we still
get along with a program that nobody asked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from dragoman.transports.process.environment import owner
from dragoman.transports.process.guard import guard
from dragoman.transports.process.strays import find_owned
from tests.integration.conftest import own_children

# Before it is imported: its assertions shall tell as much as those of a test file.
pytest.register_assert_rewrite("tests.peers.turns")

from tests.peers.agents import kept_processes  # noqa: E402 - see above


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and here a skip is a failure: {call.excinfo}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, and here a skip is a failure"
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
    """An empty home for a peer."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty folder for a peer to work in."""
    path = tmp_path / "workspace"
    path.mkdir()
    return path
