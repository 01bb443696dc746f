"""OpenAI's chat completions."""

from __future__ import annotations

import json
from typing import Any

from dragoman.testing.fake_model import chat
from dragoman.testing.fake_model.triggers import Asked, Reply, Tool, ToolCall

BODY: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"a": 1}}}],
    "messages": [
        {"role": "system", "content": "HTTP:500"},
        {"role": "user", "content": "older"},
        {"role": "tool", "tool_call_id": "1", "content": "old result"},
        {"role": "user", "content": [{"type": "text", "text": "newer"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "result"}]},
    ],
}


def data_of(reply: Reply) -> list[Any]:
    pieces = list(chat.stream(reply, Asked("m", "one two"), "x"))
    assert pieces[-1].data == b"data: [DONE]\n\n"
    return [json.loads(piece.data.removeprefix(b"data: ")) for piece in pieces[:-1]]


def test_a_request_is_read() -> None:
    asked = chat.read(BODY, "/v1/chat/completions")
    assert asked == Asked("m", "newer", ("result",), (Tool("bash", {"a": 1}),), True)


def test_a_wish_for_json_is_read() -> None:
    body = {**BODY, "response_format": {"type": "json_object"}}
    assert chat.read(body, "").schema == {"type": "object"}


def test_nonsense_is_read_as_nothing() -> None:
    assert chat.read({"messages": 3, "tools": {}}, "") == Asked("", "")


def test_thoughts_and_texts_are_streamed_in_order() -> None:
    chunks = data_of(Reply(("a", "b"), ("t",)))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[1:] == [{"reasoning_content": "t"}, {"content": "a"}, {"content": "b"}, {}]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


def test_a_call_is_streamed_and_ends_the_answer() -> None:
    chunks = data_of(Reply(call=ToolCall("bash", {"c": 1})))
    (call,) = chunks[1]["choices"][0]["delta"]["tool_calls"]
    assert (call["index"], call["id"]) == (0, "call_x")
    assert call["function"] == {"name": "bash", "arguments": '{"c": 1}'}
    assert chunks[2]["choices"][0]["finish_reason"] == "tool_calls"


def test_the_same_comes_at_once() -> None:
    whole = chat.whole(Reply(("a", "b"), ("t",)), Asked("m", "q"), "x")
    message = whole["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("ab", "t")
    called = chat.whole(Reply(call=ToolCall("bash", {})), Asked("m", "q"), "x")["choices"][0]
    assert called["message"]["tool_calls"][0]["function"]["name"] == "bash"
    assert called["finish_reason"] == "tool_calls"


def test_an_error_says_its_status() -> None:
    assert chat.error(429, "no")["error"] == {
        "message": "no",
        "type": "fake_error",
        "param": None,
        "code": "429",
    }
