"""The official TypeScript SDK for ACP, run by the pinned node: what most editors and agents use.

Owns how its two programs in `ts` are started, and where: node cannot choose its processor, so it is
chosen here before this process becomes node. The SDK and node are installed by scripts/peers, in a
cache outside the checkout; without them this contestant does not take part.
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
    # Not at the top: a bench without this contestant needs no peers.
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
