"""OpenAI's responses: ``POST /v1/responses``, which Codex uses.

Only the wire format; `triggers` decides the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from dragoman.testing.fake_model.chat import error
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

__all__ = ["error", "read", "stream", "whole"]

_RESULTS: Final = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def read(body: dict[str, Any], path: str) -> Asked:
    text = ""
    results: list[str] = []
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
    for item in items:
        if item.get("role") == "user" and (spoken := last_text(texts(item.get("content")))):
            text, results = spoken, []
        elif item.get("type") in _RESULTS:
            results.append(said(item.get("output")))
    return Asked(
        str(body.get("model", "")),
        text,
        tuple(results),
        tuple(_tools(body.get("tools"))),
        body.get("stream") is True,
        schema_of(dict_of(body.get("text")).get("format"), "schema"),
    )


def _tools(tools: Any, namespace: str = "") -> Iterator[Tool]:
    for tool in objects(tools):
        if tool.get("type") in ("function", "custom"):
            schema = dict_of(tool.get("parameters"))
            yield Tool(str(tool.get("name")), schema, tool["type"] == "custom", namespace)
        elif tool.get("type") == "namespace" and not namespace:
            # Codex groups the tools of each MCP server.
            yield from _tools(tool.get("tools"), str(tool.get("name")))


def _usage(asked: Asked, reply: Reply) -> dict[str, Any]:
    heard, spoken = usage_of(asked, reply)
    return {
        "input_tokens": heard,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": spoken,
        "output_tokens_details": {"reasoning_tokens": len(reply.thoughts)},
        "total_tokens": heard + spoken,
    }


def _reasoning(reply: Reply, id: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": reply.thought}]
    return {"type": "reasoning", "id": f"rs_{id}", "summary": summary, "encrypted_content": None}


def _message(reply: Reply, id: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": reply.text, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{id}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _call(call: ToolCall, id: str) -> dict[str, Any]:
    base = {"id": f"fc_{id}", "call_id": f"call_{id}", "name": call.name, "status": "completed"}
    if call.namespace:
        base["namespace"] = call.namespace
    if isinstance(call.arguments, str):
        return {"type": "custom_tool_call", **base, "input": call.arguments}
    return {"type": "function_call", **base, "arguments": json.dumps(call.arguments)}


def _items(reply: Reply, id: str) -> list[dict[str, Any]]:
    items = [_reasoning(reply, id)] if reply.thoughts else []
    if reply.chunks:
        items.append(_message(reply, id))
    if reply.call is not None:
        items.append(_call(reply.call, id))
    return items


def whole(reply: Reply, asked: Asked, id: str) -> Any:
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": 0,
        "model": asked.model,
        "status": "completed",
        "error": None,
        "output": _items(reply, id),
        "usage": _usage(asked, reply),
    }


def stream(reply: Reply, asked: Asked, id: str) -> Iterator[Piece]:
    done = whole(reply, asked, id)
    number = 0

    def told(kind: str, *, is_chunk: bool = False, **values: Any) -> Piece:
        nonlocal number
        number += 1
        return event({"type": kind, "sequence_number": number, **values}, kind, text=is_chunk)

    begun = {**done, "status": "in_progress", "output": [], "usage": None}
    yield told("response.created", response=begun)
    for index, item in enumerate(done["output"]):
        yield told("response.output_item.added", output_index=index, item=_empty(item))
        place = {"item_id": item["id"], "output_index": index}
        match item["type"]:
            case "reasoning":
                place["summary_index"] = 0
                part = {"type": "summary_text", "text": ""}
                yield told("response.reasoning_summary_part.added", **place, part=part)
                for thought in reply.thoughts:
                    yield told("response.reasoning_summary_text.delta", **place, delta=thought)
                yield told("response.reasoning_summary_text.done", **place, text=reply.thought)
            case "message":
                place["content_index"] = 0
                for chunk in reply.chunks:
                    yield told("response.output_text.delta", is_chunk=True, **place, delta=chunk)
            case "function_call":
                arguments = item["arguments"]
                yield told("response.function_call_arguments.delta", **place, delta=arguments)
            case _:
                yield told("response.custom_tool_call_input.delta", **place, delta=item["input"])
        yield told("response.output_item.done", output_index=index, item=item)
    yield told("response.completed", response=done)


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is when it begins: in progress, without its content."""
    nothing: dict[str, Any] = {"summary": [], "content": [], "arguments": "", "input": ""}
    begun = {key: nothing.get(key, value) for key, value in item.items()}
    return {**begun, "status": "in_progress"} if "status" in begun else begun
