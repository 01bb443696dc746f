"""`python -m dragoman` says what is installed."""

from __future__ import annotations

import subprocess
import sys

import dragoman


def test_running_the_package_names_the_versions_that_a_bug_report_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman"], capture_output=True, text=True, check=True, timeout=30
    )
    first, second, *rest = done.stdout.splitlines()
    assert first == f"dragoman {dragoman.__version__}"
    assert second.startswith(("CPython 3.", "PyPy 3."))
    assert [line.split()[0] for line in rest] == ["msgspec", "websockets"]
    assert done.stderr == ""
