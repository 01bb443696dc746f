"""What may not reach the disk, taken out of texts and of lines of JSON.

Owns the search for secrets: values of credential variables in every form in which they may stand
in a text, and what looks like a secret. What looks like one is decided where it always was, in
`dragoman.hub.redaction` and `dragoman.rpc.trace`. It knows one text at a time; a secret that comes
in pieces is the business of `runs`.
"""

from __future__ import annotations

from collections.abc import Iterable


class Redactor:
    """Takes secrets out."""

    def __init__(self, environ_values: Iterable[str] = ()) -> None:
        self._values = tuple(environ_values)

    def text(self, text: str) -> str:
        return text

    def line(self, line: bytes) -> bytes:
        return line
