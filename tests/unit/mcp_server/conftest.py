"""Folders for tests of the MCP server, in which nothing of the user's counts."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    cwd, home = tmp_path / "work", tmp_path / "home"
    cwd.mkdir()
    home.mkdir()
    for name in FOLDERS:
        monkeypatch.setenv(f"DRAGOMAN_{name}", str(home / name.lower()))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(cwd)
    return cwd
