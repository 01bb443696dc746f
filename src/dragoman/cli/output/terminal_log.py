"""Escape log records on their way to stderr.

Separate from `cli.entry`, because `--help` does not need `logging`, which takes milliseconds to
load.
"""

from __future__ import annotations

import logging
import sys

from dragoman.cli.output.terminal import put_err


class TerminalLog(logging.Handler):
    """Writes escaped log records to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            put_err(self.format(record) + "\n")
            sys.stderr.flush()
        except OSError:
            pass  # A failure to log must not end the command.
        except ValueError:
            self.handleError(record)


def install() -> None:
    """Make `TerminalLog` the handler of last resort of `logging`: it gets the warnings and errors
    for which no other handler is set up."""
    logging.lastResort = TerminalLog(logging.WARNING)
