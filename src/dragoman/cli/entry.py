"""Run one command line and turn errors into messages and exit codes.

`cli.prompt_options` parses plain `dragoman run` lines without typer, `cli.app` everything else. The
message texts are in `cli.error_messages`. `prepare` makes stdin, stdout and stderr usable at
startup, and `leave` ends the process without the interpreter's teardown. `cli.output`
writes the output.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NoReturn, TextIO

from dragoman.cli.output.terminal import put, put_err
from dragoman.errors import DragomanError, UsageError
from dragoman.errors.usage import shown

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""Error codes for output that cannot be written, for example to a full disk."""

TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)
"""Error codes for too many open files, in this process or on the machine."""


def run(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command line (default: that of this process), and exit with its exit code. Errors are
    reported on stderr; an unexpected exception is raised again."""
    try:
        _call(argv)
    except DragomanError as error:
        code = _refuse(error)
    except UnicodeEncodeError as error:
        if not _is_surrogate(error):
            _own_fault()
            raise
        # Arguments and paths are checked where they are used. This catches everything else, such as
        # the current directory.
        text = f"a path or argument is not UTF-8 text: {shown(str(error.object))}"
        code = _refuse(UsageError(text))
    except KeyboardInterrupt:
        code = 130
    except SystemExit:
        unwritten = _unwritten()
        if unwritten is None:
            raise
        code = 1
        _tell(f"dragoman: the output cannot be written: {unwritten.strerror}\n")
    except BrokenPipeError:
        # The reader closed the pipe of stdout: stop without a message.
        _unwritten()
        _tell("")
        code = 1
    except OSError as error:
        if error.errno in FULL:
            _unwritten()
            _tell(f"dragoman: the output cannot be written: {error.strerror}\n")
            code = 1
        elif error.errno in TOO_MANY:
            # Even a module cannot be loaded now, so this does not use `error_messages`.
            _tell(f"dragoman: no file can be opened: {error.strerror}; see `ulimit -n`\n")
            code = 1
        elif isinstance(error, FileNotFoundError) and _homeless():
            gone = "the current directory no longer exists: it was deleted or moved"
            code = _refuse(UsageError(gone))
        else:
            _own_fault()
            raise
    except BaseException:
        _own_fault()
        raise
    sys.exit(code)


def _call(argv: Sequence[str] | None) -> NoReturn:
    """Run one command line and exit. With `--json-strict`, an error is printed as a JSON line of
    type `Error`; otherwise it is raised."""
    try:
        _dispatch(argv)
    except DragomanError as error:
        from dragoman.cli import error_messages

        if not error_messages.in_json(sys.argv[1:] if argv is None else argv):
            raise
        from dragoman.cli.output.jsonl import JsonLines

        JsonLines(strict=True).failed(error)
        sys.exit(int(error_messages.exit_code(error)))


def _dispatch(argv: Sequence[str] | None) -> NoReturn:
    from dragoman.cli.prompt_options import parse_run

    words = sys.argv[1:] if argv is None else argv
    if any(word.startswith(("--host", "--send", "--fetch")) for word in words):
        from dragoman.cli.host_option import placed

        # Commands for another machine's dragoman are run there and exit here.
        words = argv = placed(words, _call)
    given = parse_run(words)
    if given is None:
        from dragoman.cli.app import call

        call(argv)
    from dragoman.cli.output import terminal_log
    from dragoman.cli.run_prompt import run as run_turn

    terminal_log.install()
    sys.exit(run_turn(**given))


def _refuse(error: DragomanError) -> int:
    from dragoman.cli import error_messages

    _tell(error_messages.message(error))
    return int(error_messages.exit_code(error))


def _is_surrogate(error: UnicodeEncodeError) -> bool:
    """Return whether the first character that cannot be encoded stands for a byte that was not
    valid UTF-8."""
    return "\udc80" <= error.object[error.start] <= "\udcff"


def _homeless() -> bool:
    """Return whether the current directory no longer exists, so that paths cannot be resolved."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _unwritten() -> OSError | None:
    """Flush stdout. Returns the error if that fails; None if it succeeds, or if it fails only
    because the reader has closed the pipe.

    Without this, the interpreter would flush at exit and change the exit code.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        from dragoman.cli.output.terminal import silence

        silence(sys.stdout)
        # A closed pipe needs no message.
        return None if isinstance(error, BrokenPipeError) else error
    return None


def _own_fault() -> None:
    _tell(
        "dragoman: this is a bug in dragoman. Please report the following together "
        "with the output of `dragoman doctor --report`.\n"
    )
    # The error may quote text from a peer or a file.
    sys.excepthook = _neutral_traceback


def _neutral_traceback(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    from traceback import format_exception

    _tell("".join(format_exception(kind, error, traceback)))


def _tell(text: str) -> None:
    """Write to stderr if possible; the exit code does not depend on it."""
    from dragoman.cli.output.terminal import put_err

    try:
        put_err(text)
        sys.stderr.flush()
    except OSError:
        from dragoman.cli.output.terminal import silence

        silence(sys.stderr)


# -- the streams of the process

NAMES: Final = ("stdin", "stdout", "stderr")


def prepare() -> None:
    """Make the standard streams of this process usable, however it was started, and escape what
    Python itself prints to stderr."""
    for number, name in enumerate(NAMES):
        stream = getattr(sys, name)
        if stream is None:
            _open_nowhere(number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            # Invalid UTF-8 is rejected where it is used, with a message that names it.
            stream.reconfigure(errors="backslashreplace" if number else "surrogateescape")
    _escape_messages()


def _open_nowhere(number: int) -> None:
    """Open /dev/null in place of a closed stream.

    Otherwise an agent's pipe may get the descriptor of the stream, and what is written to the
    stream would go to the agent.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(nowhere, number)
        os.close(nowhere)


def leave(code: int) -> None:
    """Flush all output and exit without the interpreter's teardown, which takes a fifth of a short
    command's time; exit handlers are called. Returns if another thread still works or the output
    cannot be flushed."""
    if threading.active_count() > 1:
        from dragoman.rpc.tasks import THREAD_NAME

        # Threads for file access may be abandoned: they are idle, or hang in a system call.
        known = (threading.main_thread().name, THREAD_NAME)
        if any(thread.name not in known for thread in threading.enumerate()):
            return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    # Exit handlers still run.
    atexit._run_exitfuncs()
    os._exit(code)


def _escape_messages() -> None:
    """Escape what Python itself prints to stderr: warnings, errors in threads and finalizers.

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
    from traceback import format_exception  # Most commands need no logging.

    return "" if error is None else "".join(format_exception(error))
