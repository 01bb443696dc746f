"""Tests of session methods that are not stable yet."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1.unstable import sessions
from tests.unit.dialects.acp.v1 import samples


def test_the_usage_of_a_turn_is_read() -> None:
    message = {"stopReason": "end_turn", "usage": samples.USAGE}
    response = v1.decode(json.dumps(message).encode(), sessions.PromptResponse)
    assert response.usage is not None
    assert (response.usage.total_tokens, response.usage.thought_tokens) == (18, 0)
    assert isinstance(response, v1.PromptResponse)


def test_a_usage_in_another_shape_does_not_fail_the_turn() -> None:
    data = b'{"stopReason":"end_turn","usage":{"tokens":3}}'
    response = v1.decode(data, sessions.PromptResponse)
    assert response.usage is None
    assert v1.encode(response) == data


def test_a_server_behind_the_connection_is_known_here_only() -> None:
    server = v1.convert(samples.ACP_SERVER, sessions.McpServer)
    assert server == sessions.McpServerAcp(name="mine", server_id="x1")
    assert isinstance(v1.convert(samples.ACP_SERVER, v1.McpServer), v1.UnknownMcpServer)


def test_stable_servers_and_unknown_ones_are_read_as_before() -> None:
    for server in [*samples.SERVERS, {"type": "carrier_pigeon"}]:
        assert v1.convert(server, sessions.McpServer) == v1.convert(server, v1.McpServer)


def test_a_malformed_system_prompt_is_an_error() -> None:
    message = {"cwd": "/w", "mcpServers": [], "systemPrompt": {"mode": "append"}}
    with pytest.raises(msgspec.ValidationError, match=r"`content` - at `\$\.systemPrompt`"):
        v1.decode(json.dumps(message).encode(), sessions.NewSessionRequest)


def test_unknown_values_survive() -> None:
    data = b'{"archived":"sometimes"}'
    request = v1.decode(data, sessions.ListSessionsRequest)
    assert request.archived == "sometimes"
    assert request.archived not in set(sessions.SessionArchiveFilter)
    assert v1.encode(request) == data


def test_known_values_compare_equal_to_their_text() -> None:
    response = v1.decode(b'{"status":"saved"}', sessions.SessionStatusResponse)
    assert response.status == sessions.SessionStatus.SAVED
    prompt = v1.convert(samples.SYSTEM_PROMPT, sessions.SystemPrompt)
    assert prompt.mode == sessions.SystemPromptMode.APPEND
