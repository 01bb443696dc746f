"""What events are made of."""

from __future__ import annotations

from typing import get_args

import msgspec

from dragoman.events import parts


def test_every_kind_of_content_is_read_back_as_itself() -> None:
    blocks: list[parts.Block] = [
        parts.Text("t"),
        parts.Image("d", "image/png"),
        parts.Audio("d", "audio/wav"),
        parts.Link("file:///a", "a"),
        parts.Resource("file:///a", text="t"),
        parts.OtherBlock("odd", {"x": [1]}),
    ]
    assert {type(block) for block in blocks} == set(get_args(parts.Block))
    data = msgspec.json.encode(blocks)
    assert msgspec.json.decode(data, type=list[parts.Block]) == blocks


def test_usage_that_was_not_told_is_not_zero() -> None:
    usage = parts.Usage(input_tokens=0)
    assert (usage.input_tokens, usage.output_tokens) == (0, None)


def test_a_capability_is_absent_unless_it_is_named() -> None:
    able = parts.Capabilities()
    assert not any(getattr(able, field.name) for field in msgspec.structs.fields(able))
