"""Gemini: ``POST /v1beta/models/NAME:streamGenerateContent`` and ``:generateContent``.

Only the wire format; `triggers` decides the answer. The path, not the body, says whether an answer
is streamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dragoman.testing.fake_model.formats import Piece, dict_of, event, objects, said, usage_of
from dragoman.testing.fake_model.triggers import Asked, Reply, Tool, last_text

_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def read(body: dict[str, Any], path: str) -> Asked:
    text, results = "", []
    for content in objects(body.get("contents")):
        parts = list(objects(content.get("parts")))
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if answers:
            results += [_result(answer) for answer in answers]
        elif content.get("role", "user") == "user":
            spoken = last_text(p["text"] for p in parts if isinstance(p.get("text"), str))
            if spoken:
                text, results = spoken, []
    name, _, verb = path.rpartition("/")[2].partition(":")
    config = dict_of(body.get("generationConfig"))
    schema: dict[str, Any] | None = None
    if config.get("responseMimeType") == "application/json":
        given = config.get("responseJsonSchema") or config.get("responseSchema")
        schema = dict_of(given) or {"type": "object"}
    return Asked(
        name,
        text,
        tuple(results),
        tuple(_tools(body.get("tools"))),
        verb == "streamGenerateContent",
        schema,
    )


def _result(answer: Any) -> str:
    response = dict_of(dict_of(answer).get("response"))
    for name in ("output", "error", "result"):
        if isinstance(response.get(name), str):
            return str(response[name])
    return said(response)


def _tools(tools: Any) -> Iterator[Tool]:
    for group in objects(tools):
        for declared in objects(group.get("functionDeclarations")):
            schema = declared.get("parametersJsonSchema") or declared.get("parameters")
            yield Tool(str(declared.get("name")), dict_of(schema))


def _chunk(
    parts: list[dict[str, Any]], asked: Asked, id: str, end: str | None = None
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if end is not None:
        candidate["finishReason"] = end
    return {"candidates": [candidate], "modelVersion": asked.model, "responseId": id}


def _parts(reply: Reply) -> Iterator[tuple[dict[str, Any], bool]]:
    for thought in reply.thoughts:
        yield {"text": thought, "thought": True}, False
    for chunk in reply.chunks:
        yield {"text": chunk}, True
    if reply.call is not None:
        yield {"functionCall": {"name": reply.call.name, "args": reply.call.arguments}}, False


def _usage(asked: Asked, reply: Reply) -> dict[str, int]:
    heard, spoken = usage_of(asked, reply)
    return {
        "promptTokenCount": heard,
        "candidatesTokenCount": spoken,
        "totalTokenCount": heard + spoken,
    }


def stream(reply: Reply, asked: Asked, id: str) -> Iterator[Piece]:
    for part, is_text in _parts(reply):
        yield event(_chunk([part], asked, id), text=is_text)
    # An empty text: a client may drop a chunk without parts, and with it the end.
    end = _chunk([{"text": ""}], asked, id, "STOP")
    yield event({**end, "usageMetadata": _usage(asked, reply)})


def whole(reply: Reply, asked: Asked, id: str) -> Any:
    parts: list[dict[str, Any]] = []
    if reply.thoughts:
        parts.append({"text": reply.thought, "thought": True})
    if reply.chunks:
        parts.append({"text": reply.text})
    parts += [part for part, _ in _parts(reply) if "functionCall" in part]
    return {**_chunk(parts, asked, id, "STOP"), "usageMetadata": _usage(asked, reply)}


def error(status: int, message: str) -> Any:
    word = _STATUSES.get(status, "UNKNOWN")
    return {"error": {"code": status, "message": message, "status": word}}
