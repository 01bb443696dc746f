"""Tests of the table of methods."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1 import methods
from dragoman.dialects.acp.v1.methods import Gate, Method, MethodTable
from dragoman.dialects.acp.v1.unstable import handshake
from tests.unit.dialects.acp.v1 import samples

CLIENT_TO_AGENT = {
    "initialize",
    "authenticate",
    "logout",
    "session/new",
    "session/load",
    "session/resume",
    "session/list",
    "session/close",
    "session/delete",
    "session/set_mode",
    "session/set_config_option",
    "session/prompt",
    "session/cancel",
}
AGENT_TO_CLIENT = {
    "session/update",
    "session/request_permission",
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
    "elicitation/create",
    "elicitation/complete",
}


def test_the_stable_methods_are_those_of_the_protocol() -> None:
    directions: dict[str, set[str]] = {}
    for method in v1.METHODS:
        directions.setdefault(method.direction, set()).add(method.name)
        assert method.stability == "stable"
    assert directions == {
        "client_to_agent": CLIENT_TO_AGENT,
        "agent_to_client": AGENT_TO_CLIENT,
        "both": {"$/cancel_request"},
    }


def test_notifications_are_those_of_the_protocol_and_have_no_result() -> None:
    notifications = {method.name for method in v1.METHODS if method.kind == "notification"}
    assert notifications == {
        "session/cancel",
        "session/update",
        "elicitation/complete",
        "$/cancel_request",
    }
    for method in v1.METHODS:
        assert (method.result is None) == (method.kind == "notification")


def test_every_constant_is_in_the_table_and_no_name_is_there_twice() -> None:
    constants = {value for value in vars(methods).values() if isinstance(value, v1.Method)}
    assert constants == {*v1.METHODS, v1.SESSION_SET_MODEL}
    assert len(v1.METHODS) == len({method.name for method in v1.METHODS})


@pytest.mark.parametrize(
    ("name", "gate"),
    [
        ("initialize", None),
        ("authenticate", None),
        ("session/new", None),
        ("session/prompt", None),
        ("session/set_mode", None),
        ("session/set_config_option", None),
        ("session/request_permission", None),
        ("session/set_model", None),
        ("logout", ("agent", ("auth.logout",))),
        ("session/load", ("agent", ("loadSession",))),
        ("session/resume", ("agent", ("sessionCapabilities.resume",))),
        ("session/list", ("agent", ("sessionCapabilities.list",))),
        ("session/close", ("agent", ("sessionCapabilities.close",))),
        ("session/delete", ("agent", ("sessionCapabilities.delete",))),
        ("fs/read_text_file", ("client", ("fs.readTextFile",))),
        ("fs/write_text_file", ("client", ("fs.writeTextFile",))),
        ("terminal/create", ("client", ("terminal",))),
        ("terminal/output", ("client", ("terminal",))),
        ("terminal/wait_for_exit", ("client", ("terminal",))),
        ("terminal/kill", ("client", ("terminal",))),
        ("terminal/release", ("client", ("terminal",))),
        ("elicitation/create", ("client", ("elicitation.form", "elicitation.url"))),
    ],
)
def test_each_request_is_behind_its_gate(
    name: str, gate: tuple[v1.methods.Side, tuple[str, ...]] | None
) -> None:
    method = v1.method_table().request(name)
    assert method is not None
    assert method.gate == (None if gate is None else v1.Gate(*gate))


def test_every_gate_is_open_when_everything_is_announced() -> None:
    capabilities = {
        "agent": v1.convert(samples.AGENT_CAPABILITIES, v1.AgentCapabilities),
        "client": v1.convert(samples.CLIENT_CAPABILITIES, v1.ClientCapabilities),
    }
    for method in v1.METHODS:
        if method.gate is not None:
            assert method.gate.is_open(capabilities[method.gate.side]), method.name


def test_every_gate_is_shut_when_nothing_is_announced() -> None:
    capabilities = {"agent": v1.AgentCapabilities(), "client": v1.ClientCapabilities()}
    for method in v1.METHODS:
        if method.gate is not None:
            assert not method.gate.is_open(capabilities[method.gate.side]), method.name


def test_the_legacy_method_is_in_the_table_and_not_among_the_stable_ones() -> None:
    assert v1.method_table().request("session/set_model") is v1.SESSION_SET_MODEL
    assert v1.SESSION_SET_MODEL.stability == "legacy"
    assert v1.SESSION_SET_MODEL not in v1.METHODS


def test_unstable_methods_need_the_switch() -> None:
    assert v1.method_table().request("session/fork") is None
    fork = v1.method_table(unstable=True).request("session/fork")
    assert fork is not None
    assert fork.stability == "unstable"


def test_every_body_of_a_method_has_a_sample() -> None:
    sampled = {hint for hint, _ in samples.STABLE}
    for method in v1.method_table():
        for body in (method.params, method.result):
            assert body is None or body in sampled, (method.name, body)


def test_a_union_as_a_body_is_read() -> None:
    assert len(get_args(v1.ELICITATION_CREATE.params)) == 3
    response = v1.ELICITATION_CREATE.decode_result(b'{"action":"decline"}')
    assert response == v1.ElicitationDeclined()


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
