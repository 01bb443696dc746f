"""The story in the threads dialect, in which the response to a turn has its whole result.

Written from the dialect's specification. The handshake, which opens the first thread, is optional.
The dialect defines no notifications for progress, so this agent uses its own.
"""

from __future__ import annotations

from typing import Any

from dragoman.testing.storyteller.story import Fail
from dragoman.testing.storyteller.teller import INTERNAL_ERROR, Params, Teller


class ThreadsTeller(Teller):
    """An agent of the threads dialect."""

    name = "threads"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._threads = 0
        self._turns = 0
        self._said = ""
        self.requests = {
            "initialize": self._start,
            "threadStart": self._start,
            "threadResume": self._resume,
            "turn": self._turn,
        }

    def _start(self, id: Any, params: Params) -> None:
        if "service_name" not in params:
            self.refuse(id, -32602, "service_name is missing")
            return
        self._threads += 1
        self.answer(id, {"threadId": f"thread-{self._threads}"})

    def _resume(self, id: Any, params: Params) -> None:
        past = self.past(params["threadId"])
        if past is None:
            self.refuse(id, INTERNAL_ERROR, "there is no such thread")
            return
        pairs = zip(past.messages[::2], past.messages[1::2], strict=True)
        turns = [
            {"turnId": f"past-{n}", "status": "complete", "text": asked, "content": said}
            for n, ((_, asked), (_, said)) in enumerate(pairs)
        ]
        self.answer(id, {"threadId": past.id, "turns": turns})

    def _turn(self, id: Any, params: Params) -> None:
        self._turns += 1
        self._said = ""
        end = self.tell()
        thread, turn = params["threadId"], f"turn-{self._turns}"
        result: Params = {"threadId": thread, "turnId": turn, "status": "complete"}
        if isinstance(end, Fail):
            error = {"code": end.reason, "message": end.message}
            self.answer(id, {**result, "status": "error", "error": error})
            return
        result["content"] = self._said
        self.answer(id, {**result, **self.usage()})

    def say(self, text: str, message_id: str) -> None:
        self._said += text
        self.notify("storyteller/said", {"text": text})
