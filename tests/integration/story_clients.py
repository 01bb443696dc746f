"""Clients of every dialect with plain `json`: they write down the story that they hear.

A client here opens a session, prompts once, answers what it is asked, and notes in neutral words
what came: each note is a dict with `what` and whatever the dialect told. They are written from the
documents and the official schema, and share no code with dragoman's own clients.
"""

from __future__ import annotations

from typing import Any

from tests.unit.rpc.other_side import OtherSide

Note = dict[str, Any]
ENDS = ("completed", "failed", "error")


class Listener:
    """What the clients share: requests, and notes of which neighbours of one kind are one."""

    def __init__(self, agent: OtherSide, *, allows: bool = True) -> None:
        self.agent = agent
        self.allows = allows
        self.wishes: dict[str, Any] = {}
        """What a session is to be opened with besides, where a dialect can say it."""
        self.notes: list[Note] = []
        self.session = ""
        self._id = 0
        self._known: set[str] = set()
        self._changes: dict[str, list[Note]] = {}
        self._shown = ""
        self._values: dict[str, Any] = {}

    # -- talking

    def send(self, method: str, params: Any) -> int:
        self._id += 1
        self.agent.say({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        return self._id

    async def call(self, method: str, params: Any) -> Any:
        """The answer to a request; what comes meanwhile is heard."""
        return await self.answer_to(self.send(method, params))

    async def answer_to(self, id: int) -> Any:
        while True:
            message = await self.agent.next()
            if "method" not in message and message["id"] == id:
                return message
            if "method" not in message:
                continue
            self.hear(message["method"], message["params"], message)

    def hear(self, method: str, params: Any, message: Any) -> None:
        raise NotImplementedError

    # -- for each dialect

    async def open(self) -> None: ...

    async def prompt(self, text: str) -> None:
        raise NotImplementedError

    # -- notes

    def note(self, what: str, **told: Any) -> None:
        self.notes.append({"what": what, **told})

    def text(self, what: str, text: str) -> None:
        if self.notes and self.notes[-1]["what"] == what:
            self.notes[-1]["text"] += text
        else:
            self.note(what, text=text)

    def finished(self, id: str, status: str, output: Any) -> None:
        if status == "completed":
            self.notes += self._changes.pop(id, [])
        plain = "completed" if status == "completed" else "failed"
        self.note("finished", id=id, status=plain, output=output)

    def changed(self, id: str, changes: list[Note]) -> None:
        if changes:
            self._changes[id] = changes

    def failed(self, message: Any) -> bool:
        if "error" in message:
            self.note("failed", message=message["error"]["message"])
        return "error" in message


class AcpListener(Listener):
    async def open(self) -> None:
        answer = await self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        assert answer["result"]["protocolVersion"] == 1
        assert answer["result"]["agentInfo"]["name"] == "storyteller"
        opened = (await self.call("session/new", {"cwd": "/w", "mcpServers": []}))["result"]
        self.session = opened["sessionId"]
        if "modes" in opened:
            modes = opened["modes"]
            known = [mode["id"] for mode in modes["availableModes"]]
            self.note("modes", known=known, mode=modes["currentModeId"])
        self._options(opened.get("configOptions", ()))

    def _options(self, options: Any) -> None:
        # The mode is told as one of them, too.
        values = {o["id"]: o["currentValue"] for o in options if o["id"] != "mode"}
        if values != self._values:
            self._values = values
            self.note("options", values=values)

    async def prompt(self, text: str) -> None:
        content = [{"type": "text", "text": text}]
        params = {"sessionId": self.session, "prompt": content}
        answer = await self.call("session/prompt", params)
        if not self.failed(answer):
            usage = answer["result"].get("usage")
            if usage is not None:
                self.note("turn", input=usage["inputTokens"], output=usage["outputTokens"])
            self.note("end", stop=answer["result"]["stopReason"])

    def hear(self, method: str, params: Any, message: Any) -> None:
        if method == "session/request_permission":
            call = params["toolCall"]
            self.note("asked", tool=call["toolCallId"], title=call["title"])
            kind = "allow_once" if self.allows else "reject_once"
            chosen = next(o["optionId"] for o in params["options"] if o["kind"] == kind)
            outcome = {"outcome": "selected", "optionId": chosen}
            self.agent.answer(message, {"outcome": outcome})
            return
        assert method == "session/update" and params["sessionId"] == self.session
        update = params["update"]
        match update["sessionUpdate"]:
            case "agent_message_chunk":
                self.text("say", update["content"]["text"])
            case "agent_thought_chunk":
                self.text("think", update["content"]["text"])
            case "plan":
                self.note("plan", entries=[(e["content"], e["status"]) for e in update["entries"]])
            case "current_mode_update":
                self.note("mode", mode=update["currentModeId"])
            case "config_option_update":
                self._options(update["configOptions"])
            case "available_commands_update":
                known = [(c["name"], c["description"]) for c in update["availableCommands"]]
                self.note("commands", known=known)
            case "usage_update":
                self.note("context", used=update["used"], size=update["size"])
            case "tool_call":
                self.note(
                    "tool",
                    id=update["toolCallId"],
                    name=update["name"],
                    title=update["title"],
                    kind=update["kind"],
                    input=update["rawInput"],
                    path=_path(update),
                )
            case "tool_call_update":
                self._updated(update)
            case other:
                raise AssertionError(other)

    def _updated(self, update: Any) -> None:
        id = update["toolCallId"]
        content = update.get("content") or []
        diffs = [item for item in content if item["type"] == "diff"]
        self.changed(
            id,
            [
                {"what": "changed", "path": d["path"], "old": d.get("oldText"), "new": d["newText"]}
                for d in diffs
            ],
        )
        if update.get("status") in ENDS:
            self.finished(id, update["status"], update["rawOutput"])


class OneshotListener(Listener):
    async def open(self) -> None:
        hello = {"protocolVersion": "2025-06-18", "clientCapabilities": {}}
        answer = await self.call("initialize", hello)
        assert answer["result"]["protocolVersion"] == "2025-06-18"

    async def prompt(self, text: str) -> None:
        answer = await self.call("prompt", {"text": text})
        if not self.failed(answer):
            result = answer["result"]
            said = "".join(note["text"] for note in self.notes if note["what"] == "say")
            assert result["content"] == said
            usage = result.get("usage")
            if usage is not None:
                self.note("turn", input=usage["input_tokens"], output=usage["output_tokens"])
            self.note("end", stop={"stop": "end_turn"}.get(result["finish_reason"]))

    def hear(self, method: str, params: Any, message: Any) -> None:
        match method:
            case "agent_message_chunk":
                self.text("say", params["text"])
            case "tool_call":
                self.note("tool", name=params["tool"], input=params["input"])
            case "file_change":
                assert params["diff"].count("@@") == 2
                self.note("changed", path=params["path"])
            case other:
                raise AssertionError(other)


class ThreadsListener(Listener):
    async def open(self) -> None:
        hello = {"service_name": "stories", "experimentalRawEvents": False}
        self.session = (await self.call("threadStart", hello))["result"]["threadId"]

    async def prompt(self, text: str) -> None:
        answer = await self.call("turn", {"threadId": self.session, "text": text})
        result = answer["result"]
        assert result["threadId"] == self.session and result["turnId"]
        if result["status"] == "error":
            self.note("failed", message=result["error"]["message"])
            return
        said = "".join(note["text"] for note in self.notes if note["what"] == "say")
        assert said == result["content"]
        usage = result.get("usage")
        if usage is not None:
            self.note("turn", input=usage["input_tokens"], output=usage["output_tokens"])
        self.note("end", stop={"complete": "end_turn"}[result["status"]])

    def hear(self, method: str, params: Any, message: Any) -> None:
        """Progress has no names in this dialect; its text is the answer so far."""
        self.text("say", params["text"])


class TaggedListener(Listener):
    async def open(self) -> None:
        hello = {
            "protocolVersion": "1",
            "clientInfo": {"name": "my-editor", "version": "1"},
            "capabilities": {"terminal": True},
        }
        answer = await self.call("initialize", hello)
        assert answer["result"]["agentInfo"]["name"] == "storyteller"
        opened = await self.call("session/new", {"metadata": {"workDir": "/w"}})
        self.session = opened["result"]["session"]["id"]

    async def prompt(self, text: str) -> None:
        part = {"type": "text", "text": text}
        params = {"sessionId": self.session, "prompt": [part]}
        stop = (await self.call("session/prompt", params))["result"]["stopReason"]
        if stop == "error":
            self.note("failed")
        else:
            self.note("end", stop={"endTurn": "end_turn"}.get(stop, stop))

    def hear(self, method: str, params: Any, message: Any) -> None:
        assert method == "session/update" and params["sessionId"] == self.session
        update = params["update"]
        match update["type"]:
            case "messageChunk":
                what = {"assistant": "say", "thought": "think"}[update["role"]]
                self.text(what, update["chunk"])
            case "planUpdate":
                self.note("plan", text=update["chunk"])
            case "toolCall":
                call = update["toolCall"]
                if call["id"] not in self._known:
                    self._known.add(call["id"])
                    self.note("tool", id=call["id"], name=call["name"], input=call["input"])
                if call["status"] in ENDS:
                    self.finished(call["id"], call["status"], call["output"])
            case other:
                raise AssertionError(other)


class KeyedListener(Listener):
    async def open(self) -> None:
        hello = {
            "protocolVersion": 1,
            "clientInfo": {"name": "zed"},
            "clientCapabilities": {"prompt": {"image": True}},
        }
        answer = await self.call("initialize", hello)
        assert answer["result"]["agentCapabilities"]["plan"] is True
        opened = (await self.call("session/new", {"cwd": "/w", **self.wishes}))["result"]
        self.session = opened["sessionId"]
        if "modes" in opened:
            known = [mode["id"] for mode in opened["modes"]]
            self.note("modes", known=known, mode=opened["currentModeId"])

    async def prompt(self, text: str) -> None:
        content = [{"type": "text", "text": text}]
        params = {"sessionId": self.session, "content": content}
        answer = await self.call("session/prompt", params)
        if not self.failed(answer):
            self.note("end", stop=answer["result"]["stopReason"])

    def hear(self, method: str, params: Any, message: Any) -> None:
        assert params["sessionId"] == self.session
        if method == "session/request_permission":
            self.note("asked", tool=params["toolCallId"], title=params["title"])
            self.agent.answer(message, {"decision": "once" if self.allows else "reject"})
            return
        assert method == "session/update"
        if "currentModeId" in params:
            self.note("mode", mode=params["currentModeId"])
        if "contentChunk" in params:
            self.text("say", params["contentChunk"]["delta"])
        if "plan" in params:
            entries = [
                (step["title"], step.get("status", "pending")) for step in params["plan"]["steps"]
            ]
            self.note("plan", entries=entries)
        if "toolCall" in params:
            self._call(params["toolCall"])

    def _call(self, call: Any) -> None:
        id = call["toolCallId"]
        if id not in self._known:
            self._known.add(id)
            self.note("tool", id=id, title=call["title"], kind=call["kind"], path=_path(call))
        diff = call.get("diff")
        if diff is not None:
            known = self._changes.setdefault(id, [])
            note = {"what": "changed", "path": diff["path"]}
            note |= {"old": diff.get("oldContent"), "new": diff["newContent"]}
            if note not in known:
                known.append(note)
        for item in call.get("content") or ():
            self._shown = item["text"]
        if call.get("status") in ENDS:
            self.finished(id, call["status"], self._shown)


class ChainedListener(Listener):
    def __init__(self, agent: OtherSide, *, allows: bool = True) -> None:
        super().__init__(agent, allows=allows)
        self._over = False

    async def open(self) -> None:
        answer = await self.call("session/create", {"title": "A story", "context": {}})
        self.session = answer["result"]["sessionId"]

    async def prompt(self, text: str) -> None:
        params = {"sessionId": self.session, "message": text, "attachments": [], "stream": True}
        answer = await self.call("prompt/send", params)
        assert answer["result"]["status"] == "processing"
        turn = answer["result"]["turnId"]
        while not self._over:
            message = await self.agent.next()
            assert message["params"]["turnId"] == turn
            self.hear(message["method"], message["params"], message)

    def hear(self, method: str, params: Any, message: Any) -> None:
        assert params["sessionId"] == self.session
        match method:
            case "message/delta":
                self.text("say", params["delta"])
            case "reasoning/delta":
                self.text("think", params["delta"])
            case "tool/start":
                id, name = params["toolId"], params["name"]
                self.note("tool", id=id, name=name, input=params["input"])
            case "tool/result":
                status = "failed" if params.get("error") else "completed"
                self.finished(params["toolId"], status, params["output"])
            case "error":
                self.note("failed", message=params["error"]["message"])
            case "turn/status":
                self._over = True
                if params["status"] == "completed":
                    self.note("end", stop="end_turn")
            case other:
                raise AssertionError(other)


def _path(call: Any) -> str | None:
    locations = call.get("locations") or [{"path": None}]
    path: str | None = locations[0]["path"]
    return path


LISTENERS: dict[str, type[Listener]] = {
    "acp": AcpListener,
    "oneshot": OneshotListener,
    "threads": ThreadsListener,
    "tagged": TaggedListener,
    "keyed": KeyedListener,
    "chained": ChainedListener,
}
