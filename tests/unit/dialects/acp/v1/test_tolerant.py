"""Tests of the rules of leniency, each on a type of the protocol that has it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1 import tolerant
from dragoman.dialects.acp.v1.unstable import services
from tests.unit.dialects.acp.v1 import samples

WRONG: list[Any] = [7, 1.5, True, "text", ["list"], {"object": 1}]


def decode(value: Any, hint: Any) -> Any:
    return v1.decode(json.dumps(value).encode(), hint)


def encoded(value: Any) -> Any:
    return json.loads(v1.encode(value))


@pytest.mark.parametrize("wrong", [7, True, ["list"], {"object": 1}])
def test_a_malformed_optional_value_becomes_the_default_and_is_kept(wrong: Any) -> None:
    message = {"toolCallId": "c", "title": wrong}
    update = decode(message, v1.ToolCallUpdate)
    assert update.title is None
    assert update.extra == {"title": wrong}
    assert encoded(update) == message


@pytest.mark.parametrize("wrong", [7, True, "text", ["list"]])
def test_a_malformed_meta_becomes_none_and_is_kept(wrong: Any) -> None:
    message = {"sessionId": "s1", "_meta": wrong}
    notification = decode(message, v1.CancelNotification)
    assert notification.meta is None
    assert encoded(notification) == message


@pytest.mark.parametrize("wrong", WRONG)
def test_a_malformed_capability_does_not_fail_the_handshake(wrong: Any) -> None:
    message = {
        "protocolVersion": 1,
        "agentCapabilities": {"sessionCapabilities": wrong, "loadSession": "yes"},
    }
    response = decode(message, v1.InitializeResponse)
    assert response.agent_capabilities.load_session is False
    assert response.agent_capabilities.session_capabilities.list is None


def test_a_malformed_value_of_a_nested_optional_object_makes_the_object_absent() -> None:
    update = decode({"used": 1, "size": 2, "cost": {"amount": "much"}}, v1.UsageUpdate)
    assert update.cost is None
    assert update.extra == {"cost": {"amount": "much"}}


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (v1.ReadTextFileRequest, {"sessionId": "s", "path": "/a", "line": "one"}),
        (v1.ReadTextFileRequest, {"sessionId": "s", "path": "/a", "limit": 1.5}),
        (v1.CreateTerminalRequest, {"sessionId": "s", "command": "ls", "args": "-l"}),
        (v1.CreateTerminalRequest, {"sessionId": "s", "command": "ls", "args": ["-l", 1]}),
        (v1.CreateTerminalRequest, {"sessionId": "s", "command": "ls", "env": [{"name": "A"}]}),
        (v1.CreateTerminalRequest, {"sessionId": "s", "command": "ls", "cwd": 1}),
        (v1.ListSessionsRequest, {"cursor": 1}),
        (v1.NewSessionRequest, {"cwd": "/", "mcpServers": [], "additionalDirectories": [1]}),
        (v1.NewSessionRequest, {"cwd": "/", "mcpServers": [{"name": "a"}]}),
        (v1.ElicitationSchema, {"properties": {"a": {"type": "string", "minLength": "x"}}}),
        (v1.ElicitationSchema, {"properties": {"a": {"type": "string", "enum": [1]}}}),
        (v1.ElicitationSchema, {"properties": {"a": 1}}),
        (v1.ElicitationSchema, {"required": "a"}),
        (v1.ElicitationAccepted, {"content": {"a": {}}}),
        (v1.PromptRequest, {"sessionId": "s", "prompt": [1]}),
        (v1.SessionConfigOption, samples.SELECT | {"options": [{"name": "no value"}]}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_malformed_value_of_a_strict_field_is_an_error(hint: Any, message: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(message, hint)


@pytest.mark.parametrize(
    "field",
    ["line", "limit"],
)
def test_null_in_a_strict_optional_field_means_absent(field: str) -> None:
    request = decode({"sessionId": "s", "path": "/a", field: None}, v1.ReadTextFileRequest)
    assert encoded(request) == {"sessionId": "s", "path": "/a"}


def test_null_in_an_optional_field_that_has_no_null_means_absent() -> None:
    message = {"sessionId": "s", "command": "ls", "args": None, "env": None}
    request = decode(message, v1.CreateTerminalRequest)
    assert request.args == []
    assert request.extra is None
    capabilities = decode({"loadSession": None, "auth": None}, v1.AgentCapabilities)
    assert capabilities == v1.AgentCapabilities()


def test_null_stands_for_the_empty_list_where_the_protocol_says_so() -> None:
    request = decode({"cwd": "/", "mcpServers": None}, v1.NewSessionRequest)
    assert encoded(request) == {"cwd": "/", "mcpServers": []}
    server = decode({"name": "a", "command": "/a", "args": None, "env": None}, v1.McpServer)
    assert (server.args, server.env) == ([], [])


@pytest.mark.parametrize("key", ["sessionId", "cwd", "mcpServers"])
def test_a_missing_required_field_is_an_error(key: str) -> None:
    message = {"sessionId": "s", "cwd": "/", "mcpServers": []}
    del message[key]
    with pytest.raises(msgspec.ValidationError, match=f"missing required field `{key}`"):
        decode(message, v1.LoadSessionRequest)


@pytest.mark.parametrize("wrong", [None, 7, ["list"], {"object": 1}])
def test_a_malformed_required_field_is_an_error(wrong: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"at `\$\.sessionId`"):
        decode({"sessionId": wrong}, v1.CancelNotification)


REQUIRED: dict[Any, dict[str, Any]] = {
    v1.InitializeResponse: {"protocolVersion": 1, "agentCapabilities": {}},
    v1.NewSessionResponse: {"sessionId": "s"},
    v1.SessionModeState: {"currentModeId": "m"},
    v1.SessionModelState: {"currentModelId": "m"},
    v1.ToolCallUpdate: {"toolCallId": "c"},
    v1.SessionConfigSelectGroup: {"group": "g", "name": "n"},
    services.AuthStatusResponse: {"state": "unknown"},
}
"""What else these types need."""

BAD: list[Any] = [None, 7, "text", [], {}]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("hint", "key", "good"),
    [
        (v1.InitializeResponse, "authMethods", samples.AUTH_METHODS),
        (v1.NewSessionResponse, "configOptions", samples.CONFIG_OPTIONS),
        (v1.SetSessionConfigOptionResponse, "configOptions", samples.CONFIG_OPTIONS),
        (v1.SessionModeState, "availableModes", samples.MODES["availableModes"]),
        (v1.SessionModelState, "availableModels", samples.MODELS["availableModels"]),
        (v1.ListSessionsResponse, "sessions", [{"sessionId": "s", "cwd": "/"}]),
        (v1.Plan, "entries", [{"content": "c", "priority": "low", "status": "pending"}]),
        (v1.AvailableCommandsUpdate, "availableCommands", [{"name": "n", "description": "d"}]),
        (v1.ToolCallUpdate, "content", samples.TOOL_CONTENT),
        (v1.ToolCallUpdate, "locations", [{"path": "/a"}]),
        (v1.SessionConfigSelectGroup, "options", [{"value": "v", "name": "n"}]),
        (services.AuthStatusResponse, "accounts", [{"label": "l"}]),
    ],
    ids=lambda value: str(getattr(value, "__name__", value))[:40],
)
def test_bad_items_of_a_forgiving_list_are_left_out(
    hint: Any, key: str, good: list[Any], bad: Any
) -> None:
    message = {**REQUIRED.get(hint, {}), key: [bad, *good, bad]}
    assert encoded(decode(message, hint))[key] == good


def test_bad_texts_of_a_forgiving_list_of_texts_are_left_out() -> None:
    info = decode(
        {"sessionId": "s", "cwd": "/", "additionalDirectories": ["/a", 1]}, v1.SessionInfo
    )
    assert info.additional_directories == ["/a"]
    annotations = decode({"audience": ["user", None, "robot"]}, v1.Annotations)
    assert annotations.audience == ["user", "robot"]


@pytest.mark.parametrize("wrong", [None, 7, "text", {}])
def test_a_forgiving_required_list_that_is_not_a_list_is_empty_and_kept(wrong: Any) -> None:
    response = decode({"sessions": wrong}, v1.ListSessionsResponse)
    assert response.sessions == []
    assert response.extra == {"sessions": wrong}
    assert encoded(response) == {"sessions": []}


def test_a_forgiving_required_list_must_be_there() -> None:
    with pytest.raises(msgspec.ValidationError, match="`sessions`"):
        decode({}, v1.ListSessionsResponse)


def test_an_unknown_member_of_a_union_in_a_forgiving_list_is_kept_not_left_out() -> None:
    hologram = {"type": "hologram", "depth": 3}
    update = decode({"toolCallId": "c", "content": [hologram]}, v1.ToolCallUpdate)
    assert update.content == [v1.UnknownToolCallContent(raw=hologram)]


@pytest.mark.parametrize("tag", [7, None, ["text"], {}])
def test_a_tag_that_is_not_text_is_an_error(tag: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode({"type": tag, "text": "x"}, v1.ContentBlock)


def test_a_missing_tag_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="`type`"):
        decode({"text": "x", "x-new": 1}, v1.ContentBlock)


def test_a_single_tagged_type_may_lack_its_tag_but_not_have_another() -> None:
    assert decode({"text": "x", "x-new": 1}, v1.TextContent).text == "x"
    with pytest.raises(msgspec.ValidationError, match="Invalid value 'image'"):
        decode({"type": "image", "text": "x", "x-new": 1}, v1.TextContent)


def test_a_known_tag_with_a_malformed_payload_is_an_error() -> None:
    message = {"sessionId": "s", "update": {"sessionUpdate": "usage_update", "used": "much"}}
    with pytest.raises(msgspec.ValidationError, match=r"\$\.update"):
        decode(message, v1.SessionNotification)


def test_true_is_not_a_number_and_a_number_is_not_true() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode({"used": True, "size": 1}, v1.UsageUpdate)
    with pytest.raises(msgspec.ValidationError):
        decode({"output": "", "truncated": 1}, v1.TerminalOutputResponse)
    with pytest.raises(msgspec.ValidationError):
        decode({"requestId": True}, v1.CancelRequestNotification)
    with pytest.raises(msgspec.ValidationError):
        decode({"requestId": 1.5}, v1.CancelRequestNotification)


def test_a_whole_number_is_read_where_a_fraction_may_stand() -> None:
    cost = decode({"amount": 2, "currency": "credits", "x-new": 1}, v1.Cost)
    assert cost.amount == 2.0
    assert isinstance(cost.amount, float)


def test_a_number_too_large_for_a_fraction_is_malformed() -> None:
    with pytest.raises(msgspec.ValidationError):
        v1.convert({"amount": 10**400, "currency": "x"}, v1.Cost)


def test_a_whole_number_stays_whole_where_both_may_stand() -> None:
    accepted = decode({"content": {"a": 1, "b": 1.0}, "x-new": 1}, v1.ElicitationAccepted)
    assert [type(value) for value in accepted.content.values()] == [int, float]


def test_the_path_of_an_error_leads_through_lists_and_maps() -> None:
    with pytest.raises(tolerant.Malformed) as failure:
        tolerant.read(
            {"properties": {"a": {"type": "string", "oneOf": [{}]}}}, v1.ElicitationSchema
        )
    assert failure.value.sentence().endswith("at `$.properties[...].oneOf[0]`")


def test_a_type_that_is_none_of_the_protocol_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot read values of"):
        tolerant.read("x", bytes)


def test_a_value_that_is_not_json_is_malformed() -> None:
    with pytest.raises(msgspec.ValidationError, match="got `bytes`"):
        v1.convert({"sessionId": b"s"}, v1.CancelNotification)
