"""Tests of permission requests and their answers."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


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


def test_an_unknown_outcome_is_kept_and_is_no_choice() -> None:
    data = b'{"outcome":{"outcome":"deferred","optionId":"proceed_once"}}'
    response = v1.decode(data, v1.RequestPermissionResponse)
    assert isinstance(response.outcome, v1.UnknownPermissionOutcome)
    assert v1.encode(response) == data


def test_a_choice_without_an_option_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="`optionId`"):
        v1.decode(b'{"outcome":{"outcome":"selected"}}', v1.RequestPermissionResponse)
