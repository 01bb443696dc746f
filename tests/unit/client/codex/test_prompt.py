"""What a prompt looks like on the wire."""

from __future__ import annotations

import pytest

from dragoman.client.codex.prompt import input_of
from dragoman.errors import Unsupported
from dragoman.events.parts import Audio, Block, Image, Link, OtherBlock, Resource, Text


@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (Text("hi"), {"type": "text", "text": "hi"}),
        (Image("AA", "image/png"), {"type": "image", "url": "data:image/png;base64,AA"}),
        (Audio("AA", "audio/wav"), {"type": "audio", "url": "data:audio/wav;base64,AA"}),
        (
            Link("file:///a%20b/c.py", "c.py"),
            {"type": "mention", "name": "c.py", "path": "/a b/c.py"},
        ),
        (Link("https://x.org", "x"), {"type": "text", "text": "[x](https://x.org)"}),
        (
            Resource("file:///a", "body"),
            {"type": "text", "text": "<context uri='file:///a'>\nbody\n</context>"},
        ),
        (OtherBlock("skill", {"type": "skill"}), {"type": "skill"}),
    ],
)
def test_every_block_that_codex_takes(block: Block, wire: dict[str, str]) -> None:
    assert input_of([block]) == [wire]


@pytest.mark.parametrize("block", [Resource("file:///a", None, "AA"), OtherBlock("x", 3)])
def test_what_codex_cannot_take_is_refused_before_anything_is_sent(block: Block) -> None:
    with pytest.raises(Unsupported):
        input_of([Text("first"), block])
