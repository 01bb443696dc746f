"""Anthropic's messages: ``POST /v1/messages``.

Only the wire format; `triggers` decides the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

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
from dragoman.testing.fake_model.triggers import Asked, Reply, Tool, last_text

_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(body: dict[str, Any], path: str) -> Asked:
    text, results = "", []
    for message in objects(body.get("messages")):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        said_by_tools = [
            said(part.get("content"))
            for part in objects(content)
            if part.get("type") == "tool_result"
        ]
        if said_by_tools:
            # Text next to a tool result is a reminder from the agent program, not from the user.
            results += said_by_tools
        elif spoken := last_text(texts(content)):
            text, results = spoken, []
    tools = objects(body.get("tools"))
    return Asked(
        str(body.get("model", "")),
        text,
        tuple(results),
        tuple(Tool(str(tool.get("name")), dict_of(tool.get("input_schema"))) for tool in tools),
        body.get("stream") is True,
        schema_of(dict_of(body.get("output_config")).get("format"), "schema"),
    )


def _blocks(reply: Reply, id: str) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.thoughts:
        blocks.append({"type": "thinking", "thinking": reply.thought, "signature": "fake"})
    if reply.chunks:
        blocks.append({"type": "text", "text": reply.text})
    if reply.call is not None:
        call = {"id": f"toolu_{id}", "name": reply.call.name, "input": reply.call.arguments}
        blocks.append({"type": "tool_use", **call})
    return blocks


def _usage(asked: Asked, reply: Reply) -> dict[str, int]:
    heard, spoken = usage_of(asked, reply)
    return {"input_tokens": heard, "output_tokens": spoken}


def whole(reply: Reply, asked: Asked, id: str) -> Any:
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": _blocks(reply, id),
        "stop_reason": "end_turn" if reply.call is None else "tool_use",
        "stop_sequence": None,
        "usage": _usage(asked, reply),
    }


def stream(reply: Reply, asked: Asked, id: str) -> Iterator[Piece]:
    done = whole(reply, asked, id)

    def told(kind: str, *, text: bool = False, **values: Any) -> Piece:
        return event({"type": kind, **values}, kind, text=text)

    yield told("message_start", message={**done, "content": [], "stop_reason": None})
    for index, block in enumerate(done["content"]):
        empty = {"thinking": "", "text": "", "signature": "", "input": {}}
        begun = {key: empty.get(key, value) for key, value in block.items()}
        yield told("content_block_start", index=index, content_block=begun)
        for kind, key, value in _deltas(reply, block):
            delta = {"type": kind, key: value}
            is_text = kind == "text_delta"
            yield told("content_block_delta", text=is_text, index=index, delta=delta)
        yield told("content_block_stop", index=index)
    end = {"stop_reason": done["stop_reason"], "stop_sequence": None}
    yield told("message_delta", delta=end, usage=done["usage"])
    yield told("message_stop")


def _deltas(reply: Reply, block: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    match block["type"]:
        case "thinking":
            for thought in reply.thoughts:
                yield "thinking_delta", "thinking", thought
            yield "signature_delta", "signature", block["signature"]
        case "text":
            for chunk in reply.chunks:
                yield "text_delta", "text", chunk
        case _:
            yield "input_json_delta", "partial_json", json.dumps(block["input"])


def error(status: int, message: str) -> Any:
    return {
        "type": "error",
        "error": {"type": _ERRORS.get(status, "api_error"), "message": message},
    }
