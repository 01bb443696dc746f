"""Secrets that come in pieces."""

from __future__ import annotations

from dragoman.hub.sessions.redacting import Redactor


class LineRedactor:
    """Takes secrets out of the lines of one session."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact

    def feed(self, line: bytes) -> list[bytes]:
        return [self._redact.line(line)]

    def flush(self) -> list[bytes]:
        return []
