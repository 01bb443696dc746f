"""`dragoman uninstall` as a user calls it; what it removes is in tests/integration."""

from __future__ import annotations

import pytest

from dragoman.cli.uninstall import _amount
from tests.unit.cli.calling import Shell


def test_nothing_to_remove_is_said_with_the_command_for_the_package(shell: Shell) -> None:
    said = shell("uninstall")
    assert said.code == 0
    assert "There is nothing to remove." in said.out and "uninstall dragoman" in said.out


@pytest.mark.parametrize(("size", "shown"), [(0, "0 bytes"), (2_500_000, "2.5 MB")])
def test_sizes_are_readable(size: int, shown: str) -> None:
    assert _amount(size) == shown
