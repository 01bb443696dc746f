"""The virtual environment in which all contestants run.

Creates `.venv-bench` in the checkout, with the official SDK and the dependencies of dragoman, in
the versions of constraints.txt. All contestants use the same interpreter, so that none is slowed
down by development tools. dragoman itself is imported from `src`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-bench"
SDK = "agent-client-protocol==0.12.1"

SET_UP_TIMEOUT = 600.0
"""Timeout in seconds for one step of the setup: long enough for a slow download."""


def requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [SDK, *project["dependencies"]]


def ready(say: Callable[[str], None]) -> str:
    """The path of the interpreter. Creates the environment if it is missing or out of date."""
    python = FOLDER / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    wanted = "\n".join([sys.version, *requirements(), constraints.read_text()])
    stamp = FOLDER / "bench-ready"
    if stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    say(f"setting up {FOLDER.name} (once)")
    if FOLDER.exists():
        shutil.rmtree(FOLDER)
    _run(sys.executable, "-m", "venv", str(FOLDER))
    (FOLDER / ".gitignore").write_text("*\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "--no-input", "--constraint", str(constraints), *requirements())
    stamp.write_text(wanted)
    return str(python)


def variables(seed: int) -> dict[str, str]:
    """The environment variables of a contestant's processes. Those set here are the only ones that
    affect Python.

    All contestants of a repetition share a hash seed, and each repetition has another one, so that
    no seed can favour one of them throughout.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "DRAGOMAN", "COVERAGE", "COV_"))
    }
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    kept["PYTHONHASHSEED"] = str(seed)
    return kept


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SET_UP_TIMEOUT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
