"""Output for programs: one line of JSON for each thing that is told.

Owns the shape of those lines, which is documented in docs/reference/cli-json.md and only grows.
Every line is an object with a `type`. Events are told as they are in `dragoman.events.model`, but
without the raw message (that is what ``--trace`` is for); then comes one `Result`, or one `Error` where no
turn came about.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

if TYPE_CHECKING:
    from dragoman.errors import DragomanError
    from dragoman.events import model

_encoder = msgspec.json.Encoder(enc_hook=str)


def write_json(value: Any, *, stream: TextIO | None = None) -> None:
    """Write one value as one line to `stream`, which is stdout unless told otherwise."""
    stream = stream or sys.stdout
    stream.write(_encoder.encode(value).decode() + "\n")
    # A line is of use when it comes, not when a buffer is full.
    stream.flush()


def of_event(event: model.Event) -> dict[str, Any]:
    """An event as its line."""
    told: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    del told["raw"]
    return told


def of_error(error: DragomanError) -> dict[str, Any]:
    """An error as its line, with the same answers that a person gets."""
    from dragoman.cli import faults

    return {
        "type": "Error",
        "error": error.error_class,
        "message": str(error),
        "whose_fault": faults.whose(error),
        "what_next": faults.advice(error),
        "retryable": error.retryable,
        "may_have_run": error.may_have_run,
        "exit_code": int(faults.exit_code(error)),
    }
