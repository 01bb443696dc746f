"""Temporary directories for tests of the MCP server, isolated from the user's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in."""
    cwd, home = tmp_path / "work", tmp_path / "home"
    cwd.mkdir()
    home.mkdir()
    for name in FOLDERS:
        monkeypatch.setenv(f"DRAGOMAN_{name}", str(home / name.lower()))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(cwd)
    return cwd
