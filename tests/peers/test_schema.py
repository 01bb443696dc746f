"""The judge that the official schema is made into: it must be able to say no."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

import dragoman
from dragoman.dialects.acp import v1 as acp
from tests.interop import script
from tests.peers import schema

CHUNK: dict[str, Any] = {
    "sessionUpdate": "agent_message_chunk",
    "content": {"type": "text", "text": "x"},
}


def test_the_schema_has_exactly_our_stable_methods() -> None:
    assert set(schema.methods()) == {method.name for method in acp.METHODS}


ENVELOPE = {
    *("AgentNotification", "AgentRequest", "AgentResponse"),
    *("ClientNotification", "ClientRequest", "ClientResponse"),
    *("Error", "ErrorCode", "ExtNotification", "ExtRequest", "ExtResponse", "RequestId"),
}
"""What `dragoman.wire` and `dragoman.rpc` do: messages and errors of JSON-RPC."""

PARTS = {"ElicitationRequestScope", "ElicitationSchemaType", "ElicitationSessionScope"}
"""Parts of another type of the schema that have no value of their own here."""


def test_every_name_of_the_schema_is_one_of_dragoman_acp() -> None:
    missing = {name for name in schema.definitions() if not hasattr(dragoman.acp, name)}
    assert missing == ENVELOPE | PARTS
    assert {name for name in schema.definitions() if name not in acp.__all__} == missing


def test_the_script_has_every_kind_of_update() -> None:
    assert {update["sessionUpdate"] for update in script.UPDATES} == schema.update_kinds()


def test_the_judge_takes_what_is_right() -> None:
    schema.judge("SessionNotification", {"sessionId": "s", "update": CHUNK})
    for update in script.UPDATES:
        schema.judge("SessionNotification", {"sessionId": "s", "update": update})
    schema.judge("ToolCall", {"toolCallId": "c", "title": "t", "rawInput": {"any": {"thing": 1}}})


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("SessionNotification", {"sessionId": "s"}),
        ("SessionNotification", {"sessionId": 1, "update": CHUNK}),
        ("SessionNotification", {"sessionId": "s", "update": {**CHUNK, "messageID": "m"}}),
        ("SessionNotification", {"sessionId": "s", "session_id": "s", "update": CHUNK}),
        ("PromptResponse", {"stopReason": "done"}),
        ("InitializeResponse", {"protocolVersion": 1, "agentCapabilities": {"load": True}}),
        ("Error", {"code": "x", "message": "m"}),
    ],
)
def test_the_judge_refuses_what_is_wrong_or_unknown(type_name: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        schema.judge(type_name, value)
