"""The story in the keyed dialect, where an update's keys name its contents.

Written from the dialect's specification. A session can be loaded but not listed, a permission has
three possible answers, and an update of a tool call has at most one changed file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dragoman.testing.storyteller.story import ChangeFile, Fail
from dragoman.testing.storyteller.teller import INTERNAL_ERROR, Call, Params, Teller

ASKABLE = ("edit", "execute", "delete")


class KeyedTeller(Teller):
    """An agent of the keyed dialect."""

    name = "keyed"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._index = 0
        self._permissions = 0
        self.requests = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/set_mode": self._set_mode,
            "session/prompt": self._prompt,
        }

    def _initialize(self, id: Any, params: Params) -> None:
        self.answer(
            id,
            {
                "protocolVersion": 1,
                "agentInfo": {"name": "storyteller", "version": "1.0"},
                "agentCapabilities": {"modes": bool(self.story.choices.modes), "plan": True},
                "authMethods": ["none"],
            },
        )

    def _new(self, id: Any, params: Params) -> None:
        self.begin_with()
        self.mode = params.get("modeId", self.mode)
        if "model" in params:
            named = "/".join(params["model"][key] for key in ("providerID", "modelID"))
            self.values["model"] = named
        opened: Params = {"sessionId": self.new_session()}
        if self.mode is not None:
            modes = self.story.choices.modes
            opened["modes"] = [{"id": mode, "name": mode.title()} for mode in modes]
            opened["currentModeId"] = self.mode
        self.answer(id, opened)

    def _load(self, id: Any, params: Params) -> None:
        past = self.past(params["sessionId"])
        if past is None:
            self.refuse(id, INTERNAL_ERROR, "there is no such session")
            return
        self.session = past.id
        for number, (_, text) in enumerate(past.messages):
            self._chunk(text, f"past-{number}")
        self.answer(id, {"sessionId": past.id})

    def _set_mode(self, id: Any, params: Params) -> None:
        if params["modeId"] not in self.story.choices.modes:
            self.refuse(id, INTERNAL_ERROR, "there is no such mode")
            return
        self.mode = params["modeId"]
        self.answer(id, None)

    def switch(self) -> None:
        self._update(currentModeId=self.mode)

    def _prompt(self, id: Any, params: Params) -> None:
        self.session = params["sessionId"]
        end = self.tell()
        if isinstance(end, Fail):
            self.refuse(id, INTERNAL_ERROR, end.message)
        else:
            self.answer(id, {"stopReason": end.stop})

    def heard(self, method: str, params: Params) -> None:
        if method == "session/cancel" and params.get("sessionId") == self.session:
            self.cancelled = True

    def _update(self, **carried: Any) -> None:
        self.notify("session/update", {"sessionId": self.session, **carried})

    def _chunk(self, text: str, message_id: str) -> None:
        self._update(contentChunk={"id": message_id, "index": self._index, "delta": text})
        self._index += 1

    def say(self, text: str, message_id: str) -> None:
        self._chunk(text, message_id)

    def begin(self, call: Call) -> None:
        begun = call.begun
        told: Params = {
            "toolCallId": begun.id,
            "title": begun.title,
            "kind": begun.kind,
            "status": call.status,
        }
        if begun.path is not None:
            told["locations"] = [{"path": begun.path}]
        self._update(toolCall=told)

    def change(self, call: Call) -> None:
        self._update(toolCall={"toolCallId": call.begun.id, "diff": _diff(call.changes[-1])})

    def finish(self, call: Call) -> None:
        told: Params = {"toolCallId": call.begun.id, "status": call.status}
        told["content"] = [{"type": "text", "text": call.output}] if call.output else []
        if call.changes:
            told["diff"] = _diff(call.changes[-1])
        self._update(toolCall=told)

    def plan(self, entries: Sequence[tuple[str, str]]) -> None:
        self._update(plan={"steps": [{"title": text, "status": s} for text, s in entries]})

    def ask(self, call: Call) -> bool:
        self._permissions += 1
        begun = call.begun
        question = {
            "sessionId": self.session,
            "permissionId": f"permission-{self._permissions}",
            "title": begun.title,
            "kind": begun.kind if begun.kind in ASKABLE else "other",
            "toolCallId": begun.id,
        }
        result = self.request("session/request_permission", question) or {}
        return result.get("decision") in ("once", "always") and not result.get("cancelled")


def _diff(change: ChangeFile) -> Params:
    diff: Params = {"path": change.path, "newContent": change.new}
    if change.old is not None:
        diff["oldContent"] = change.old
    return diff
