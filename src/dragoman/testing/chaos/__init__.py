"""An agent that misbehaves in one way at a time, as a real child process.

This package owns the bad manners of agents: each is a fault with a name, and `healthy` is the
agent without one. It speaks ACP v1 with plain `json` and `os`, so that it can do wrong at any level
and is a witness of its own. `faults` names the faults, `agent` is the agent, `turns` what it does
about a prompt, `pipe` its bytes, `children` its processes, and `table` what the verification ladder
has to find.

    python -m dragoman.testing.chaos --fault never-asks
"""

from __future__ import annotations

import sys


def command(fault: str = "healthy") -> list[str]:
    """The command line of a chaos agent with this fault."""
    return [sys.executable, "-m", "dragoman.testing.chaos", "--fault", fault]
