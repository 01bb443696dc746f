"""A telling without a process: the lines that go in are known beforehand, those that come out are
given back as JSON."""

from __future__ import annotations

import io
import json
from typing import Any

from dragoman.testing.storyteller import Choices, Past, Step, Story, tell

PAST = Past("old", "Yesterday", (("user", "Who?"), ("agent", "I.")))


def heard(
    dialect: str,
    *messages: Any,
    steps: tuple[Step, ...] = (),
    choices: Choices = Choices(),  # noqa: B008 - it is a value that nobody changes
) -> list[Any]:
    """What a teller says to these messages. Requests are numbered from 1."""
    lines = []
    for number, message in enumerate(messages, 1):
        numbered = message if "id" in message or "note" in message else {"id": number, **message}
        lines.append(json.dumps({k: v for k, v in numbered.items() if k != "note"}) + "\n")
    sink = io.BytesIO()
    tell(Story(steps, (PAST,), choices), dialect, io.BytesIO("".join(lines).encode()), sink)
    said = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert all(message.pop("jsonrpc") == "2.0" for message in said)
    return said


def call(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": params}


def notice(method: str, **params: Any) -> dict[str, Any]:
    return {"note": True, "method": method, "params": params}
