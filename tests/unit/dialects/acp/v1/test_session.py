"""Tests of the session methods that clients call."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1 import session
from tests.unit.dialects.acp.v1 import samples


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


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (v1.NewSessionResponse, {"sessionId": "s", "models": samples.MODELS}),
        (v1.LoadSessionResponse, {"models": samples.MODELS}),
        (v1.ResumeSessionResponse, {"models": samples.MODELS}),
    ],
)
def test_the_models_of_a_session_are_read(hint: Any, message: Any) -> None:
    response = v1.decode(json.dumps(message).encode(), hint)
    assert response.models.current_model_id == "fake-model"
    assert [model.model_id for model in response.models.available_models] == [
        "fake-model",
        "other",
    ]


def test_models_of_another_shape_do_not_fail_the_session() -> None:
    message = {"sessionId": "s", "models": ["a", "b"]}
    response = v1.decode(json.dumps(message).encode(), v1.NewSessionResponse)
    assert response.models is None
    assert json.loads(v1.encode(response)) == message


def test_the_model_is_set_by_its_id() -> None:
    request = v1.SetSessionModelRequest(session_id="s", model_id="m")
    assert json.loads(v1.encode(request)) == {"sessionId": "s", "modelId": "m"}


def test_a_select_is_flat_or_grouped() -> None:
    flat = v1.convert(samples.SELECT, v1.SessionConfigSelect)
    grouped = v1.convert(samples.GROUPED_SELECT, v1.SessionConfigSelect)
    assert {type(entry) for entry in flat.options} == {v1.SessionConfigSelectOption}
    assert {type(entry) for entry in grouped.options} == {v1.SessionConfigSelectGroup}


def test_an_option_of_an_unknown_type_is_kept_whole() -> None:
    option = {"type": "slider", "id": "heat", "name": "Heat", "currentValue": 3}
    data = json.dumps({"configOptions": [samples.BOOLEAN, option]}).encode()
    response = v1.decode(data, v1.SetSessionConfigOptionResponse)
    assert response.config_options[1] == v1.UnknownConfigOption(raw=option)
    assert json.loads(v1.encode(response)) == json.loads(data)


def test_an_unknown_category_survives() -> None:
    option = samples.BOOLEAN | {"category": "_mine"}
    assert v1.convert(option, v1.SessionConfigBoolean).category == "_mine"
    assert "_mine" not in set(v1.SessionConfigOptionCategory)


def test_setting_a_boolean_says_its_type() -> None:
    request = v1.SetSessionConfigOptionRequest(session_id="s", config_id="c", value=False)
    assert json.loads(v1.encode(request)) == {
        "sessionId": "s",
        "configId": "c",
        "value": False,
        "type": "boolean",
    }


def test_setting_a_choice_has_no_type() -> None:
    request = v1.SetSessionConfigOptionRequest(session_id="s", config_id="c", value="fast")
    assert json.loads(v1.encode(request)) == {"sessionId": "s", "configId": "c", "value": "fast"}


def test_setting_a_number_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        v1.decode(b'{"sessionId":"s","configId":"c","value":1}', v1.SetSessionConfigOptionRequest)


def test_a_malformed_option_is_left_out_of_the_list() -> None:
    data = json.dumps({"sessionId": "s", "configOptions": [samples.SELECT, {"type": "select"}]})
    response = v1.decode(data.encode(), v1.NewSessionResponse)
    assert response.config_options is not None
    assert len(response.config_options) == 1


def test_each_server_has_its_type() -> None:
    kinds = [type(v1.convert(server, v1.McpServer)) for server in samples.SERVERS]
    assert kinds == [v1.McpServerStdio, v1.McpServerStdio, v1.McpServerHttp, v1.McpServerSse]


def test_a_program_has_no_type_and_always_its_lists_on_the_wire() -> None:
    server = v1.McpServerStdio(name="n", command="/c", args=[], env=[])
    assert json.loads(v1.encode(server)) == {"name": "n", "command": "/c", "args": [], "env": []}


def test_a_program_that_says_stdio_is_a_program() -> None:
    message = {"type": "stdio", "name": "n", "command": "/c", "args": [], "env": []}
    server = v1.decode(json.dumps(message).encode(), v1.McpServer)
    assert isinstance(server, v1.McpServerStdio)
    assert json.loads(v1.encode(server)) == message


@pytest.mark.parametrize("kind", ["carrier_pigeon", "acp", 7, None])
def test_a_server_of_an_unknown_type_is_never_a_program(kind: Any) -> None:
    message = {"type": kind, "name": "n", "command": "/c", "args": [], "env": []}
    server = v1.decode(json.dumps(message).encode(), v1.McpServer)
    assert server == v1.UnknownMcpServer(raw=message)
    assert json.loads(v1.encode(server)) == message


@pytest.mark.parametrize("key", ["name", "command", "args", "env"])
def test_a_program_needs_all_its_fields(key: str) -> None:
    message = {"name": "n", "command": "/c", "args": [], "env": []}
    del message[key]
    with pytest.raises(msgspec.ValidationError, match=f"`{key}`"):
        v1.decode(json.dumps(message).encode(), v1.McpServer)
