"""Gemini's way to ask a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.testing.fake_model import gemini
from dragoman.testing.fake_model.triggers import Asked, Reply, Tool, ToolCall

PATH = "/v1beta/models/gemini-x:streamGenerateContent"


def parts_of(reply: Reply) -> list[Any]:
    pieces = gemini.stream(reply, Asked("m", "one two"), "x")
    chunks = [json.loads(piece.data.removeprefix(b"data: ")) for piece in pieces]
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"
    assert chunks[-1]["usageMetadata"]["promptTokenCount"] == 2
    return [chunk["candidates"][0]["content"]["parts"] for chunk in chunks]


def test_a_request_is_read() -> None:
    body = {
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "one", "parametersJsonSchema": {"a": 1}},
                    {"name": "two", "parameters": {"b": 1}},
                ]
            }
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "older"}]},
            {"role": "model", "parts": [{"text": "THINK"}]},
            {"role": "user", "parts": [{"text": "newer"}]},
            {"role": "user", "parts": [{"functionResponse": {"response": {"output": "done"}}}]},
        ],
    }
    tools = (Tool("one", {"a": 1}), Tool("two", {"b": 1}))
    assert gemini.read(body, PATH) == Asked("gemini-x", "newer", ("done",), tools, True)
    assert not gemini.read(body, "/v1beta/models/gemini-x:generateContent").stream


@pytest.mark.parametrize(
    ("response", "text"),
    [({"error": "no"}, "no"), ({"other": 1}, '{"other": 1}'), ({"result": "r"}, "r")],
)
def test_a_result_is_found_under_any_of_its_names(response: Any, text: str) -> None:
    content = {"role": "user", "parts": [{"functionResponse": {"response": response}}]}
    assert gemini.read({"contents": [content]}, PATH).results == (text,)


def test_a_wish_for_json_is_read() -> None:
    config: dict[str, Any] = {"responseMimeType": "application/json"}
    assert gemini.read({"generationConfig": config}, PATH).schema == {"type": "object"}
    config["responseJsonSchema"] = {"type": "array"}
    assert gemini.read({"generationConfig": config}, PATH).schema == {"type": "array"}


def test_thoughts_texts_and_calls_are_parts() -> None:
    reply = Reply(("a", "b"), ("t",), ToolCall("f", {"x": 1}))
    assert parts_of(reply) == [
        [{"text": "t", "thought": True}],
        [{"text": "a"}],
        [{"text": "b"}],
        [{"functionCall": {"name": "f", "args": {"x": 1}}}],
        [{"text": ""}],
    ]


def test_the_same_comes_at_once() -> None:
    reply = Reply(("a", "b"), ("t",), ToolCall("f", {}))
    whole = gemini.whole(reply, Asked("m", "q"), "x")
    assert whole["candidates"][0]["content"]["parts"] == [
        {"text": "t", "thought": True},
        {"text": "ab"},
        {"functionCall": {"name": "f", "args": {}}},
    ]


def test_an_error_has_the_word_for_its_status() -> None:
    assert gemini.error(429, "no")["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert gemini.error(418, "no")["error"]["status"] == "UNKNOWN"
