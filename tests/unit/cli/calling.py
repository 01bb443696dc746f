"""Calls the command line in this process, with folders of its own, and tells what came of it."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.cli.entry import run

FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")


@dataclass(frozen=True)
class Said:
    """What a command printed, and the code it ended with."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """A folder to work in, and a place for the files of dragoman beside it."""

    cwd: Path
    home: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *argv: str) -> Said:
        self.capture.readouterr()
        with pytest.raises(SystemExit) as left:
            run(argv)
        out, err = self.capture.readouterr()
        code = left.value.code
        return Said(code if isinstance(code, int) else int(code is not None), out, err)

    @property
    def config(self) -> Path:
        return self.home / "config_home"

    @property
    def data(self) -> Path:
        return self.home / "data_home"


def shell_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
) -> Shell:
    """A shell in an empty folder, in which nothing of the user's counts."""
    cwd, home = tmp_path / "work", tmp_path / "home"
    cwd.mkdir()
    home.mkdir()
    for name in FOLDERS:
        monkeypatch.setenv(f"DRAGOMAN_{name}", str(home / name.lower()))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    return Shell(cwd, home, capture)
