"""The remote machine for the tests of `--host`: see `far_machine`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.far_machine import CUTS, SEED, FarMachine, far_machine, missing

HERE = Path(__file__).parent


def pytest_report_header() -> str:
    return f"connections are cut {CUTS} times; repeat with HOST_SEED={SEED} HOST_CUTS={CUTS}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the timeout: tests with a login for every command take longer on a busy machine."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def machine() -> Iterator[FarMachine]:
    """One sshd for all tests. Tests use the fixture `far`."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with far_machine() as far:
        yield far


@pytest.fixture
def far(machine: FarMachine) -> Iterator[FarMachine]:
    """The remote machine. Checks after the test that no connection or command is left on either
    side, and empties the list of prompts."""
    machine.name_host()
    yield machine
    left = machine.wait_until_gone("broker stdio")
    assert not left, f"connections were left: {left}"
    ssh = machine.wait_until_ssh_gone()
    assert not ssh, f"ssh processes of this side were left: {ssh}"
    (machine.work / "prompts").unlink(missing_ok=True)
