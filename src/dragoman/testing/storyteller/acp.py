"""The story in ACP v1, written from the official schema.

A complete agent: the handshake, sessions that can be listed, loaded, resumed and closed, modes,
options, commands, updates, permissions, cancels. It uses nothing of dragoman's own ACP.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dragoman.testing.storyteller.story import Count, Fail
from dragoman.testing.storyteller.teller import INTERNAL_ERROR, Call, Params, Teller

OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "yes-always", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]

INVALID_PARAMS = -32602
NOT_FOUND = -32002


class AcpTeller(Teller):
    """An agent of ACP v1."""

    name = "acp"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.requests = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": lambda id, params: self.answer(id, {}),
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
            "session/prompt": self._prompt,
        }

    # -- requests

    def _initialize(self, id: Any, params: Params) -> None:
        self.answer(
            id,
            {
                "protocolVersion": 1,
                "agentInfo": {"name": "storyteller", "version": "1.0"},
                "agentCapabilities": {
                    "loadSession": True,
                    "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
                },
                "authMethods": [],
            },
        )

    def _new(self, id: Any, params: Params) -> None:
        self.begin_with()
        self.session = self.new_session()
        self.answer(id, {"sessionId": self.session, **self._choices()})
        commands = self.story.choices.commands
        if commands:
            told = [{"name": name, "description": text} for name, text in commands]
            self._update("available_commands_update", availableCommands=told)

    def _list(self, id: Any, params: Params) -> None:
        cwd = os.getcwd()
        past = [{"sessionId": p.id, "cwd": cwd, "title": p.title} for p in self.story.past]
        self.answer(id, {"sessions": past})

    def _load(self, id: Any, params: Params) -> None:
        past = self.past(params["sessionId"])
        if past is None:
            self.refuse(id, NOT_FOUND, "there is no such session")
            return
        self.session = past.id
        for number, (who, text) in enumerate(past.messages):
            content = {"type": "text", "text": text}
            self._update(f"{who}_message_chunk", content=content, messageId=f"past-{number}")
        self.answer(id, {})

    def _resume(self, id: Any, params: Params) -> None:
        known = self.past(params["sessionId"]) is not None
        self.answer(id, {}) if known else self.refuse(id, NOT_FOUND, "there is no such session")

    def _prompt(self, id: Any, params: Params) -> None:
        self.session = params["sessionId"]
        end = self.tell()
        if isinstance(end, Fail):
            self.refuse(id, INTERNAL_ERROR, end.message)
            return
        result: Params = {"stopReason": end.stop}
        if self.count is not None:
            result["usage"] = {
                "inputTokens": self.count.input,
                "outputTokens": self.count.output,
                "totalTokens": self.count.input + self.count.output,
            }
        self.answer(id, result)

    def heard(self, method: str, params: Params) -> None:
        if method == "session/cancel" and params.get("sessionId") == self.session:
            self.cancelled = True

    # -- choices

    def _choices(self) -> Params:
        told: Params = {}
        if self.mode is not None:
            modes = [{"id": mode, "name": mode.title()} for mode in self.story.choices.modes]
            told["modes"] = {"currentModeId": self.mode, "availableModes": modes}
        if self.values:
            told["configOptions"] = self._options()
        return told

    def _options(self) -> list[Params]:
        options: list[Params] = []
        for id, values in self.story.choices.values.items():
            option: Params = {"id": id, "name": id.title(), "type": "select"}
            if id == "model":
                option["category"] = "model"
            option["currentValue"] = self.values[id]
            option["options"] = [{"value": value, "name": value.title()} for value in values]
            options.append(option)
        return options

    def _set_mode(self, id: Any, params: Params) -> None:
        if params["modeId"] not in self.story.choices.modes:
            self.refuse(id, INVALID_PARAMS, "there is no such mode")
            return
        self.mode = params["modeId"]
        self.answer(id, {})

    def _set_option(self, id: Any, params: Params) -> None:
        if params["value"] not in self.story.choices.values.get(params["configId"], ()):
            self.refuse(id, INVALID_PARAMS, "there is no such option or value")
            return
        self.values[params["configId"]] = params["value"]
        self.answer(id, {"configOptions": self._options()})

    def switch(self) -> None:
        self._update("current_mode_update", currentModeId=self.mode)

    def choose(self) -> None:
        self._update("config_option_update", configOptions=self._options())

    # -- the story

    def _update(self, kind: str, /, **fields: Any) -> None:
        update = {"sessionUpdate": kind, **fields}
        self.notify("session/update", {"sessionId": self.session, "update": update})

    def say(self, text: str, message_id: str) -> None:
        content = {"type": "text", "text": text}
        self._update("agent_message_chunk", content=content, messageId=message_id)

    def think(self, text: str, message_id: str) -> None:
        content = {"type": "text", "text": text}
        self._update("agent_thought_chunk", content=content, messageId=message_id)

    def begin(self, call: Call) -> None:
        self._update("tool_call", **self._call(call))

    def change(self, call: Call) -> None:
        self._update("tool_call_update", toolCallId=call.begun.id, content=self._content(call))

    def finish(self, call: Call) -> None:
        self._update(
            "tool_call_update",
            toolCallId=call.begun.id,
            status=call.status,
            content=self._content(call),
            rawOutput=call.output,
        )

    def _call(self, call: Call) -> Params:
        begun = call.begun
        fields = {
            "toolCallId": begun.id,
            "title": begun.title,
            "name": begun.name,
            "kind": begun.kind,
            "status": call.status,
            "rawInput": begun.input,
        }
        if begun.path is not None:
            fields["locations"] = [{"path": begun.path}]
        return fields

    def _content(self, call: Call) -> list[Params]:
        content: list[Params] = []
        for change in call.changes:
            diff = {"type": "diff", "path": change.path, "newText": change.new}
            content.append(diff if change.old is None else {**diff, "oldText": change.old})
        if call.output:
            text = {"type": "text", "text": call.output}
            content.append({"type": "content", "content": text})
        return content

    def plan(self, entries: Sequence[tuple[str, str]]) -> None:
        told = [{"content": text, "priority": "medium", "status": s} for text, s in entries]
        self._update("plan", entries=told)

    def use(self, count: Count) -> None:
        self._update("usage_update", used=count.used, size=count.size)

    def ask(self, call: Call) -> bool:
        about = {**self._call(call), "status": "pending"}
        question = {"sessionId": self.session, "toolCall": about, "options": OPTIONS}
        result = self.request("session/request_permission", question) or {}
        outcome = result.get("outcome") or {}
        return str(outcome.get("optionId", "")).startswith("yes")
