"""Tests of tool calls as they are reported."""

from __future__ import annotations

import json

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


def test_each_content_has_its_type() -> None:
    update = v1.convert(samples.TOOL_UPDATE, v1.ToolCallUpdate)
    assert update.content is not None
    assert [type(item) for item in update.content] == [v1.Content, v1.Diff, v1.Diff, v1.Terminal]


def test_an_empty_list_replaces_and_none_leaves() -> None:
    update = v1.decode(b'{"toolCallId":"c","content":[],"locations":null}', v1.ToolCallUpdate)
    assert update.content == []
    assert update.locations is None
    assert v1.encode(update) == b'{"toolCallId":"c","content":[]}'


def test_unknown_kinds_and_statuses_survive() -> None:
    data = b'{"toolCallId":"c","kind":"teleport","status":"paused"}'
    update = v1.decode(data, v1.ToolCallUpdate)
    assert (update.kind, update.status) == ("teleport", "paused")
    assert v1.encode(update) == data


def test_known_kinds_compare_equal_to_their_text() -> None:
    update = v1.decode(b'{"toolCallId":"c","kind":"execute","status":"failed"}', v1.ToolCallUpdate)
    assert update.kind == v1.ToolKind.EXECUTE
    assert update.status == v1.ToolCallStatus.FAILED


def test_a_diff_without_old_text_is_a_new_file() -> None:
    diff = v1.decode(b'{"type":"diff","path":"/a","oldText":null,"newText":""}', v1.Diff)
    assert diff.old_text is None
    assert json.loads(v1.encode(diff)) == {"type": "diff", "path": "/a", "newText": ""}


def test_raw_input_may_be_anything() -> None:
    for value in (False, 0, "", [1], {"a": None}):
        message = {"toolCallId": "c", "rawInput": value}
        update = v1.convert(message, v1.ToolCallUpdate)
        assert update.raw_input == value
        assert json.loads(v1.encode(update)) == message
