"""The chaos agent: a small agent that speaks ACP v1, with one fault.

Has the loop, the methods and the sessions. A session is stored in a file in its directory, so that
another process of the agent can load it. Turns are in `turns`, bytes in `pipe`, processes in
`children`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import uuid
from typing import Any, Final

from dragoman.testing.chaos import children
from dragoman.testing.chaos.faults import HANG
from dragoman.testing.chaos.pipe import Pipe
from dragoman.testing.chaos.turns import Ask, Pause, Steps, Turn, TurnFailed, usage

VERSION: Final = "1.0"
MEMORY: Final = ".chaos"
"""The subdirectory of a session's directory in which the session is stored."""

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002

MODELS: Final = ("chaos-1", "chaos-2")
MODES: Final = ("ask", "auto")

USAGE: Final = b"error: unexpected argument '--acp' found\n\nUsage: chaos [OPTIONS]\n"


class Refused(Exception):
    """Raised by a method to respond to its request with an error of this code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Running:
    """A running turn, and what it waits for."""

    def __init__(self, id: Any, session: str, turn: Turn, text: str) -> None:
        self.id = id
        self.session = session
        self.turn = turn
        self.text = text
        self.steps: Steps = turn.steps()
        self.wakes_at: float | None = None


class Agent:
    """One agent on standard input and output."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._pipe = Pipe(fault)
        self._offers: dict[str, Any] = {}
        self._sessions: dict[str, dict[str, Any]] = {}
        self._running: list[_Running] = []
        self._waiting: dict[Any, _Running] = {}
        self._held: list[dict[str, Any]] = []
        self._servers: list[children.McpServer] = []
        self._next_id = 0
        self._turns = 0

    # -- the loop

    def run(self) -> int:
        """Serve until the input ends; return the exit code."""
        if self._fault == "exits-with-usage":
            os.write(2, USAGE)
            return 2
        if self._fault == "dies-at-start":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "text-on-stdout":
            os.write(1, b"Hello! What shall we build today?\n> ")
        if self._fault == "noise":
            self._pipe.make_noise()
        if self._fault in ("leaves-grandchild", "leaves-daemon"):
            children.leave_behind(daemon=self._fault == "leaves-daemon")
        while (messages := self._pipe.read(self._rest())) is not None:
            for message in messages:
                self._take(message)
            self._wake()
        if self._fault == "ignores-eof":
            children.stay()
        for server in self._servers:
            server.end()
        return 0

    def _rest(self) -> float | None:
        """Return the seconds until the next paused turn continues, or None if no turn is paused."""
        times = [each.wakes_at for each in self._running if each.wakes_at is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _wake(self) -> None:
        now = time.monotonic()
        for running in list(self._running):
            if running.wakes_at is not None and running.wakes_at <= now:
                running.wakes_at = None
                self._go_on(running, None)

    def _take(self, message: dict[str, Any]) -> None:
        held, self._held = self._held, []
        for late in held:
            self._pipe.send(late)
        if self._fault == "text-on-stdout":
            return
        method = message.get("method")
        if method is None:
            running = self._waiting.pop(message.get("id"), None)
            if running is not None:
                self._go_on(running, message)
            return
        if self._fault == HANG + str(method):
            return
        if "id" not in message:
            self._notified(method, message.get("params"))
            return
        try:
            result = self._request(message["id"], method, message.get("params"))
        except Refused as refusal:
            code = INTERNAL_ERROR if self._fault == "wrong-codes" else refusal.code
            answer = {"id": message["id"], "error": {"code": code, "message": str(refusal)}}
            if self._fault == "answers-late" and refusal.code == METHOD_NOT_FOUND:
                self._held.append(answer)
            else:
                self._answer(answer)
        else:
            if result is not None:
                self._answer({"id": message["id"], "result": result})

    def _answer(self, answer: dict[str, Any]) -> None:
        if self._fault == "unknown-ids":
            self._pipe.send({"id": 1_000_000 + self._turns, "result": {}})
        self._pipe.send(answer)
        if self._fault == "answers-twice":
            self._pipe.send(answer)

    # -- methods

    def _notified(self, method: str, params: Any) -> None:
        if method == "session/cancel" and isinstance(params, dict):
            for running in self._running:
                if running.session == params.get("sessionId"):
                    running.turn.cancelled = True

    def _request(self, id: Any, method: str, params: Any) -> dict[str, Any] | None:
        """Return the result of a request, or None if it is answered later."""
        given = params if isinstance(params, dict) else {}
        match method:
            case "initialize":
                return self._initialize(given)
            case "session/new":
                return self._new(given)
            case "session/list":
                return self._list(given)
            case "session/load":
                return self._load(given)
            case "session/resume":
                return self._resume(given)
            case "session/close":
                self._session(given)
                return {}
            case "session/set_mode":
                self._session(given)
                return {}
            case "session/prompt":
                self._prompt(id, given)
                return None
        raise Refused(METHOD_NOT_FOUND, f'"Method not found": {method}')

    def _initialize(self, given: dict[str, Any]) -> dict[str, Any]:
        if self._fault == "refuses-initialize":
            raise Refused(METHOD_NOT_FOUND, '"Method not found": initialize')
        if self._fault == "no-protocol":
            return {"hello": "world"}
        offers = given.get("clientCapabilities")
        self._offers = offers if isinstance(offers, dict) else {}
        can: dict[str, Any] = {"list": {}, "resume": {}, "close": {}}
        answer: dict[str, Any] = {
            "protocolVersion": 1,
            "agentInfo": {"name": "chaos", "title": "Chaos", "version": VERSION},
            "agentCapabilities": {"loadSession": True, "sessionCapabilities": can},
            "authMethods": [],
        }
        if self._fault == "wrong-version":
            answer["protocolVersion"] = 77
        if self._fault == "needs-login":
            login = {"id": "login", "name": "Log in", "description": "run chaos login"}
            answer["authMethods"] = [login]
        return answer

    def _new(self, given: dict[str, Any]) -> dict[str, Any]:
        cwd, servers = given.get("cwd"), given.get("mcpServers")
        if not isinstance(cwd, str) or not os.path.isabs(cwd) or not isinstance(servers, list):
            raise Refused(
                INVALID_PARAMS, "Invalid params: cwd must be an absolute path and mcpServers a list"
            )
        if self._fault == "needs-login":
            raise Refused(AUTH_REQUIRED, "Authentication required")
        if self._fault == "one-session" and self._sessions:
            raise Refused(INTERNAL_ERROR, "there is a session already")
        if self._fault != "ignores-mcp":
            for server in servers:
                self._start_server(server, cwd)
        id = uuid.uuid4().hex
        self._sessions[id] = {"id": id, "cwd": cwd, "said": []}
        self._remember(self._sessions[id])
        return {"sessionId": id, **_settings(self._fault)}

    def _list(self, given: dict[str, Any]) -> dict[str, Any]:
        cwd = given.get("cwd")
        if self._fault == "forgets-sessions" or not isinstance(cwd, str):
            return {"sessions": []}
        found = []
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(os.path.join(cwd, MEMORY))):
                found.append({"sessionId": name, "cwd": cwd})
        return {"sessions": found}

    def _load(self, given: dict[str, Any]) -> dict[str, Any]:
        session = self._recall(given)
        for text in session["said"]:
            content = {"type": "text", "text": text}
            for kind in ("user_message_chunk", "agent_message_chunk"):
                self._update(session["id"], {"sessionUpdate": kind, "content": content})
        return _settings(self._fault)

    def _resume(self, given: dict[str, Any]) -> dict[str, Any]:
        self._recall(given)
        return _settings(self._fault)

    def _prompt(self, id: Any, given: dict[str, Any]) -> None:
        session = self._session(given)
        blocks = given.get("prompt")
        if not isinstance(blocks, list):
            raise Refused(INVALID_PARAMS, "Invalid params: prompt must be a list of content blocks")
        text = "\n".join(str(b.get("text", "")) for b in blocks if isinstance(b, dict))
        session["said"].append(text)
        self._remember(session)
        self._turns += 1
        turn = Turn(
            self._fault,
            session,
            text,
            self._turns,
            self._offers,
            lambda update: self._update(session["id"], update),
            self._pipe.send_long_line,
        )
        running = _Running(id, session["id"], turn, text)
        self._running.append(running)
        self._go_on(running, None)

    # -- sessions

    def _session(self, given: dict[str, Any]) -> dict[str, Any]:
        session = self._sessions.get(str(given.get("sessionId")))
        if session is None:
            raise Refused(NOT_FOUND, f"Resource not found: session {given.get('sessionId')}")
        return session

    def _recall(self, given: dict[str, Any]) -> dict[str, Any]:
        """Open the requested session, which this or another process stored, and return it. Raises
        `Refused` if it is not stored."""
        id, cwd = str(given.get("sessionId")), str(given.get("cwd"))
        if self._fault == "accepts-unknown-sessions":
            return self._sessions.setdefault(id, {"id": id, "cwd": cwd, "said": ["once"]})
        try:
            if self._fault == "forgets-sessions":
                raise FileNotFoundError
            with open(os.path.join(cwd, MEMORY, os.path.basename(id)), encoding="utf-8") as file:
                session: dict[str, Any] = json.load(file)
        except OSError:
            raise Refused(NOT_FOUND, f"Resource not found: session {id}") from None
        self._sessions[id] = session
        return session

    def _remember(self, session: dict[str, Any]) -> None:
        folder = os.path.join(session["cwd"], MEMORY)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, session["id"]), "w", encoding="utf-8") as file:
            json.dump(session, file)

    def _start_server(self, server: Any, cwd: str) -> None:
        env = {entry["name"]: entry["value"] for entry in server.get("env", ())}
        running = children.McpServer([server["command"], *server["args"]], env, cwd=cwd)
        self._servers.append(running)
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "chaos", "version": VERSION},
        }
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        running.ask(json.dumps(request).encode())

    # -- turns

    def _update(self, session_id: str, update: dict[str, Any]) -> None:
        params = {"sessionId": session_id, "update": update}
        self._pipe.send({"method": "session/update", "params": params})

    def _go_on(self, running: _Running, answer: Any) -> None:
        """Run a turn until it waits again or ends. `answer` is the response that it waited for, or
        None."""
        try:
            step = running.steps.send(answer)
        except StopIteration as ended:
            self._running.remove(running)
            self._end(running, str(ended.value))
        except TurnFailed as failure:
            self._running.remove(running)
            error = {"code": INTERNAL_ERROR, "message": str(failure)}
            self._answer({"id": running.id, "error": error})
        else:
            match step:
                case Pause(seconds=seconds):
                    running.wakes_at = time.monotonic() + seconds
                case Ask(method=method, params=params):
                    id = self._new_id()
                    self._waiting[id] = running
                    self._pipe.send({"id": id, "method": method, "params": params})

    def _end(self, running: _Running, stop: str) -> None:
        result: dict[str, Any] = {"stopReason": stop}
        if self._fault != "no-usage":
            result["usage"] = usage(running.text)
        self._answer({"id": running.id, "result": result})
        if self._fault == "late-updates":
            running.turn.say("One more thing.")

    def _new_id(self) -> int | str:
        number, self._next_id = self._next_id, self._next_id + 1
        return f"chaos-{number}" if self._fault == "string-ids" else number


def _settings(fault: str) -> dict[str, Any]:
    """Return the modes and models of a session."""
    suffix = "-preview" if fault == "preview-models" else ""
    models = [{"value": f"{name}{suffix}", "name": name} for name in MODELS]
    option = {
        "id": "model",
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": models[0]["value"],
        "options": models,
    }
    modes = [{"id": name, "name": name.title()} for name in MODES]
    return {
        "modes": {"currentModeId": MODES[0], "availableModes": modes},
        "configOptions": [option],
    }


def main(fault: str) -> int:
    """Run an agent with this fault until the input ends, and return the exit code."""
    children.limit_life()
    try:
        return Agent(fault).run()
    except BrokenPipeError:
        # The client disconnected.
        return 0
    except KeyboardInterrupt:
        return 130
