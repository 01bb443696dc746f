"""The virtual environment in which all contestants run.

It owns `.venv-bench` in the checkout: the official SDK with what it needs, and what dragoman needs,
in the versions of constraints.txt. All contestants use this one interpreter, so that none pays for
the development tools of another environment. dragoman itself is found in `src`.
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
"""Seconds for one step of the set-up: a slow download is not a failure, a dead one is."""


def requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [SDK, *project["dependencies"]]


def ready(say: Callable[[str], None]) -> str:
    """The path of the interpreter; builds the environment if it is missing or out of date."""
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
    """The environment of a contestant's processes: nothing that steers Python but what is here.

    All contestants of one repetition share a hash seed, and each repetition has another, so that
    no one seed can favour one of them throughout.
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
