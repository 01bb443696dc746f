"""Show, export and prune stored sessions without contacting a peer.

Used by `dragoman sessions`. `store` reads and writes the database.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.output.escape import neutral
from dragoman.cli.output.jsonl import escaped
from dragoman.cli.output.renderer import Renderer
from dragoman.cli.output.terminal import is_terminal, put_data, put_out
from dragoman.cli.shared_options import ListFormat
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.store import SessionRecord, Store


def show(store: Store, record: SessionRecord, format: ListFormat, *, verbose: bool = False) -> None:
    """Show all stored events of a session; with `verbose`, in full."""
    from dragoman.store.history import history

    renderer = show_for(format, verbose=verbose)
    for event in history(store, record.key):
        renderer.event(event)
        if renderer.broken:
            return
    renderer.flush()


def show_for(format: ListFormat, *, verbose: bool = False) -> Renderer:
    """Return the renderer for turns that another command runs, or that have ended."""
    if format is ListFormat.JSON:
        from dragoman.cli.output.jsonl import JsonLines

        return JsonLines()
    from dragoman.cli.output.history_view import Answers, HistoryView

    return HistoryView(verbose=verbose) if format is ListFormat.TEXT else Answers()


def write_lines(lines: Iterable[bytes], output: Path | None, *, force: bool = False) -> None:
    """Write lines to the file `output`, or to stdout if it is None or names stdout. `force`
    overwrites an existing file. On a terminal, control characters are escaped."""
    if output is None or _is_stdout(output):
        for line in lines:
            text = line.decode() + "\n"
            put_data(sys.stdout, escaped(text) if is_terminal(sys.stdout) else text)
        return
    from dragoman.config.safe_files import export_file

    if _is_screen(output):
        lines = (neutral(escaped(line.decode())).encode() for line in lines)
    export_file(output, (line + b"\n" for line in lines), replace=force)


def _is_screen(output: Path) -> bool:
    """Return whether a file is a terminal, such as /dev/tty."""
    try:
        if not stat.S_ISCHR(os.stat(output).st_mode):
            return False
        fd = os.open(output, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
    except (OSError, ValueError):
        return False
    try:
        return os.isatty(fd)
    finally:
        os.close(fd)


def _is_stdout(output: Path) -> bool:
    """Return whether a path means stdout: ``-``, another name such as /dev/stdout, or the file that
    stdout is redirected to, which must not be replaced."""
    if str(output) == "-":
        return True
    try:
        return os.path.samestat(os.stat(output), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


def prune(store: Store, older_than: str, *, keep: int, yes: bool, format: ListFormat) -> None:
    """Delete sessions that have not been used for the time `older_than`, except the latest `keep`,
    and print how many. Asks for confirmation first, unless `yes` is set. Raises `UsageError` for an
    invalid value."""
    from dragoman.cli.output.jsonl import write_json
    from dragoman.cli.output.questions import confirm
    from dragoman.cli.output.times import seconds_of

    if keep < 0:
        raise UsageError(f"--keep must be at least 0, not {keep}")
    age = seconds_of(older_than, option="--older-than")
    found = store.prune(age, keep, dry_run=True)
    gone = found
    if (found.sessions or found.jobs) and (
        yes
        or confirm(
            f"Delete {found.sessions} sessions with {found.jobs} jobs and {found.events} events?",
            instead="--yes",
        )
    ):
        gone = store.prune(age, keep)
    elif found.sessions or found.jobs:
        gone = type(found)()
    if format is ListFormat.JSON:
        counts = {"sessions": gone.sessions, "jobs": gone.jobs, "events": gone.events}
        write_json({"type": "Pruned", **counts, "keys": list(gone.keys)})
    elif format is ListFormat.TEXT:
        put_out(f"sessions deleted: {gone.sessions}, jobs deleted: {gone.jobs}\n")
