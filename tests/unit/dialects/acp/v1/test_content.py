"""Tests of content blocks."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


def test_each_block_has_its_type() -> None:
    kinds = [type(v1.convert(block, v1.ContentBlock)).__name__ for block in samples.BLOCKS]
    assert kinds == [
        "TextContent",
        "TextContent",
        "ImageContent",
        "AudioContent",
        "ResourceLink",
        "EmbeddedResource",
        "EmbeddedResource",
    ]


def test_a_text_block_is_made_in_one_word() -> None:
    assert v1.encode(v1.text("x")) == b'{"type":"text","text":"x"}'


def test_an_unknown_block_is_kept_whole() -> None:
    block = {"type": "hologram", "text": 7, "_meta": {"a": 1}}
    decoded = v1.decode(json.dumps(block).encode(), v1.ContentBlock)
    assert decoded == v1.UnknownContent(raw=block)
    assert json.loads(v1.encode(decoded)) == block


@pytest.mark.parametrize("resource", samples.BLOCKS[-2:])
def test_a_resource_is_text_or_blob(resource: dict[str, object]) -> None:
    block = v1.convert(resource, v1.EmbeddedResource)
    expected = (
        v1.TextResourceContents if resource is samples.TEXT_RESOURCE else v1.BlobResourceContents
    )
    assert type(block.resource) is expected


def test_a_resource_with_text_and_blob_is_text() -> None:
    data = b'{"uri":"u","text":"t","blob":"aGk="}'
    contents = v1.decode(data, v1.EmbeddedResourceResource)
    assert contents == v1.TextResourceContents(uri="u", text="t", extra={"blob": "aGk="})


def test_a_resource_with_neither_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"`text` - at `\$\.resource`"):
        v1.decode(b'{"type":"resource","resource":{"uri":"u"}}', v1.ContentBlock)


def test_an_unknown_audience_survives() -> None:
    annotations = v1.decode(b'{"audience":["robot"]}', v1.Annotations)
    assert annotations.audience == ["robot"]
    assert "robot" not in set(v1.Role)
