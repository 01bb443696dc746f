"""OpenAI's responses."""

from __future__ import annotations

import json
from typing import Any

from dragoman.testing.fake_model import responses
from dragoman.testing.fake_model.triggers import Asked, Reply, Tool, ToolCall

ASKED = Asked("m", "one two")


def events_of(reply: Reply) -> list[Any]:
    found = []
    for piece in responses.stream(reply, ASKED, "x"):
        name, data = piece.data.decode().rstrip("\n").split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert piece.text == (event["type"] == "response.output_text.delta")
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(1, len(found) + 1))
    return found


def test_a_request_is_read() -> None:
    body = {
        "model": "m",
        "stream": True,
        "tools": [
            {"type": "function", "name": "exec_command", "parameters": {"a": 1}},
            {"type": "custom", "name": "apply_patch"},
            {"type": "web_search"},
            {
                "type": "namespace",
                "name": "mcp__files",
                "tools": [{"type": "function", "name": "list", "parameters": {"b": 2}}],
            },
        ],
        "input": [
            {"type": "message", "role": "developer", "content": [{"text": "HTTP:500"}]},
            {"type": "message", "role": "user", "content": [{"text": "<env>x</env>"}]},
            {"type": "message", "role": "user", "content": [{"text": "said"}]},
            {"type": "function_call", "name": "exec_command"},
            {"type": "function_call_output", "output": "one"},
            {"type": "custom_tool_call_output", "output": [{"text": "two"}]},
        ],
    }
    tools = (
        Tool("exec_command", {"a": 1}),
        Tool("apply_patch", {}, True),
        Tool("list", {"b": 2}, namespace="mcp__files"),
    )
    assert responses.read(body, "") == Asked("m", "said", ("one", "two"), tools, True)


def test_the_input_may_be_a_text() -> None:
    assert responses.read({"input": "hello"}, "").text == "hello"
    assert responses.read({"input": 3}, "") == Asked("", "")


def test_a_wish_for_json_is_read() -> None:
    body = {"input": "x", "text": {"format": {"type": "json_schema", "schema": {"a": 1}}}}
    assert responses.read(body, "").schema == {"a": 1}


def test_thoughts_and_texts_are_items_of_their_own() -> None:
    events = events_of(Reply(("a", "b"), ("t", "u")))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "output_item.done",
        "output_item.added",
        "output_text.delta",
        "output_text.delta",
        "output_item.done",
        "completed",
    ]
    assert events[1]["item"]["summary"] == []
    assert events[7]["item"]["content"] == []
    assert events[7]["item"]["status"] == "in_progress"
    assert events[10]["item"]["content"][0]["text"] == "ab"
    response = events[-1]["response"]
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (2, 4)
    assert events[0]["response"]["output"] == []


def test_a_call_has_its_arguments_as_json() -> None:
    events = events_of(Reply(call=ToolCall("exec_command", {"cmd": "ls"})))
    assert events[2]["delta"] == '{"cmd": "ls"}'
    assert events[3]["item"]["arguments"] == '{"cmd": "ls"}'
    assert events[3]["item"]["call_id"] == "call_x"
    assert "namespace" not in events[3]["item"]
    events = events_of(Reply(call=ToolCall("list", {}, "mcp__files")))
    assert (events[3]["item"]["name"], events[3]["item"]["namespace"]) == ("list", "mcp__files")


def test_a_call_of_a_tool_that_takes_text_has_its_text() -> None:
    events = events_of(Reply(call=ToolCall("apply_patch", "patch")))
    assert events[2]["delta"] == "patch"
    assert (events[3]["item"]["type"], events[3]["item"]["input"]) == ("custom_tool_call", "patch")


def test_the_same_comes_at_once() -> None:
    whole = responses.whole(Reply(("a",)), ASKED, "x")
    assert whole["output"][0]["content"][0]["text"] == "a"
    assert responses.error(400, "no")["error"]["code"] == "400"
