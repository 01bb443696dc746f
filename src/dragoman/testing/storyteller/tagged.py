"""The story in the tagged dialect: a string version, metadata, updates with a type.

Written from the dialect's specification. The dialect has no fields for a plan, so a plan is sent as
text. A cancel is a request. Unlike the agent in the specification, this one reads messages during a
turn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dragoman.testing.storyteller.story import Fail
from dragoman.testing.storyteller.teller import Call, Params, Teller


class TaggedTeller(Teller):
    """An agent of the tagged dialect."""

    name = "tagged"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.requests = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/prompt": self._prompt,
            "session/cancel": lambda id, params: self.answer(id, {}),
        }

    def _initialize(self, id: Any, params: Params) -> None:
        if not isinstance(params.get("protocolVersion"), str):
            # A numeric version belongs to another dialect, but gets a response in this one.
            params = {"protocolVersion": "1"}
        self.answer(
            id,
            {
                "protocolVersion": params["protocolVersion"],
                "agentInfo": {"name": "storyteller", "version": "1.0"},
                "capabilities": {"promptCapabilities": {"image": True, "audio": True}},
            },
        )

    def _new(self, id: Any, params: Params) -> None:
        session = {"id": self.new_session(), "metadata": params.get("metadata", {})}
        self.answer(id, {"session": session})

    def _prompt(self, id: Any, params: Params) -> None:
        self.session = params["sessionId"]
        end = self.tell()
        stop = "error"
        if not isinstance(end, Fail):
            stop = {"end_turn": "endTurn", "cancelled": "cancelled"}.get(end.stop, "error")
        self.answer(id, {"stopReason": stop})

    def meanwhile(self, message: Params) -> bool:
        if message.get("method") == "session/cancel":
            self.cancelled = True
            self.answer(message["id"], {})
            return True
        return super().meanwhile(message)

    def _update(self, kind: str, /, **fields: Any) -> None:
        update = {"type": kind, **fields}
        self.notify("session/update", {"sessionId": self.session, "update": update})

    def say(self, text: str, message_id: str) -> None:
        self._update("messageChunk", role="assistant", chunk=text)

    def think(self, text: str, message_id: str) -> None:
        self._update("messageChunk", role="thought", chunk=text)

    def begin(self, call: Call) -> None:
        begun = call.begun
        told = {"id": begun.id, "name": begun.name, "status": "running"}
        if begun.input is not None:
            given = begun.input
            text = given if isinstance(given, str) else json.dumps(given, separators=(",", ":"))
            told["input"] = text
        self._update("toolCall", toolCall=told)

    def finish(self, call: Call) -> None:
        status = "completed" if call.status == "completed" else "error"
        told = {"id": call.begun.id, "name": call.begun.name, "status": status}
        self._update("toolCall", toolCall={**told, "output": call.output})

    def plan(self, entries: Sequence[tuple[str, str]]) -> None:
        self._update("planUpdate", chunk="\n".join(f"{text}: {s}" for text, s in entries))
