"""Prepare stdin, stdout and stderr of the process at startup, and flush them at exit.

A closed stream is opened on the null device, and characters that the encoding lacks never raise.
What Python itself prints to stderr is escaped; log records are handled in `output.terminal_log`,
errors that end a command in `cli.entry`. `leave` ends the process without the interpreter's
teardown. Writing is in `cli.output`.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
import warnings
from typing import Final, TextIO

from dragoman.cli.output.terminal import put, put_err

NAMES: Final = ("stdin", "stdout", "stderr")


def prepare() -> None:
    """Make the streams of this process usable, whoever started it."""
    for number, name in enumerate(NAMES):
        stream = getattr(sys, name)
        if stream is None:
            _open_nowhere(number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            # What is no text is refused where it is used, with words that name it.
            stream.reconfigure(errors="backslashreplace" if number else "surrogateescape")
    _escape_messages()


def _open_nowhere(number: int) -> None:
    """Take the number of a closed stream: else the pipe of an agent may get it, and whatever is
    written to the stream goes to the agent."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(nowhere, number)
        os.close(nowhere)


def leave(code: int) -> None:
    """End the process with everything written, without taking its modules apart one by one: that
    takes as long as a fifth of a short command. Returns where that cannot be done safely."""
    if threading.active_count() > 1:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    # What was registered for the end of the process is done all the same.
    atexit._run_exitfuncs()
    os._exit(code)


def _escape_messages() -> None:
    """Escape what Python prints to stderr: warnings, errors of threads and finalizers.

    They may quote a peer, a file or a variable.
    """
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
