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


def test_the_answer_is_nested() -> None:
    assert v1.encode(v1.selected("proceed_once")) == (
        b'{"outcome":{"outcome":"selected","optionId":"proceed_once"}}'
    )
    assert v1.encode(v1.cancelled()) == b'{"outcome":{"outcome":"cancelled"}}'


def test_the_tool_call_in_a_request_has_no_tag() -> None:
    request = v1.RequestPermissionRequest(
        session_id="s",
        tool_call=v1.ToolCallUpdate(tool_call_id="c"),
        options=[v1.PermissionOption(option_id="o", name="n", kind="allow_once")],
    )
    assert json.loads(v1.encode(request))["toolCall"] == {"toolCallId": "c"}


def test_an_option_of_an_unknown_kind_survives() -> None:
    message = {
        "sessionId": "s",
        "toolCall": samples.TOOL_UPDATE,
        "options": [{"optionId": "o", "name": "n", "kind": "allow_on_tuesdays"}],
    }
    request = v1.decode(json.dumps(message).encode(), v1.RequestPermissionRequest)
    assert request.options[0].kind == "allow_on_tuesdays"
    assert request.options[0].kind not in set(v1.PermissionOptionKind)
    assert json.loads(v1.encode(request)) == message


def test_a_malformed_option_fails_the_request() -> None:
    message = {"sessionId": "s", "toolCall": samples.TOOL_UPDATE, "options": [{"name": "n"}]}
    with pytest.raises(msgspec.ValidationError, match=r"\$\.options\[0\]"):
        v1.decode(json.dumps(message).encode(), v1.RequestPermissionRequest)


def test_an_unknown_outcome_is_kept_and_is_not_a_choice() -> None:
    data = b'{"outcome":{"outcome":"deferred","optionId":"proceed_once"}}'
    response = v1.decode(data, v1.RequestPermissionResponse)
    assert isinstance(response.outcome, v1.UnknownPermissionOutcome)
    assert v1.encode(response) == data


def test_a_choice_without_an_option_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="`optionId`"):
        v1.decode(b'{"outcome":{"outcome":"selected"}}', v1.RequestPermissionResponse)
