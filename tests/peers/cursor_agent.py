"""A stand-in for Cursor's agent, which no registry has: it follows what is public about it.

UNVERIFIED: written from Cursor's documentation of ``agent acp`` (cursor.com/docs/cli/acp) and from
reports of people who ran it, read 2026-11-16; nobody here has seen the program. Owns one process
that speaks ACP on stdio with the standard library only, so that nothing of ours stands on both
sides. What the prompt says, happens: ``write NAME``, ``slow``, ``plan``, ``ask``; else an echo.

    python cursor_agent.py acp
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any, Final

VERSION: Final = "2026.10.01-stand-in"

MODES: Final = (("agent", "Agent"), ("plan", "Plan"), ("ask", "Ask"))

OPTIONS: Final = [
    {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "allow-always", "name": "Allow always", "kind": "allow_always"},
    {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"},
]

LINE_SIZE: Final = 1 << 20

SLOW_INTERVAL: Final = 0.05
SLOW_WORDS: Final = 600


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Cursor:
    """The agent."""

    def __init__(self) -> None:
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._sessions: dict[str, str] = {}
        self._turns: dict[str, asyncio.Task[None]] = {}

    # -- the wire

    async def serve(self) -> None:
        reader = asyncio.StreamReader(LINE_SIZE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async with asyncio.TaskGroup() as turns:
            while line := await reader.readline():
                self._hear(json.loads(line), turns)
            for turn in self._turns.values():
                turn.cancel()

    def _hear(self, message: dict[str, Any], turns: asyncio.TaskGroup) -> None:
        if "method" not in message:
            waiting = self._asked.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            return
        method, params = message["method"], message.get("params") or {}
        if method == "session/cancel":
            if params["sessionId"] in self._turns:
                self._turns[params["sessionId"]].cancel()
        elif method == "session/prompt":
            turn = turns.create_task(self._turn(message["id"], params))
            self._turns[params["sessionId"]] = turn
        elif method == "authenticate" and not _logged_in():
            # Without a login it opens a browser somewhere, and an answer never comes.
            return
        elif "id" in message:
            try:
                _send(id=message["id"], result=self._answer(method, params))
            except Refused as error:
                told = {"code": error.code, "message": str(error)}
                _send(id=message["id"], error=told)

    def _answer(self, method: str, params: dict[str, Any]) -> Any:
        match method:
            case "initialize":
                return HELLO
            case "authenticate":
                return {}
            case "session/new":
                return self._open(str(uuid.uuid4()), params)
            case "session/load":
                return self._load(params)
            case "session/list":
                listed = (json.loads(path.read_text()) for path in _store().glob("*.json"))
                return {
                    "sessions": [
                        {"sessionId": one["id"], "cwd": one["cwd"], "title": one["said"][0][1]}
                        for one in listed
                    ]
                }
            case "session/set_mode":
                if params["modeId"] not in dict(MODES):
                    raise Refused(-32602, "Invalid params")
                return {}
            case _:
                raise Refused(-32601, f'"Method not found": {method}')

    # -- sessions

    def _open(self, id: str, params: dict[str, Any]) -> dict[str, Any]:
        if not _logged_in():
            raise Refused(-32000, "Authentication required")
        self._sessions[id] = params["cwd"]
        modes = [{"id": mode, "name": name} for mode, name in MODES]
        return {"sessionId": id, "modes": {"currentModeId": "agent", "availableModes": modes}}

    def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        id = params["sessionId"]
        file = _store() / f"{id}.json"
        if not file.exists():
            raise Refused(-32602, f"Session not found: {id}")
        opened = self._open(id, params)
        for role, text in json.loads(file.read_text())["said"]:
            _update(id, f"{role}_message_chunk", content={"type": "text", "text": text})
        del opened["sessionId"]
        return opened

    def _remember(self, id: str, said: list[tuple[str, str]]) -> None:
        file = _store() / f"{id}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(file.read_text())["said"] if file.exists() else []
        kept = {"id": id, "cwd": self._sessions[id], "said": [*before, *said]}
        file.write_text(json.dumps(kept))

    # -- turns

    async def _turn(self, id: Any, params: dict[str, Any]) -> None:
        session = params["sessionId"]
        prompt = "".join(block.get("text", "") for block in params["prompt"])
        try:
            _update(session, "agent_thought_chunk", content={"type": "text", "text": "Hm."})
            text = await self._work(session, prompt)
            self._remember(session, [("user", prompt), ("agent", text)])
            _send(id=id, result={"stopReason": "end_turn"})
        except asyncio.CancelledError:
            _send(id=id, result={"stopReason": "cancelled"})
        finally:
            del self._turns[session]

    async def _work(self, session: str, prompt: str) -> str:
        word, _, rest = prompt.partition(" ")
        match word:
            case "write":
                return await self._write(session, rest)
            case "slow":
                for number in range(SLOW_WORDS):
                    self._say(session, f"slow-{number} ")
                    await asyncio.sleep(SLOW_INTERVAL)
                return "slow"
            case "plan":
                return await self._plan(session)
            case "ask":
                answer = await self._ask("cursor/ask_question", QUESTION)
                return self._say(session, f"The answer: {_outcome(answer)}")
            case _:
                return "".join(self._say(session, piece) for piece in ("You ", "said: ", prompt))

    async def _write(self, session: str, name: str) -> str:
        path = Path(self._sessions[session]) / name
        call = {"toolCallId": "tool_1", "title": f"Edit {name}", "kind": "edit"}
        # It tells a call anew while its arguments become known.
        _update(session, "tool_call", **call, status="pending")
        _update(session, "tool_call", **call, status="pending", rawInput={"path": str(path)})
        asked = {"sessionId": session, "toolCall": call, "options": OPTIONS}
        answer = await self._ask("session/request_permission", asked)
        outcome = answer.get("result", {}).get("outcome", {})
        allowed = str(outcome.get("optionId", "")).startswith("allow")
        if allowed:
            path.write_text("written by the stand-in\n")
        status = "completed" if allowed else "failed"
        _update(session, "tool_call_update", toolCallId="tool_1", status=status)
        return self._say(session, "I wrote it." if allowed else "I was not allowed to write it.")

    async def _plan(self, session: str) -> str:
        todos = [{"id": "1", "content": "Look", "status": "in_progress"}]
        _send(method="cursor/update_todos", params={"toolCallId": "tool_1", "todos": todos})
        answer = await self._ask("cursor/create_plan", {"toolCallId": "tool_1", "plan": "# Plan"})
        return self._say(session, f"The plan: {_outcome(answer)}")

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id = next(_ids)
        self._asked[id] = asyncio.get_running_loop().create_future()
        _send(id=id, method=method, params=params)
        return await self._asked[id]

    def _say(self, session: str, text: str) -> str:
        _update(session, "agent_message_chunk", content={"type": "text", "text": text})
        return text


HELLO: Final = {
    "protocolVersion": 1,
    "agentInfo": {"name": "cursor-agent", "title": "Cursor", "version": VERSION},
    "agentCapabilities": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": False},
        "mcpCapabilities": {"http": True, "sse": True},
        "sessionCapabilities": {"list": {}},
    },
    "authMethods": [
        {
            "id": "cursor_login",
            "name": "Cursor login",
            "description": "Run 'agent login' first if not logged in.",
        }
    ],
}

QUESTION: Final = {
    "toolCallId": "tool_1",
    "title": "Colour",
    "questions": [{"id": "q", "prompt": "Which?", "options": [{"id": "b", "label": "Blue"}]}],
}

_ids = iter(range(1_000_000))


def _send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _update(session: str, what: str, **update: Any) -> None:
    params = {"sessionId": session, "update": {"sessionUpdate": what, **update}}
    _send(method="session/update", params=params)


def _outcome(answer: dict[str, Any]) -> str:
    """What a client said to an extension: without an answer that it knows, it goes on."""
    return str(answer.get("result", {}).get("outcome", {}).get("outcome", "none"))


def _logged_in() -> bool:
    return bool(os.environ.get("CURSOR_API_KEY") or os.environ.get("CURSOR_AUTH_TOKEN"))


def _store() -> Path:
    return Path(os.environ["HOME"]) / ".cursor" / "acp-sessions"


if __name__ == "__main__":
    if sys.argv[-1] != "acp":
        sys.exit("error: unknown command or option")
    asyncio.run(Cursor().serve())
