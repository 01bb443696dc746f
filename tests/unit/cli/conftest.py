"""A shell for commands that need no agent, with an isolated store and no input."""

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
    """Use a temporary state directory: commands must not write to the user's store."""
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _no_stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace stdin with an empty file: reading pytest's own stdin raises an error."""
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield
