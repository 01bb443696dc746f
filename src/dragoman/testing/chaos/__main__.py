"""``python -m dragoman.testing.chaos --fault NAME``: an agent with one fault on stdio.

``--list`` prints the faults. The program ends when its input ends, unless its fault says otherwise,
and always after two minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dragoman.testing.chaos import agent, faults


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dragoman.testing.chaos",
        description="An agent that speaks ACP on stdin and stdout, with one fault.",
        epilog="Example: python -m dragoman.testing.chaos --fault ignores-cancel",
    )
    parser.add_argument("--fault", default=faults.HEALTHY, metavar="NAME", help="the fault")
    parser.add_argument("--list", action="store_true", help="list the faults and do nothing")
    given = parser.parse_args(argv)
    if given.list:
        for name in faults.names():
            sys.stdout.write(f"{name:26} {faults.meaning(name)}\n")
        return 0
    if given.fault not in faults.names():
        parser.error(f"there is no fault {given.fault!r}; --list shows them")
    return agent.main(given.fault)


if __name__ == "__main__":
    sys.exit(main())
