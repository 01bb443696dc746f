"""Convert a prompt's blocks to the input of a Codex turn.

`turn` sends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from dragoman.errors import Unsupported
from dragoman.events.parts import Audio, Block, Image, Link, OtherBlock, Resource, Text


def input_of(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """The blocks of a prompt in the server's format. Raises `Unsupported` for other content."""
    return [_input(block) for block in blocks]


def _input(block: Block) -> dict[str, Any]:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=data, mime_type=mime_type):
            return {"type": "image", "url": f"data:{mime_type};base64,{data}"}
        case Audio(data=data, mime_type=mime_type):
            return {"type": "audio", "url": f"data:{mime_type};base64,{data}"}
        case Link(uri=uri, name=name):
            if uri.startswith("file://"):
                return {"type": "mention", "name": name, "path": unquote(urlsplit(uri).path)}
            return {"type": "text", "text": f"[{name}]({uri})"}
        case Resource(uri=uri, text=text):
            if text is None:
                raise Unsupported("Codex accepts no embedded bytes except images and audio")
            return {"type": "text", "text": f"<context uri={uri!r}>\n{text}\n</context>"}
        case OtherBlock(value=value) if isinstance(value, dict):
            return value
        case _:
            raise Unsupported(f"Codex does not accept this in a prompt: {type(block).__name__}")
