"""The `dragoman` command line: entry point of the process.

Commands parse, call `runs`, `delegation` or `setup`, and print. Only the module of the command that
runs is imported, so `dragoman --help` loads neither an event loop nor a protocol.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

COLLECT_AFTER: Final = 100_000
"""New objects between two searches for garbage. Loading modules makes many and leaves none behind;
with Python's own number a tenth of the start of a command is spent on searching. One prompt through
a broker makes fifty thousand, so a command of that kind ends without a search."""


def main() -> None:
    """Run the command line of this process."""
    gc.set_threshold(COLLECT_AFTER)
    try:
        from dragoman.cli.entry import leave, prepare, run

        prepare()
        run()
    except KeyboardInterrupt:
        # It came while modules were still being loaded, so there is nothing to end or to show.
        sys.exit(130)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            leave(ended.code or 0)
        raise


__all__ = ["main"]
