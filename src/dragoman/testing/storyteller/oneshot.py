"""The story in the oneshot dialect: one prompt per request, bare notifications.

Written from the dialect's specification. There are no sessions, no ids and no cancel; tool output
is not reported, and a change only as a unified diff.
"""

from __future__ import annotations

import difflib
from typing import Any

from dragoman.testing.storyteller.story import ChangeFile, Fail
from dragoman.testing.storyteller.teller import INTERNAL_ERROR, Call, Params, Teller

VERSION = "2025-06-18"


class OneshotTeller(Teller):
    """An agent that speaks the oneshot dialect."""

    name = "oneshot"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._said = ""
        self.requests = {"initialize": self._initialize, "prompt": self._prompt}

    def _initialize(self, id: Any, params: Params) -> None:
        self.answer(id, {"protocolVersion": VERSION, "serverCapabilities": {"streaming": True}})

    def _prompt(self, id: Any, params: Params) -> None:
        self._said = ""
        end = self.tell()
        if isinstance(end, Fail):
            self.refuse(id, INTERNAL_ERROR, end.message)
            return
        finish = {"end_turn": "stop", "max_tokens": "length"}.get(end.stop, end.stop)
        result: Params = {"content": self._said, "finish_reason": finish}
        self.answer(id, {**result, **self.usage()})

    def say(self, text: str, message_id: str) -> None:
        self._said += text
        self.notify("agent_message_chunk", {"text": text})

    def begin(self, call: Call) -> None:
        self.notify("tool_call", {"tool": call.begun.name, "input": call.begun.input})

    def finish(self, call: Call) -> None:
        if call.status == "completed":
            for change in call.changes:
                self.notify("file_change", {"path": change.path, "diff": unified(change)})


def unified(change: ChangeFile) -> str:
    """Return the change as a unified diff."""
    old = (change.old or "").splitlines(keepends=True)
    new = change.new.splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, change.path, change.path))
