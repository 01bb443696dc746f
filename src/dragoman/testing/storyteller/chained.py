"""The story in the chained dialect, under one set of its method names.

Written from the dialect's specification, which has several names for each method. This agent knows
only one name of each, which a client has to find. A prompt is acknowledged at once; a notification
ends its turn.
"""

from __future__ import annotations

from typing import Any

from dragoman.testing.storyteller.story import Fail
from dragoman.testing.storyteller.teller import INTERNAL_ERROR, Call, Params, Teller


class ChainedTeller(Teller):
    """An agent of the chained dialect."""

    name = "chained"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._turns = 0
        self._about: Params = {}
        self.requests = {
            "list_sessions": self._list,
            "create_session": self._create,
            "chat/send": self._send,
        }

    def _list(self, id: Any, params: Params) -> None:
        roles = {"user": "user", "agent": "assistant"}
        sessions = [
            {
                "id": past.id,
                "title": past.title,
                "messages": [{"role": roles[who], "content": text} for who, text in past.messages],
            }
            for past in self.story.past
        ]
        self.answer(id, {"sessions": sessions})

    def _create(self, id: Any, params: Params) -> None:
        self.answer(id, {"sessionId": self.new_session(), "status": "active"})

    def _send(self, id: Any, params: Params) -> None:
        self._turns += 1
        self._about = {"sessionId": params["sessionId"], "turnId": f"turn-{self._turns}"}
        self.answer(id, {"turnId": self._about["turnId"], "status": "processing"})
        end = self.tell()
        if isinstance(end, Fail):
            error = {"code": INTERNAL_ERROR, "message": end.message}
            self.notify("error", {**self._about, "error": error})
        else:
            status = "completed" if end.stop == "end_turn" else "error"
            detail = None if end.stop == "end_turn" else end.stop
            self._tell("completion/status", status=status, detail=detail)

    def _tell(self, method: str, **fields: Any) -> None:
        self.notify(method, {**self._about, **fields})

    def say(self, text: str, message_id: str) -> None:
        self._tell("completion/delta", delta=text, type="text")

    def think(self, text: str, message_id: str) -> None:
        self._tell("thinking/delta", delta=text, mode="raw")

    def begin(self, call: Call) -> None:
        begun = call.begun
        self._tell("action/start", toolId=begun.id, name=begun.name, input=begun.input)

    def finish(self, call: Call) -> None:
        failed = {} if call.status == "completed" else {"error": call.output}
        self._tell("action/result", toolId=call.begun.id, output=call.output, **failed)
