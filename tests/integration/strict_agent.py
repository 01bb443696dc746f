"""Agents of the legacy dialects that refuse whatever their document does not describe.

Written with `json` and `sys.stdin` alone, so that they share no code with the clients they test:

    python strict_agent.py DIALECT LOG [NUMBER]

Each start and each method is a line in LOG. NUMBER chooses the names of `chained`.
"""

# A script in the style of the documents' examples, which have no types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, attr-defined"

import json
import os
import sys
from datetime import UTC, datetime

KIND, LOG = sys.argv[1], sys.argv[2]
NUMBER = int(sys.argv[3]) if len(sys.argv) > 3 else 3

NOT_FOUND, BAD_REQUEST, BAD_PARAMS = -32601, -32600, -32602


class Refused(Exception):
    def __init__(self, code, message):
        self.code, self.message = code, message


def log(word):
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(f"{word}\n")


def write(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(method, **params):
    write({"method": method, "params": params})


def shape(params, required, optional=()):
    """Refuse params that lack a key, have another key, or have one of another type."""
    if not isinstance(params, dict):
        raise Refused(BAD_PARAMS, "params must be an object")
    types = {**required, **dict(optional)}
    for name in required:
        if name not in params:
            raise Refused(BAD_PARAMS, f"missing {name}")
    for name, value in params.items():
        if name not in types:
            raise Refused(BAD_PARAMS, f"unknown field {name}")
        if not isinstance(value, types[name]) or (types[name] is int and value is True):
            raise Refused(BAD_PARAMS, f"bad {name}")


class Oneshot:
    """initialize with a date, then prompt."""

    greeted = False

    def call(self, method, params):
        if method == "initialize":
            shape(params, {"protocolVersion": str, "clientCapabilities": dict})
            if params["protocolVersion"] != "2025-06-18":
                raise Refused(BAD_PARAMS, "unsupported version")
            self.greeted = True
            return {"protocolVersion": "2025-06-18", "serverCapabilities": {}}
        if method != "prompt":
            raise Refused(NOT_FOUND, "Method not found")
        if not self.greeted:
            raise Refused(BAD_REQUEST, "initialize first")
        shape(params, {"text": str})
        note("agent_message_chunk", text="strict ")
        note("agent_message_chunk", text="words")
        usage = {"input_tokens": 1234, "output_tokens": 5678}
        return {"content": "strict words", "finish_reason": "stop", "usage": usage}


class OneshotOlder(Oneshot):
    """Answers the handshake with an older version."""

    def call(self, method, params):
        answer = super().call(method, params)
        return {**answer, "protocolVersion": "2024-11-05"} if method == "initialize" else answer


class Asp:
    """threadStart at once; there is no handshake."""

    service = {"service_name": str, "experimentalRawEvents": bool}
    open = True

    def __init__(self):
        self.threads = []

    def start(self, params):
        shape(params, self.service)
        self.threads.append(f"thread-{len(self.threads) + 1}")
        return {"threadId": self.threads[-1]}

    def call(self, method, params):
        if method == "threadStart":
            if not self.open:
                raise Refused(BAD_REQUEST, "initialize first")
            return self.start(params)
        if method == "threadResume":
            shape(params, {"threadId": str})
            self.known(params)
            return {"threadId": params["threadId"], "turns": []}
        if method != "turn":
            raise Refused(NOT_FOUND, "Method not found")
        shape(params, {"threadId": str, "text": str})
        self.known(params)
        note("turn/progress", threadId=params["threadId"], text="strict ")
        return {
            "threadId": params["threadId"],
            "turnId": "turn-1",
            "status": "complete",
            "content": "strict words",
            "usage": {"input_tokens": 1234, "output_tokens": 5678},
        }

    def known(self, params):
        if params["threadId"] not in self.threads:
            raise Refused(BAD_PARAMS, "no such thread")


class AspHandshake(Asp):
    """initialize with a service name, which answers with the first thread."""

    open = False

    def call(self, method, params):
        if method == "initialize":
            result = self.start(params)
            self.open = True
            return result
        return super().call(method, params)


class Tagged:
    """String version, clientInfo and capabilities; updates with a type."""

    greeted = False
    count = 0

    def call(self, method, params):
        if method == "initialize":
            wanted = {"protocolVersion": str, "clientInfo": dict, "capabilities": dict}
            shape(params, wanted)
            shape(params["clientInfo"], {"name": str, "version": str})
            flags = dict.fromkeys(("terminal", "fs.readTextFile", "fs.writeTextFile"), bool)
            shape(params["capabilities"], {}, flags)
            self.greeted = True
            info = {"name": "my-coding-agent", "version": "1.0.0"}
            return {"protocolVersion": params["protocolVersion"], "agentInfo": info,
                    "capabilities": {"promptCapabilities": {"image": True}}}  # fmt: skip
        if method not in ("session/new", "session/prompt", "session/cancel"):
            raise Refused(NOT_FOUND, "Method not found")
        if not self.greeted:
            raise Refused(BAD_REQUEST, "initialize first")
        if method == "session/new":
            shape(params, {}, {"metadata": dict})
            self.count += 1
            session = {"id": f"session-{self.count}", "metadata": params.get("metadata", {})}
            return {"session": session}
        shape(params, {"sessionId": str}, {"prompt": list, "command": dict})
        if method == "session/cancel":
            return {}
        for part in params["prompt"]:
            shape(part, {"type": str}, {"text": str, "data": str, "mimeType": str})
        for text in ("strict ", "words"):
            update = {"type": "messageChunk", "role": "assistant", "chunk": text}
            note("session/update", sessionId=params["sessionId"], update=update)
        return {"stopReason": "endTurn"}


class TaggedAnyVersion(Tagged):
    """A version may be any text, and nothing else of the handshake is looked at."""

    def call(self, method, params):
        if method == "initialize" and isinstance(params["protocolVersion"], str):
            client = {"clientInfo": {"name": "any", "version": "1"}, "capabilities": {}}
            params = {"protocolVersion": params["protocolVersion"], **client}
        return super().call(method, params)


class Keyed:
    """Integer version and capabilities by name; prompts have `content`."""

    greeted = False
    count = 0

    def call(self, method, params):
        if method == "initialize":
            wanted = {"protocolVersion": int, "clientInfo": dict, "clientCapabilities": dict}
            shape(params, wanted)
            shape(params["clientInfo"], {"name": str}, {"title": str, "version": str})
            able = {"fs": dict, "terminal": bool, "prompt": dict, "mcp": dict}
            shape(params["clientCapabilities"], {}, able)
            self.greeted = True
            info = {"name": "keyed", "version": "1"}
            return {"protocolVersion": 1, "agentInfo": info,
                    "agentCapabilities": {"modes": False, "plan": True},
                    "authMethods": ["none"]}  # fmt: skip
        known = ("session/new", "session/load", "session/prompt", "session/set_mode")
        if method not in (*known, "session/cancel"):
            raise Refused(NOT_FOUND, "Method not found")
        if not self.greeted:
            raise Refused(BAD_REQUEST, "initialize first")
        if method == "session/new":
            shape(params, {"cwd": str}, {"model": dict, "modeId": str, "mcpServers": list})
            self.count += 1
            return {"sessionId": f"session-{self.count}"}
        if method != "session/prompt":
            raise Refused(BAD_PARAMS, "no such session")
        shape(params, {"sessionId": str, "content": list})
        for number, text in enumerate(("strict ", "words")):
            chunk = {"id": "part-1", "index": number, "delta": text}
            note("session/update", sessionId=params["sessionId"], contentChunk=chunk)
        return {"stopReason": "end_turn"}


class KeyedBare(Keyed):
    """One that names no capability, which all are optional. It reads no field but its own."""

    def call(self, method, params):
        if method == "initialize":
            self.greeted = True
            return {"protocolVersion": 1, "agentInfo": {"name": "bare"}, "agentCapabilities": {}}
        if method == "session/prompt":
            params = {name: params[name] for name in ("sessionId", "content") if name in params}
        return super().call(method, params)


class KeyedNewer(Keyed):
    """Answers the handshake with a newer version."""

    def call(self, method, params):
        answer = super().call(method, params)
        return {**answer, "protocolVersion": 2} if method == "initialize" else answer


class Chained:
    """One name of each chain, and no handshake. It remembers its sessions."""

    names = {
        "list": ("session/list", "sessions/list", "list_sessions", "listSessions"),
        "create": ("session/create", "session/start", "create_session", "startSession"),
        "prompt": ("prompt/send", "message/send", "chat/send", "sendMessage"),
    }

    def __init__(self):
        self.own = {chain[NUMBER]: concept for concept, chain in self.names.items()}
        self.file = f"{LOG}.sessions"
        self.turns = 0
        self.sessions = []
        if os.path.exists(self.file):
            with open(self.file, encoding="utf-8") as file:
                self.sessions = json.load(file)

    def call(self, method, params):
        concept = self.own.get(method)
        if concept is None:
            raise Refused(NOT_FOUND, "Method not found")
        if concept == "list":
            shape(params, {}, {"limit": int, "offset": int})
            return {"sessions": self.sessions}
        if concept == "create":
            shape(params, {}, {"title": str, "context": dict})
            session = f"session-{len(self.sessions) + 1}"
            now = datetime.now(UTC).isoformat()
            self.sessions.append({"id": session, "title": "one", "created_at": now})
            with open(self.file, "w", encoding="utf-8") as file:
                json.dump(self.sessions, file)
            return {"sessionId": session, "status": "active"}
        shape(params, {"sessionId": str, "message": str}, {"attachments": list, "stream": bool})
        self.turns += 1
        turn = f"turn-{self.turns}"
        about = {"sessionId": params["sessionId"], "turnId": turn}
        for text in ("strict ", "words"):
            note("text/delta", **about, delta=text, type="text")
        note("completion/status", **about, status="completed", detail=None)
        return {"turnId": turn, "status": "processing"}


def main():
    kinds = {"oneshot": Oneshot, "asp": Asp, "asp-handshake": AspHandshake,
             "oneshot-older": OneshotOlder,
             "tagged": Tagged, "tagged-any-version": TaggedAnyVersion,
             "keyed": Keyed, "keyed-bare": KeyedBare, "keyed-newer": KeyedNewer,
             "chained": Chained}  # fmt: skip
    log("started")
    agent = kinds[KIND]()
    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        log(method)
        if id is None:
            continue
        try:
            write({"id": id, "result": agent.call(method, message.get("params"))})
        except Refused as refused:
            write({"id": id, "error": {"code": refused.code, "message": refused.message}})


if __name__ == "__main__":
    main()
