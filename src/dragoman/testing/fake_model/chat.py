"""OpenAI's chat completions: ``POST /v1/chat/completions``.

Only the wire format; `triggers` decides the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dragoman.testing.fake_model.formats import (
    Piece,
    dict_of,
    event,
    objects,
    said,
    schema_of,
    texts,
    usage_of,
)
from dragoman.testing.fake_model.triggers import Asked, Reply, Tool, ToolCall, last_text


def read(body: dict[str, Any], path: str) -> Asked:
    text = ""
    results: list[str] = []
    for message in objects(body.get("messages")):
        if message.get("role") == "user" and (spoken := last_text(texts(message.get("content")))):
            text, results = spoken, []
        elif message.get("role") == "tool":
            results.append(said(message.get("content")))
    functions = [dict_of(tool.get("function")) for tool in objects(body.get("tools"))]
    return Asked(
        str(body.get("model", "")),
        text,
        tuple(results),
        tuple(Tool(str(f.get("name")), dict_of(f.get("parameters"))) for f in functions),
        body.get("stream") is True,
        schema_of(body.get("response_format"), "json_schema", "schema"),
    )


def _base(asked: Asked, id: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{id}", "object": kind, "created": 0, "model": asked.model}


def _usage(asked: Asked, reply: Reply) -> dict[str, int]:
    heard, spoken = usage_of(asked, reply)
    return {
        "prompt_tokens": heard,
        "completion_tokens": spoken,
        "total_tokens": heard + spoken,
    }


def _call(call: ToolCall, id: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": f"call_{id}", "type": "function", "function": function}


def stream(reply: Reply, asked: Asked, id: str) -> Iterator[Piece]:
    base = _base(asked, id, "chat.completion.chunk")

    def delta(values: dict[str, Any], *, text: bool = False, end: str | None = None) -> Piece:
        choice = {"index": 0, "delta": values, "finish_reason": end}
        return event({**base, "choices": [choice]}, text=text)

    yield delta({"role": "assistant", "content": ""})
    for thought in reply.thoughts:
        yield delta({"reasoning_content": thought})
    for chunk in reply.chunks:
        yield delta({"content": chunk}, text=True)
    if reply.call is not None:
        yield delta({"tool_calls": [{"index": 0, **_call(reply.call, id)}]})
    yield delta({}, end="stop" if reply.call is None else "tool_calls")
    yield event({**base, "choices": [], "usage": _usage(asked, reply)})
    yield Piece(b"data: [DONE]\n\n")


def whole(reply: Reply, asked: Asked, id: str) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.thoughts:
        message["reasoning_content"] = reply.thought
    if reply.call is not None:
        message["tool_calls"] = [_call(reply.call, id)]
    end = "stop" if reply.call is None else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": end}
    base = _base(asked, id, "chat.completion")
    return {**base, "choices": [choice], "usage": _usage(asked, reply)}


def error(status: int, message: str) -> Any:
    return {"error": {"message": message, "type": "fake_error", "param": None, "code": str(status)}}
