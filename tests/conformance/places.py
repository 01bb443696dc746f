"""Where the programs of these tests are, and what they need to start."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src")}

PATIENCE = 40.0
"""Seconds for one answer of a program on a machine that is busy with other tests."""


def full_agent(store: Path) -> list[str]:
    """The command line of the agent with every handler, which keeps its sessions in `store`."""
    return [sys.executable, str(ROOT / "tests" / "conformance" / "full_agent.py"), str(store)]
