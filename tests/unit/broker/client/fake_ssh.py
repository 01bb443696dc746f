"""A program in the place of ssh, which runs the command on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest


def fake_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str = 'eval "$last"') -> None:
    """Put a shell script in the place of ssh: its last argument is the command."""
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\nfor last; do :; done\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setenv("DRAGOMAN_SSH", str(path))
