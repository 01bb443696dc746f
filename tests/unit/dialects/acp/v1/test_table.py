"""Tests of what a method and a gate are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1.table import Gate, Method, MethodTable
from dragoman.dialects.acp.v1.unstable import handshake


def agent(value: Any, hint: Any = v1.AgentCapabilities) -> v1.Wire:
    decoded = v1.decode(json.dumps(value).encode(), hint)
    assert isinstance(decoded, v1.Wire)
    return decoded


@pytest.mark.parametrize(
    ("capabilities", "is_open"),
    [
        ({"sessionCapabilities": {"list": {}}}, True),
        ({"sessionCapabilities": {"list": {"_meta": {}}}}, True),
        ({"sessionCapabilities": {"list": None}}, False),
        ({"sessionCapabilities": {"list": True}}, False),
        ({"sessionCapabilities": {}}, False),
        ({"sessionCapabilities": None}, False),
        ({}, False),
    ],
)
def test_an_object_opens_a_gate(capabilities: Any, is_open: bool) -> None:
    gate = Gate("agent", ("sessionCapabilities.list",))
    assert gate.is_open(agent(capabilities)) is is_open


@pytest.mark.parametrize(("value", "is_open"), [(True, True), (False, False), (None, False)])
def test_true_opens_a_gate(value: Any, is_open: bool) -> None:
    gate = Gate("agent", ("loadSession",))
    assert gate.is_open(agent({"loadSession": value})) is is_open


def test_any_one_path_opens_a_gate() -> None:
    gate = Gate("client", ("elicitation.form", "elicitation.url"))
    assert not gate.is_open(agent({"elicitation": {}}, v1.ClientCapabilities))
    assert gate.is_open(agent({"elicitation": {"url": {}}}, v1.ClientCapabilities))
    assert gate.is_open(agent({"elicitation": {"form": {}}}, v1.ClientCapabilities))


@pytest.mark.parametrize("hint", [v1.AgentCapabilities, handshake.AgentCapabilities])
def test_a_gate_finds_what_the_stable_types_do_not_know(hint: Any) -> None:
    gate = Gate("agent", ("sessionCapabilities.systemPrompt.mode.override",))
    announced: dict[str, Any] = {"systemPrompt": {"mode": {"override": {}}}}
    assert gate.is_open(agent({"sessionCapabilities": announced}, hint))
    assert not gate.is_open(agent({"sessionCapabilities": {"systemPrompt": {}}}, hint))
    assert not gate.is_open(agent({"sessionCapabilities": {"systemPrompt": 7}}, hint))


def test_a_request_and_a_notification_may_share_a_name() -> None:
    ask: Method[Any, Any] = Method("a", "both", "request", v1.LogoutRequest, v1.LogoutResponse)
    tell: Method[Any, Any] = Method("a", "both", "notification", v1.CancelNotification)
    table = MethodTable([ask, tell])
    assert table.request("a") is ask
    assert table.notification("a") is tell
    assert table.request("b") is None
    assert table.notification("b") is None
    assert list(table) == [ask, tell]
    assert len(table) == 2


def test_a_later_method_replaces_an_earlier_one_of_the_same_name() -> None:
    first: Method[Any, Any] = Method("a", "both", "notification", v1.LogoutRequest)
    second: Method[Any, Any] = Method("a", "both", "notification", v1.CancelNotification)
    assert list(MethodTable([first, second])) == [second]


def test_a_method_reads_its_bodies() -> None:
    request = v1.SESSION_PROMPT.decode_params(b'{"sessionId":"s","prompt":[]}')
    assert request == v1.PromptRequest(session_id="s", prompt=[])
    response = v1.SESSION_PROMPT.decode_result(b'{"stopReason":"end_turn"}')
    assert response.stop_reason == "end_turn"
    with pytest.raises(msgspec.ValidationError):
        v1.SESSION_PROMPT.decode_params(b"")
