"""The command `dragoman`. It parses, calls the hub, and prints; it decides nothing.

Only the command that runs is imported, so that `dragoman --help` loads neither an event loop nor a
protocol.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process."""
    try:
        from dragoman.cli.streams import prepare

        prepare()
        from dragoman.cli.app import run

        run()
    except KeyboardInterrupt:
        # It came while modules were still being loaded, so there is nothing to end or to show.
        sys.exit(130)


__all__ = ["main"]
