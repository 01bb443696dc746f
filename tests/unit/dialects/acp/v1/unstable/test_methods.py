"""Tests of the table of methods that are not stable yet."""

from __future__ import annotations

from typing import Any

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1.unstable import handshake, sessions, updates
from dragoman.dialects.acp.v1.unstable.methods import UNSTABLE_METHODS
from tests.unit.dialects.acp.v1 import samples


def test_every_stable_method_is_still_there() -> None:
    table = v1.method_table(unstable=True)
    for method in v1.METHODS:
        found = (table.request if method.kind == "request" else table.notification)(method.name)
        assert found is not None
        assert (found.direction, found.gate, found.stability) == (
            method.direction,
            method.gate,
            "stable",
        )


def test_wider_types_are_also_their_stable_types() -> None:
    table = v1.method_table(unstable=True)
    for method in v1.METHODS:
        if method.kind == "request" and isinstance(method.params, type):
            found = table.request(method.name)
            assert found is not None
            assert issubclass(found.params, method.params)
            assert issubclass(found.result, method.result)


def test_wider_types_replace_the_stable_ones() -> None:
    table = v1.method_table(unstable=True)
    initialize, prompt = table.request("initialize"), table.request("session/prompt")
    update = table.notification("session/update")
    assert initialize is not None
    assert prompt is not None
    assert update is not None
    assert initialize.params is handshake.InitializeRequest
    assert prompt.result is sessions.PromptResponse
    assert update.params is updates.SessionNotification


def test_a_message_of_mcp_is_a_request_one_way_and_a_notification_the_other() -> None:
    table = v1.method_table(unstable=True)
    request, notification = table.request("mcp/message"), table.notification("mcp/message")
    assert request is not None
    assert notification is not None
    assert request.direction == "agent_to_client"
    assert notification.direction == "client_to_agent"


def test_every_gate_names_a_capability() -> None:
    everything = v1.convert(
        {
            "mcpCapabilities": {"acp": True},
            "sessionCapabilities": {"fork": {}, "archive": {}, "status": {}, "title": {}},
            "auth": {"status": {}},
            "providers": {},
        },
        handshake.AgentCapabilities,
    )
    for method in UNSTABLE_METHODS:
        if method.stability == "unstable" and method.gate is not None:
            assert method.gate.is_open(everything), method.name
            assert not method.gate.is_open(handshake.AgentCapabilities()), method.name


def test_every_body_of_a_method_has_a_sample() -> None:
    sampled = {hint for hint, _ in samples.STABLE + samples.UNSTABLE}
    for method in v1.method_table(unstable=True):
        for body in (method.params, method.result):
            assert body in (None, Any) or body in sampled, (method.name, body)


def test_the_answer_of_a_successor_is_passed_on_as_it_is() -> None:
    successor = v1.method_table(unstable=True).request("proxy/successor")
    assert successor is not None
    assert successor.decode_result(b"null") is None
    assert successor.decode_result(b'[{"a":1}]') == [{"a": 1}]
