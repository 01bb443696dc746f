"""What becomes of content that a dialect has no block for."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.legacy.content import prompt_blocks, servers
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.legacy import keyed, oneshot, tagged
from dragoman.errors import Unsupported
from dragoman.events.parts import (
    Audio,
    Block,
    Capabilities,
    Image,
    Link,
    OtherBlock,
    Resource,
    Text,
)

NOTHING = Capabilities()
IMAGES = Capabilities(image=True)
CANNOT_TELL = Capabilities(image=None, audio=None, embedded=None)


def test_text_stays_and_addresses_and_texts_become_text() -> None:
    blocks: list[Block] = [Text("a"), Link("file:///b", "b"), Resource("file:///c", "see")]
    fitting = prompt_blocks(blocks, oneshot.ClientEnd(), NOTHING)
    assert fitting == [
        Text("a"),
        Text("[b](file:///b)"),
        Text("<context uri='file:///c'>\nsee\n</context>"),
    ]


@pytest.mark.parametrize(
    "block",
    [Image("x", "image/png"), Audio("x", "audio/wav"), Resource("u", blob="x"), OtherBlock("y", 1)],
)
def test_what_cannot_be_said_is_refused(block: Block) -> None:
    with pytest.raises(Unsupported):
        prompt_blocks([block], oneshot.ClientEnd(), NOTHING)


def test_an_image_needs_an_agent_that_takes_images() -> None:
    image = Image("x", "image/png")
    assert prompt_blocks([image], tagged.ClientEnd(), IMAGES) == [image]
    with pytest.raises(Unsupported):
        prompt_blocks([image], tagged.ClientEnd(), NOTHING)


def test_if_it_is_unknown_it_is_tried() -> None:
    blocks: list[Block] = [
        Image("x", "image/png"),
        Audio("x", "audio/wav"),
        Resource("u", blob="x"),
        Link("u", "n"),
    ]
    assert prompt_blocks(blocks, keyed.ClientEnd(), CANNOT_TELL) == blocks


def test_servers_are_local_or_remote() -> None:
    local = {"type": "local", "command": "x"}
    given: list[Any] = [
        acp.McpServerStdio(
            name="f", command="c", args=["-v"], env=[acp.EnvVariable(name="A", value="1")]
        ),
        acp.McpServerHttp(name="h", url="u", headers=[acp.HttpHeader(name="X", value="2")]),
        local,
    ]
    assert servers(given) == [
        {"type": "local", "command": "c", "args": ["-v"], "environment": {"A": "1"}},
        {"type": "remote", "url": "u", "headers": {"X": "2"}},
        local,
    ]
    with pytest.raises(Unsupported, match="given as str"):
        servers(["mcp-files"])


def test_the_refusal_of_a_server_shows_no_secret_of_it() -> None:
    with pytest.raises(Unsupported, match="given as dict") as refused:
        servers([{"command": "x", "env": {"TOKEN": "secret"}}])
    assert "secret" not in str(refused.value)
