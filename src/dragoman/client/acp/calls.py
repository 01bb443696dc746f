"""What an agent told of its tool calls, for the questions that tell less.

Owns the memory of a session's open tool calls, how it completes a question that names little more
than an id, and the `Question` that a request of the agent becomes. What an agent said before, it
cannot take back by asking about a reading: the kind it told earlier counts unless something shows
that it changed. What a question means to a policy is not known here
(`dragoman.client.permissions`, `dragoman.policy`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dragoman.client.permissions import READING, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.wire.messages import UNDECODABLE

MAX_CALLS: Final = 512
"""Tool calls of a session that are remembered while they are open. Nobody has so many open at once,
and an agent that never ends one must not fill our memory."""

UNSAID: Final = (None, "other")
"""Kinds that say nothing."""

_OVER: Final = frozenset({"completed", "failed"})


class KnownCall:
    """What is known of one tool call: of every field, what was told last."""

    __slots__ = ("begun", "content", "kind", "locations", "raw_input", "title")

    def __init__(self) -> None:
        self.title: str | None = None
        self.kind: str | None = None
        self.content: Any = None
        self.locations: Any = None
        self.raw_input: Any = None
        self.begun = False
        """Whether the tool runs: then its content may be what it returned."""

    def add(self, update: acp.ToolCall | acp.ToolCallUpdate) -> None:
        # What is empty takes nothing back.
        if update.title:
            self.title = update.title
        if update.kind:
            self.kind = update.kind
        if update.content:
            self.content = update.content
        if update.locations:
            self.locations = update.locations
        if update.raw_input:
            self.raw_input = update.raw_input
        if update.status == "in_progress":
            self.begun = True

    def completed(self, call: acp.ToolCallUpdate) -> acp.ToolCallUpdate:
        """The tool call of a question, with what was told before where it says nothing."""
        return replace(
            call,
            title=call.title or self.title,
            kind=self._kind(call),
            content=call.content or self.content,
            locations=call.locations or self.locations,
            raw_input=call.raw_input or self.raw_input or self._written_input(),
        )

    def _written_input(self) -> dict[str, Any] | None:
        """The input of a call that its agent writes as JSON into the content, as Kimi does before
        it asks: the path or the command is told nowhere else until the tool runs."""
        if self.begun or not isinstance(self.content, list | tuple) or len(self.content) != 1:
            return None
        block = getattr(self.content[0], "content", None)
        if not isinstance(block, acp.TextContent) or not block.text.lstrip().startswith("{"):
            return None
        try:
            told = msgspec.json.decode(block.text)
        except UNDECODABLE:
            return None
        return told if isinstance(told, dict) and told else None

    def _kind(self, call: acp.ToolCallUpdate) -> str | None:
        claimed = call.kind
        if claimed is None or self.kind is None:
            return claimed or self.kind
        if claimed in READING and self.kind not in READING:
            # A call that was none becomes a reading only by what it shows of itself, and never if
            # it was announced as something worse.
            shown = call.raw_input or call.locations or call.content
            return claimed if shown and self.kind in UNSAID else self.kind
        return claimed


class Calls:
    """The open tool calls of one session."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, KnownCall] = {}

    def __len__(self) -> int:
        return len(self._told)

    def heard(self, update: acp.ToolCall | acp.ToolCallProgress) -> None:
        """An update told of a call. This is done for every one of them, so it is kept short."""
        id = update.tool_call_id
        if update.status in _OVER:
            self._told.pop(id, None)
            return
        told = self._told.get(id)
        if told is None:
            if len(self._told) >= MAX_CALLS:
                del self._told[next(iter(self._told))]
            told = self._told[id] = KnownCall()
        told.add(update)

    def completed(self, call: acp.ToolCallUpdate) -> acp.ToolCallUpdate:
        """The tool call of a question, with what was told of it before."""
        told = self._told.get(call.tool_call_id)
        return call if told is None else told.completed(call)


def completed(call: acp.ToolCallUpdate, updates: Iterable[acp.SessionUpdate]) -> acp.ToolCallUpdate:
    """The same from a list of updates, for those who keep them all."""
    calls = Calls()
    for update in updates:
        if isinstance(update, acp.ToolCall | acp.ToolCallProgress):
            calls.heard(update)
    return calls.completed(call)


def question_of(
    asked: acp.RequestPermissionRequest, *, call: acp.ToolCallUpdate, request_id: str = ""
) -> Question:
    """The question that a request asks; `call` is its tool call with what was told before."""
    return Question(
        session_id=asked.session_id,
        tool_call_id=call.tool_call_id,
        title=call.title or "",
        kind=call.kind or "other",
        options=asked.options,
        tool_call=call,
        request_id=request_id,
    )
