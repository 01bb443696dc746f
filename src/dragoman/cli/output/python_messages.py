"""Escape what Python prints to stderr: warnings, errors of threads and finalizers.

They may quote a peer, a file or a variable. Log records are handled in `terminal_log`, errors that
end a command in `cli.entry`.
"""

from __future__ import annotations

import sys
import threading
import warnings
from typing import TextIO

from dragoman.cli.output.terminal import put, put_err


def install() -> None:
    """Take over from Python, for the rest of this process."""
    warnings.showwarning = _warn
    threading.excepthook = _thread_failed
    sys.unraisablehook = _unraisable


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    text = warnings.formatwarning(message, category, filename, lineno, line)
    put(file or sys.stderr, text)


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        name = args.thread.name if args.thread is not None else "a thread"
        put_err(f"error in {name}:\n", _formatted(args.exc_value))


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    put_err(f"{args.err_msg or 'error ignored in'}: {args.object!r}\n", _formatted(args.exc_value))


def _formatted(error: BaseException | None) -> str:
    from traceback import format_exception  # Most commands need none.

    return "" if error is None else "".join(format_exception(error))
