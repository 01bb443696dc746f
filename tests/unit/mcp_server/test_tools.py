"""What a model is offered."""

from __future__ import annotations

import msgspec
import pytest
from jsonschema import Draft202012Validator

from dragoman.mcp_server.tools import INSTRUCTIONS, MAX_WAIT, OUTCOME, TOOLS, McpTool


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_has_a_schema_in_one_piece_that_explains_each_argument(tool: McpTool) -> None:
    schema = tool.schema
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert "$ref" not in msgspec.json.encode(schema).decode()
    for argument in schema["properties"].values():
        assert argument["description"]
    assert tool.title and tool.description


def test_names_are_those_that_the_instructions_speak_of() -> None:
    names = {tool.name for tool in TOOLS}
    assert len(names) == len(TOOLS) == 8
    for name in ("list_peers", "delegate", "ask_peer", "start_job", "job_result"):
        assert name in names
        assert name in INSTRUCTIONS


def test_tools_whose_answer_is_a_peers_say_not_to_answer_in_its_place() -> None:
    for tool in TOOLS:
        if tool.name in ("delegate", "ask_peer", "job_result"):
            assert "never present an answer of your own" in tool.description


def test_unknown_and_invalid_arguments_are_refused() -> None:
    by_name = {tool.name: tool.arguments for tool in TOOLS}
    for name, arguments in (
        ("ask_peer", {"peer": "scout"}),
        ("ask_peer", {"peer": "", "prompt": "x"}),
        ("ask_peer", {"peer": "scout", "prompt": "x", "permissions": "approve-all"}),
        ("delegate", {"role": "review", "prompt": "x", "tier": "best"}),
        ("job_result", {"job": "j-1", "wait": MAX_WAIT + 1}),
        ("job_result", {"job": "j-1", "wait": -1}),
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(arguments, by_name[name])


def test_the_schema_of_outcomes_is_one() -> None:
    Draft202012Validator.check_schema(OUTCOME)
