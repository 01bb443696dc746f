"""Convert the Codex app-server's questions to its user into an `Inquiry`, and the reply back.

Covers its own question lists and the elicitations (forms and URLs) of MCP servers behind it.
`server_requests` receives the requests and calls the callback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dragoman.client.inquiries import Inquiry, Reply
from dragoman.dialects.codex import shapes

_FORMS: Final = frozenset({None, "form", "openai/form", "openaiForm"})


def of_questions(asked: shapes.UserInputRequest) -> Inquiry | None:
    """Return a form with a property for every question. None if a question asks for a secret, which
    does not belong in a form."""
    properties: dict[str, Any] = {}
    for question in asked.questions:
        if question.get("isSecret") is True:
            return None
        properties[str(question.get("id", ""))] = _property(question)
    titles = [str(question.get("question", "")) for question in asked.questions]
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Inquiry(
        asked.thread_id, "; ".join(titles), schema, tool_call_id=asked.item_id, native=asked
    )


def _property(question: Mapping[str, Any]) -> dict[str, Any]:
    text = str(question.get("question", ""))
    found: dict[str, Any] = {"type": "string", "title": str(question.get("header") or text)}
    listed = question.get("options")
    options = [o for o in listed if isinstance(o, dict)] if isinstance(listed, list) else []
    labels = [str(option.get("label", "")) for option in options]
    if labels and question.get("isOther") is not True:
        found["description"] = text
        found["oneOf"] = [
            {"const": label, "title": _title(label, option)}
            for label, option in zip(labels, options, strict=True)
        ]
    else:
        # Other answers are possible too, so this is not an enum.
        found["description"] = f"{text} ({', '.join(labels)})" if labels else text
    return found


def _title(label: str, option: Mapping[str, Any]) -> str:
    described = option.get("description")
    return f"{label}: {described}" if described else label


def answers_of(reply: Reply) -> dict[str, Sequence[str]]:
    """Return the answers by question id; empty unless the form was accepted."""
    if reply.action != "accept":
        return {}
    found: dict[str, Sequence[str]] = {}
    for name, value in (reply.content or {}).items():
        values = value if isinstance(value, list | tuple) else [value]
        found[name] = [str(each) for each in values]
    return found


def of_elicitation(wanted: shapes.ElicitationRequest) -> Inquiry | None:
    """Return an MCP server's request as an `Inquiry`, or None if it is neither a form nor a URL."""
    if wanted.mode == "url" and wanted.url is not None:
        return Inquiry(
            wanted.thread_id,
            wanted.message,
            url=wanted.url,
            page_id=wanted.elicitation_id or "",
            native=wanted,
        )
    if wanted.mode in _FORMS and isinstance(wanted.requested_schema, dict):
        return Inquiry(wanted.thread_id, wanted.message, wanted.requested_schema, native=wanted)
    return None
