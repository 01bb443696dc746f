"""JSON output for programs: one object with a `type` per line.

The format is documented in docs/reference/cli-json.md; fields are only added. Events are those of
`events.model` without the raw message (``--trace`` has it), followed by one `Result`, or one
`Error` if there was no turn.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from dragoman.cli import error_messages
from dragoman.cli.output.escape import HIDDEN
from dragoman.cli.output.renderer import PassedVariables, Renderer, TurnReport, cut_notice
from dragoman.cli.output.terminal import put_data

if TYPE_CHECKING:
    from dragoman.errors import DragomanError
    from dragoman.events import model

_encoder = msgspec.json.Encoder(enc_hook=str)


def _pair(code: int) -> list[int]:
    """Return the surrogate pair with which JSON escapes this code point."""
    high, low = divmod(code - 0x10000, 0x400)
    return [0xD800 + high, 0xDC00 + low]


_OBEYED: Final = {
    code: "".join(f"\\u{unit:04x}" for unit in units)
    for code in HIDDEN
    for units in [[code] if code < 0x10000 else _pair(code)]
}
"""Escapes for the characters that terminals hide or interpret, but JSON does not escape."""


def escaped(text: str) -> str:
    """Escape everything in JSON text that a terminal hides or interprets.

    The decoded value stays the same.
    """
    return text.translate(_OBEYED)


def encode(value: Any, stream: TextIO) -> str:
    """Encode a value as a JSON line that the stream can encode and that is safe on a terminal."""
    text = escaped(_encoder.encode(value).decode())
    if not text.isascii() and (stream.encoding or "utf-8").lower().replace("-", "") != "utf8":
        import json

        text = json.dumps(json.loads(text), separators=(",", ":"))
    return text + "\n"


def write_json(value: Any, *, stream: TextIO | None = None) -> None:
    """Write one value as one line to `stream` (default: stdout)."""
    stream = stream or sys.stdout
    put_data(stream, encode(value, stream))
    # Flush each line: readers need it now, not when a buffer is full.
    stream.flush()


def of_event(event: model.Event) -> dict[str, Any]:
    """Return an event as a JSON object, without its raw message."""
    told: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    del told["raw"]
    return told


def of_error(
    error: DragomanError,
    *,
    peer: str = "",
    login: str = "",
    passed: PassedVariables | None = None,
) -> dict[str, Any]:
    """Return an error as a JSON object, with the same advice as in text output."""
    return {
        "type": "Error",
        "error": error.error_class,
        "message": str(error),
        "whose_fault": error_messages.whose(error),
        "what_next": error_messages.advice(error, peer=peer, login=login, passed=passed),
        "retryable": error.retryable,
        "may_have_run": error.may_have_run,
        "exit_code": int(error_messages.exit_code(error)),
        "stderr_tail": getattr(error, "stderr_tail", "") or None,
    }


def of_report(report: TurnReport) -> dict[str, Any]:
    """Return the result of a turn as a JSON object."""
    result = report.result
    return {
        "type": "Result",
        "outcome": result.outcome,
        "exit_code": report.exit_code,
        "interrupted": report.interrupted,
        "text": result.text,
        "truncated": result.truncated,
        "stop": result.stop,
        "failure": result.failure,
        "error": None if result.error is None else of_error(result.error),
        "denials": result.denials,
        "approvals": result.approvals,
        "unenforced": report.unenforced or None,
        "violations": list(report.violations),
        "usage": result.usage,
        "seconds": round(report.seconds, 3),
        "peer": report.peer,
        "session": report.session,
        "model": report.model,
        "mode": report.mode,
        "job": report.job,
        "session_key": report.session_key,
        "context": report.context,
        "ignored_mcp_servers": list(report.ignored_servers),
    }


class JsonLines(Renderer):
    """Prints every event as a JSON line, then the result or the error. If `strict` is set, nothing
    is written to stderr."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, *, strict: bool = False
    ) -> None:
        super().__init__(out, err)
        self.strict = strict

    def event(self, event: model.Event) -> None:
        self.line(of_event(event))

    def began(self, job: str, session_key: str) -> None:
        self.line({"type": "JobBegun", "job": job, "session_key": session_key})

    def submitted(self, job: str, session_key: str) -> None:
        self.line({"type": "JobSubmitted", "job": job, "session_key": session_key})
        self.flush()

    def ended(self, report: TurnReport) -> None:
        self.line(of_report(report))
        self.flush()
        if report.result.truncated:
            self.notice(cut_notice(report))
        if not self.strict:
            self.write_failure(report)

    def failed(self, error: DragomanError) -> None:
        self.line(of_error(error, peer=self.peer, login=self.login, passed=self.passed))
        self.flush()
        if not self.strict:
            self.write_error(error)

    def stderr_line(self, line: str) -> None:
        if not self.strict:
            super().stderr_line(line)

    def notice(self, text: str) -> None:
        if not self.strict:
            super().notice(text)

    def line(self, value: dict[str, Any]) -> None:
        self.write_data(encode(value, self.out))
