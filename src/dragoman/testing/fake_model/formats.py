"""Shared parts of the wire formats of the model APIs.

Defines the interface of a format and of a piece of a streamed answer. The formats are in `chat`,
`responses`, `messages` and `gemini`, and `server` chooses one by the request's path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dragoman.testing.fake_model.triggers import Asked, Reply


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a streamed answer."""

    data: bytes
    text: bool = False
    """Whether the piece is a chunk of text. Only such pieces are delayed or held."""


class Format(Protocol):
    """One wire format. It is stateless: `id` distinguishes the answers."""

    def read(self, body: dict[str, Any], path: str) -> Asked:
        """Parse a request."""

    def stream(self, reply: Reply, asked: Asked, id: str) -> Iterator[Piece]:
        """Return the answer as a stream of pieces."""

    def whole(self, reply: Reply, asked: Asked, id: str) -> Any:
        """Return the complete answer."""

    def error(self, status: int, message: str) -> Any:
        """Return the body of an error."""


def event(data: Any, name: str | None = None, *, text: bool = False) -> Piece:
    """Return a server-sent event as a piece of an answer."""
    head = f"event: {name}\n" if name else ""
    return Piece(f"{head}data: {json.dumps(data)}\n\n".encode(), text)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list of a request; other items are ignored."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item


def texts(content: Any) -> list[str]:
    """Return the texts of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in objects(content) if isinstance(part.get("text"), str)]


def said(content: Any) -> str:
    """Return a tool's result as one text."""
    found = texts(content)
    return "\n".join(found) if found or content is None else json.dumps(content)


def usage_of(asked: Asked, reply: Reply) -> tuple[int, int]:
    """Return the token counts of the question and the answer: the words of the question, and the
    `words` of the reply."""
    return len(asked.text.split()), reply.words


def schema_of(wanted: Any, *path: str) -> dict[str, Any] | None:
    """Return the JSON schema that an answer in the format `wanted` must fit: the object at `path`
    in `wanted`, or a schema for any object if there is none. None if no JSON is requested."""
    if not isinstance(wanted, dict) or wanted.get("type") not in ("json_schema", "json_object"):
        return None
    found: Any = wanted
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {"type": "object"}


def dict_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
