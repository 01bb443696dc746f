"""The earlier name of the gateway."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_the_earlier_import_works_with_a_warning() -> None:
    code = "from dragoman.bridge import Bridge, serve; print(Bridge.__name__, serve.__name__)"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=50
    )
    assert done.stdout.split() == ["Gateway", "serve"]
    assert "dragoman.bridge is dragoman.gateway now" in done.stderr


@pytest.mark.parametrize("module", ["dragoman.bridge", "dragoman.gateway"])
def test_both_names_are_programs(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0
    assert "usage:" in done.stdout
