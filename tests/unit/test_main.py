"""`python -m dragoman` is the command."""

from __future__ import annotations

import subprocess
import sys

import dragoman


def test_running_the_package_is_running_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    first, second, *rest = done.stdout.splitlines()
    assert first == f"dragoman {dragoman.__version__}"
    assert second.startswith(("CPython 3.", "PyPy 3."))
    assert [line.split()[0] for line in rest] == ["msgspec", "websockets", "typer", "rich"]
    assert done.stderr == ""
