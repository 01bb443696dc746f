"""Stored sessions, shown and moved: what `dragoman sessions` does without any peer.

Owns the reading and writing of exported files, the show of what is stored, and the question before
old sessions go. What is stored, and how, is `dragoman.hub.sessions`'s business.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.options import Format
from dragoman.cli.output.showing import Show
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.hub.sessions import SessionRecord, Store


def show(store: Store, record: SessionRecord, format: Format, *, verbose: bool = False) -> None:
    """Show all that happened in a session."""
    from dragoman.hub.sessions.history import history

    stage = show_for(format, verbose=verbose)
    for event in history(store, record.key):
        stage.event(event)
        if stage.broken:
            return
    stage.flush()


def show_for(format: Format, *, verbose: bool = False) -> Show:
    """The show of what somebody else asked for, or that is over."""
    if format is Format.JSON:
        from dragoman.cli.output.jsonl import JsonLines

        return JsonLines()
    from dragoman.cli.output.past import Answers, Past

    return Past(verbose=verbose) if format is Format.TEXT else Answers()


def write_lines(lines: Iterable[bytes], output: Path | None) -> None:
    """Write lines to a file that is there as a whole or not at all, or to stdout."""
    if output is None:
        for line in lines:
            sys.stdout.write(line.decode() + "\n")
        return
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        # What was said to an agent is nobody else's business.
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for line in lines:
                file.write(line + b"\n")
        os.replace(unfinished, output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def read_lines(file: Path) -> Iterator[bytes]:
    """The lines of a file; ``-`` is stdin."""
    try:
        if str(file) == "-":
            yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
            return
        with file.open("rb") as opened:
            yield from (line.rstrip(b"\r\n") for line in opened)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def prune(store: Store, older_than: str, *, keep: int, yes: bool, format: Format) -> None:
    """Delete old sessions, after a question that says how many."""
    from dragoman.cli.output.jsonl import write_json
    from dragoman.cli.output.questions import confirm
    from dragoman.cli.output.times import seconds_of

    if keep < 0:
        raise UsageError("--keep is a number of sessions")
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
    if format is Format.JSON:
        counts = {"sessions": gone.sessions, "jobs": gone.jobs, "events": gone.events}
        write_json({"type": "Pruned", **counts, "keys": list(gone.keys)})
    elif format is Format.TEXT:
        sys.stdout.write(f"{gone.sessions} sessions and {gone.jobs} jobs were deleted\n")
