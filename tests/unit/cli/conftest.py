"""A shell for commands that need no agent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.calling import Shell, shell_in


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, monkeypatch, capsys)


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands store what they do; the tests' own belongs to no user."""
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _no_stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is piped to a test; pytest's own stdin fails when it is read."""
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield
