"""Tests of the session methods that clients call."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1 import session


def test_a_new_session_always_says_its_servers() -> None:
    request = v1.NewSessionRequest(cwd="/w", mcp_servers=[])
    assert v1.encode(request) == b'{"cwd":"/w","mcpServers":[]}'
    with pytest.raises(TypeError):
        v1.NewSessionRequest(cwd="/w")  # type: ignore[call-arg]


def test_servers_may_come_as_any_sequence() -> None:
    server = v1.McpServerStdio(name="n", command="/c", args=("-v",), env=())
    request = v1.NewSessionRequest(cwd="/w", mcp_servers=(server,))
    assert json.loads(v1.encode(request))["mcpServers"] == [
        {"name": "n", "command": "/c", "args": ["-v"], "env": []}
    ]


def test_the_last_page_has_no_cursor_whether_absent_or_null() -> None:
    for data in (b'{"sessions":[]}', b'{"sessions":[],"nextCursor":null}'):
        assert v1.decode(data, v1.ListSessionsResponse).next_cursor is None


def test_an_unknown_stop_reason_survives() -> None:
    data = b'{"stopReason":"out_of_coffee"}'
    response = v1.decode(data, v1.PromptResponse)
    assert response.stop_reason == "out_of_coffee"
    assert v1.encode(response) == data


def test_known_stop_reasons_compare_equal_to_their_text() -> None:
    assert v1.decode(b'{"stopReason":"refusal"}', v1.PromptResponse).stop_reason == (
        v1.StopReason.REFUSAL
    )


def test_usage_is_kept_unread_by_the_stable_type() -> None:
    data = b'{"stopReason":"end_turn","usage":{"totalTokens":1}}'
    response = v1.decode(data, v1.PromptResponse)
    assert response.extra == {"usage": {"totalTokens": 1}}
    assert v1.encode(response) == data


@pytest.mark.parametrize("request_id", [0, -1, "0", "uuid", None])
def test_a_cancelled_request_is_named_by_its_very_id(request_id: int | str | None) -> None:
    notification = session.CancelRequestNotification(request_id=request_id)
    decoded = v1.decode(v1.encode(notification), v1.CancelRequestNotification)
    assert decoded.request_id == request_id
    assert type(decoded.request_id) is type(request_id)


def test_a_prompt_with_an_unknown_block_is_read() -> None:
    data = b'{"sessionId":"s","prompt":[{"type":"hologram"}]}'
    request = v1.decode(data, v1.PromptRequest)
    assert request.prompt == [v1.UnknownContent(raw={"type": "hologram"})]


def test_a_prompt_needs_a_list() -> None:
    with pytest.raises(msgspec.ValidationError):
        v1.decode(b'{"sessionId":"s","prompt":"hi"}', v1.PromptRequest)
