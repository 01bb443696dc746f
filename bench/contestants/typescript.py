"""The official TypeScript SDK for ACP, run by the pinned node: what most editors and agents use.

Starts its two programs in `ts`. node cannot choose its processor, so this process does it before it
becomes node. scripts/peers installs the SDK and node in a cache outside the checkout. Without them,
this contestant is left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.measure import places

PROGRAMS = Path(__file__).parent / "ts"

MODULE = "dist/v1/stable/acp.js"


def command(program: str, *arguments: str) -> list[str]:
    """The command line of one of the two programs."""
    # Not at the top: benchmarks without this contestant do not need it.
    from scripts.peers import install

    sdk = install.pins()["acp-sdk"].module / MODULE
    return [str(install.node()), "--expose-gc", str(PROGRAMS / program), str(sdk), *arguments]


def is_installed() -> bool:
    from scripts.peers import install

    return install.pins()["acp-sdk"].folder.is_dir() and install.node().exists()


def main() -> None:
    if sys.argv[1] == "agent":
        argv = command("agent.mjs")
    else:
        work, size, placement, *agent = sys.argv[2:]
        if (both := places(placement)) is not None:
            ours, theirs = both
            os.sched_setaffinity(0, {ours})
            move = f"import os, sys; os.sched_setaffinity(0, {{{theirs}}}); "
            move += "os.execv(sys.argv[1], sys.argv[1:])"
            agent = [sys.executable, "-c", move, *agent]
        argv = command("client.mjs", work, size, *agent)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
