"""The `dragoman` command line: the entry point of the process.

A command parses its options, calls other packages, such as `runs`, `delegation` or `setup`, and
prints the result. Only the module of the command that runs is imported, so `dragoman --help` loads
neither an event loop nor a protocol.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

COLLECT_AFTER: Final = 100_000
"""Number of allocated objects after which garbage is collected. Importing modules allocates many
objects and leaves no garbage; with Python's default threshold, a tenth of a command's startup time
is spent in the collector. One prompt through a broker allocates fifty thousand objects, so such a
command ends without a collection."""


def main() -> None:
    """Run the command line of this process, and exit with its exit code."""
    gc.set_threshold(COLLECT_AFTER)
    try:
        from dragoman.cli.entry import leave, prepare, run

        prepare()
        run()
    except KeyboardInterrupt:
        # Interrupted while modules were still loading: there is nothing to clean up or report.
        sys.exit(130)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            leave(ended.code or 0)
        raise


__all__ = ["main"]
