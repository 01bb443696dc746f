"""Anthropic's messages."""

from __future__ import annotations

import json
from typing import Any

from dragoman.testing.fake_model import messages
from dragoman.testing.fake_model.triggers import Asked, Reply, Tool, ToolCall

ASKED = Asked("m", "one two")


def events_of(reply: Reply) -> list[Any]:
    found = []
    for piece in messages.stream(reply, ASKED, "x"):
        name, data = piece.data.decode().rstrip("\n").split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def test_a_request_is_read() -> None:
    body = {
        "model": "m",
        "tools": [{"name": "Bash", "input_schema": {"a": 1}}],
        "messages": [
            {"role": "user", "content": "older"},
            {"role": "assistant", "content": "THINK"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                    {"type": "text", "text": "newer"},
                ],
            },
            {"role": "assistant", "content": [{"type": "tool_use"}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "content": [{"type": "text", "text": "result"}]},
                    {"type": "text", "text": "a reminder beside it"},
                ],
            },
        ],
    }
    tools = (Tool("Bash", {"a": 1}),)
    assert messages.read(body, "") == Asked("m", "newer", ("result",), tools)


def test_nonsense_is_read_as_nothing() -> None:
    assert messages.read({"messages": "x"}, "") == Asked("", "")


def test_every_block_begins_grows_and_ends() -> None:
    events = events_of(Reply(("a", "b"), ("t",), ToolCall("Bash", {"c": 1})))
    assert [event["type"] for event in events] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_delta"],
        "content_block_stop",
        *["content_block_start", "content_block_delta", "content_block_delta"],
        "content_block_stop",
        *["content_block_start", "content_block_delta", "content_block_stop"],
        "message_delta",
        "message_stop",
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "t"},
        {"type": "signature_delta", "signature": "fake"},
        {"type": "text_delta", "text": "a"},
        {"type": "text_delta", "text": "b"},
        {"type": "input_json_delta", "partial_json": '{"c": 1}'},
    ]
    begun = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert [block.get("input", block.get("text", "")) for block in begun] == ["", "", {}]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"] == {"input_tokens": 2, "output_tokens": 4}


def test_the_same_comes_at_once() -> None:
    whole = messages.whole(Reply(("a", "b")), ASKED, "x")
    assert whole["content"] == [{"type": "text", "text": "ab"}]
    assert whole["stop_reason"] == "end_turn"


def test_an_error_has_the_word_for_its_status() -> None:
    assert messages.error(401, "no")["error"]["type"] == "authentication_error"
    assert messages.error(500, "no")["error"] == {"type": "api_error", "message": "no"}
