"""Track an agent's tool calls, and complete permission requests that omit details.

Remembers the open tool calls of a session, fills in a permission request that has little more than
an id, and builds its `Question`. A permission request may claim that a call only reads although the
call was reported with another kind. The claim counts only if that kind was ``other`` and the
request shows details of the call.
`dragoman.client.permissions` and `dragoman.policy` decide what a question means.
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
"""Maximum number of open tool calls remembered per session. No real session has that many, and
an agent that never ends one must not fill our memory."""

UNSAID: Final = (None, "other")
"""Tool kinds that say nothing about what a call does."""

_OVER: Final = frozenset({"completed", "failed"})


class KnownCall:
    """One tool call: the last reported value of each field."""

    __slots__ = ("begun", "content", "kind", "locations", "raw_input", "title")

    def __init__(self) -> None:
        self.title: str | None = None
        self.kind: str | None = None
        self.content: Any = None
        self.locations: Any = None
        self.raw_input: Any = None
        self.begun = False
        """Whether the tool has started. From then on its content may be output."""

    def add(self, update: acp.ToolCall | acp.ToolCallUpdate) -> None:
        # An empty field does not erase an earlier value.
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
        """Return the tool call of a question, with missing fields filled from earlier updates."""
        return replace(
            call,
            title=call.title or self.title,
            kind=self._kind(call),
            content=call.content or self.content,
            locations=call.locations or self.locations,
            raw_input=call.raw_input or self.raw_input or self._written_input(),
        )

    def _written_input(self) -> dict[str, Any] | None:
        """Return the input of a call if the agent wrote it as JSON into the content, else None.
        Kimi does so before it asks for permission: until the tool runs, the path or command appears
        nowhere else."""
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
            # A call becomes a read only if the request shows it, and never if it was announced as
            # something riskier.
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
        """Record an update about a call, and forget the call if it is over. This runs for every
        such update, so it is kept short."""
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

    def question(self, asked: acp.RequestPermissionRequest, request_id: str = "") -> Question:
        """Return the `Question` for a permission request. Missing details of the tool call are
        filled in from earlier updates."""
        call = asked.tool_call
        told = self._told.get(call.tool_call_id)
        if told is not None:
            call = told.completed(call)
        return Question(
            asked.session_id,
            call.tool_call_id,
            call.title or "",
            call.kind or "other",
            asked.options,
            call,
            request_id,
        )


def question_of(
    asked: acp.RequestPermissionRequest, updates: Iterable[acp.SessionUpdate] = ()
) -> Question:
    """Return the `Question` for a permission request, with missing details of the tool call filled
    in from these updates."""
    calls = Calls()
    for update in updates:
        if isinstance(update, acp.ToolCall | acp.ToolCallProgress):
            calls.heard(update)
    return calls.question(asked)
