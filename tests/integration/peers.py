"""The full agent as a program, direct and behind a bridge, for tests of conversations."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
"""What a child needs to find dragoman and these tests."""

AGENT = [sys.executable, "-m", "tests.integration.full_agent"]
BRIDGE = [sys.executable, "-m", "dragoman.gateway", "--inherit", "PYTHONPATH", "--"]

WAIT_TIMEOUT = 30.0
"""For what must happen at once; long, because a busy machine is no failure."""
