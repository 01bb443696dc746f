"""An agent that misbehaves in one way at a time, as a real child process.

Each kind of misbehaviour is a fault with a name, and `healthy` is the agent without one. It speaks
ACP v1 with plain `json` and `os`, so that it can break the protocol at any level and is an
independent check. `faults` names the faults, `agent` is the agent, `turns` handles prompts, `pipe`
its bytes, and `children` its processes.

    python -m dragoman.testing.chaos --fault never-asks
"""

from __future__ import annotations

import sys


def command(fault: str = "healthy") -> list[str]:
    """Return the command line of a chaos agent with this fault."""
    return [sys.executable, "-m", "dragoman.testing.chaos", "--fault", fault]
