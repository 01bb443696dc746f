"""An agent of each legacy dialect, written from its document with `json` only.

The first argument is the dialect, the second ``log=FILE``, to which every line that it gets is
added: the bare name of a file would be a part of the program, whose change ends its broker. The
prompt decides what happens: `fail`, `fail_call`, `progress`, `meta`, `who`; everything else is a
turn with text, and with what else the dialect can say: a tool call and a changed file. In the
oneshot and threads dialects, `wait FIFO` says half of its answer, waits for a line in that pipe
and says the rest.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

RATE_LIMIT = {"code": "rate_limit", "message": "Rate limit exceeded for thread-abc123"}
SERVER_ERROR = {"code": -32050, "message": "the model is not there", "data": {"region": "eu"}}
USAGE = {"input_tokens": 1234, "output_tokens": 5678}
DIFF = "@@ -1 +1 @@\n-return\n+pass\n"


class Refused(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def notify(method: str, **params: Any) -> None:
    send({"method": method, "params": params})


def wait(text: str) -> None:
    """Read a line from the pipe that a prompt names, if it names one."""
    command, _, fifo = text.partition(" ")
    if command == "wait":
        with open(fifo) as pipe:
            pipe.readline()


def refuse(error: dict[str, Any]) -> None:
    raise Refused(**error)


class Literal:
    """What all of them share: how a request finds its method."""

    def __init__(self) -> None:
        self.metadata: Any = None
        self.client: Any = None
        self.secret = ""
        self.ids = itertools.count(1)

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        found = getattr(self, method.replace("/", "_"), None)
        if found is None:
            raise Refused(-32601, "Method not found")
        return found(**params)

    def said(self, text: str) -> str:
        match text:
            case "fail_call":
                refuse(SERVER_ERROR)
            case "meta":
                return json.dumps(self.metadata, sort_keys=True)
            case "who":
                return json.dumps(self.client, sort_keys=True)
        return f"You said: {text}"


class Oneshot(Literal):
    def initialize(self, protocolVersion: str, **_: Any) -> Any:
        version = "7" if "--version-7" in sys.argv else "2025-06-18"
        return {"protocolVersion": version, "serverCapabilities": {}}

    def prompt(self, text: str) -> Any:
        said = self.said(text)
        if text == "fail":
            return {"content": "", "finish_reason": "error"}
        if text.startswith("wait "):
            notify("agent_message_chunk", text="Half ")
            wait(text)
            notify("agent_message_chunk", text="done.")
            return {"content": "Half done.", "finish_reason": "stop"}
        notify("agent_message_chunk", text=said)
        notify("tool_call", tool="read_file", input="/c.py")
        notify("file_change", path="c.py", diff=DIFF)
        return {"content": said, "finish_reason": "stop", "usage": USAGE}


class Threads(Literal):
    def threadStart(self, service_name: str, experimentalRawEvents: bool) -> Any:
        return {"threadId": f"thread-{next(self.ids)}"}

    def threadResume(self, threadId: str) -> Any:
        return {"threadId": threadId, "turns": [], "lastResult": None}

    def turn(self, threadId: str, text: str) -> Any:
        told = {"threadId": threadId, "turnId": f"turn-{next(self.ids)}"}
        said = self.said(text)
        if text == "fail":
            return {**told, "status": "error", "error": RATE_LIMIT}
        if text == "progress" or text.startswith("wait "):
            notify("turnProgress", **told, text="Half ")
            wait(text)
            notify("turnProgress", **told, delta="done.")
            return {**told, "status": "complete", "content": "Half done.", "usage": USAGE}
        return {**told, "status": "complete", "content": said, "usage": USAGE}


class Tagged(Literal):
    def initialize(self, protocolVersion: str, clientInfo: Any, **_: Any) -> Any:
        self.client = clientInfo
        info = {"name": "literal", "version": "1.0.0"}
        return {"protocolVersion": protocolVersion, "agentInfo": info, "capabilities": {}}

    def session_new(self, metadata: Any = None) -> Any:
        self.metadata = metadata
        return {"session": {"id": f"session-{next(self.ids)}", "metadata": metadata or {}}}

    def session_prompt(self, sessionId: str, prompt: Any, **_: Any) -> Any:
        text = prompt[0]["text"]
        said = self.said(text)
        if text == "fail":
            return {"stopReason": "error"}
        self.update(sessionId, type="messageChunk", role="assistant", chunk=said)
        call = {"id": "call-1", "name": "read_file"}
        running = {**call, "status": "running", "input": "/c.py"}
        self.update(sessionId, type="toolCall", toolCall=running)
        done = {**call, "status": "completed", "output": "file contents"}
        self.update(sessionId, type="toolCall", toolCall=done)
        return {"stopReason": "endTurn"}

    def session_cancel(self, **_: Any) -> Any:
        return {}

    def update(self, session: str, **update: Any) -> None:
        notify("session/update", sessionId=session, update=update)


class Keyed(Literal):
    def initialize(self, protocolVersion: int, clientInfo: Any, **_: Any) -> Any:
        self.client = clientInfo
        return {
            "protocolVersion": 7 if "--version-7" in sys.argv else 1,
            "agentInfo": {"name": "literal"},
            "agentCapabilities": {"modes": True, "plan": True},
            "authMethods": ["password", "oauth"],
        }

    def authenticate(self, method: str, password: str = "", token: str = "") -> Any:
        if (password or token) != "open sesame":
            raise Refused(-32000, f"wrong {method}")
        self.secret = password or token
        return None

    def session_new(self, cwd: str, **_: Any) -> Any:
        if "--login" in sys.argv and not self.secret:
            raise Refused(-32000, "Authentication required")
        return {"sessionId": f"ses_{next(self.ids)}"}

    def session_prompt(self, sessionId: str, content: Any) -> Any:
        text = content[0]["text"]
        said = self.said(text)
        if text == "fail":
            return {"stopReason": "tool_error"}
        if text == "terminal":
            said = self.terminal(sessionId)
        chunk = {"id": "p1", "index": 0, "delta": said}
        notify("session/update", sessionId=sessionId, contentChunk=chunk)
        diff = {"path": "/c.py", "oldContent": "return\n", "newContent": "pass\n"}
        call = {"toolCallId": "call-1", "title": "Edit c.py", "kind": "edit"}
        notify("session/update", sessionId=sessionId, toolCall={**call, "status": "in_progress"})
        done = {**call, "status": "completed", "diff": diff}
        notify("session/update", sessionId=sessionId, toolCall=done)
        return {"stopReason": "end_turn"}

    def terminal(self, session: str) -> str:
        params = {"sessionId": session, "command": "echo", "args": ["from a terminal"]}
        made = call("terminal/create", params)
        if "error" in made:
            return f"refused: {made['error']['code']}"
        about = {"sessionId": session, "terminalId": made["result"]["terminalId"]}
        call("terminal/wait_for_exit", about)
        output = call("terminal/output", about)
        return str(output["result"]["output"])


class Chained(Literal):
    def session_list(self, limit: int = 50, offset: int = 0) -> Any:
        listed = {
            "id": "session-uuid-123",
            "title": "Session title",
            "created_at": "2024-01-15T10:00:00Z",
            "updated_at": "2024-01-15T10:30:00Z",
            "status": "completed",
        }
        return {"sessions": [listed]}

    def session_create(self, **metadata: Any) -> Any:
        self.metadata = metadata
        return {"sessionId": f"session-{next(self.ids)}", "status": "active"}

    def prompt_send(self, sessionId: str, message: str, **_: Any) -> Any:
        turn = f"turn-{next(self.ids)}"
        told = {"sessionId": sessionId, "turnId": turn}
        said = self.said(message)
        if message == "fail":
            limited = {"code": -32000, "message": "Rate limit exceeded"}
            notify("error", **told, error=limited)
            return {"turnId": turn, "status": "processing"}
        notify("message/delta", **told, delta=said, type="text")
        notify("tool/start", **told, toolId="call-1", name="read_file", input={"path": "/c.py"})
        notify("tool/result", **told, toolId="call-1", output="file contents")
        notify("turn/status", **told, status="completed", detail=None)
        return {"turnId": turn, "status": "processing"}


def lines() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        with open(sys.argv[2].removeprefix("log="), "a") as log:
            log.write(line)
        yield json.loads(line)


READ = lines()


def call(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Ask the client, and wait for its answer."""
    send({"id": 9000, "method": method, "params": params})
    while True:
        message = next(READ)
        if message.get("id") == 9000 and "method" not in message:
            return message


def main() -> None:
    agent = {
        "oneshot": Oneshot,
        "threads": Threads,
        "tagged": Tagged,
        "keyed": Keyed,
        "chained": Chained,
    }[sys.argv[1]]()
    for message in READ:
        if "id" not in message or "method" not in message:
            continue
        try:
            result = agent.answer(message["method"], message.get("params") or {})
        except Refused as refused:
            send({"id": message["id"], "error": refused.error})
        else:
            send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
