"""A Codex app-server that follows a script, as a separate program.

It refuses what the real one refuses: requests before the handshake, a second handshake, unknown
methods, experimental fields and misspelt settings. All other calls get the normal response, unless
the script says otherwise. Every message in both directions is written to a file. It imports nothing
from dragoman, so that it is an independent witness.

    codex_server.py WIRE SCRIPT

SCRIPT is JSON: for each method, a list with the steps for its first call, its second and so on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NoReturn

LIFE_LIMIT = 120
"""Seconds after which it ends in any case, even if a test forgets it."""

METHODS = (
    *("initialize", "account/read", "account/rateLimits/read", "model/list", "thread/start"),
    *("thread/resume", "thread/fork", "thread/list", "thread/read", "thread/name/set"),
    *("thread/archive", "thread/unarchive", "thread/delete", "thread/unsubscribe"),
    *("turn/start", "turn/steer", "turn/interrupt"),
)
SANDBOXES = {
    "read-only": {"type": "readOnly"},
    "workspace-write": {"type": "workspaceWrite"},
    "danger-full-access": {"type": "dangerFullAccess"},
}
POLICIES = ("untrusted", "on-request", "never")
EXPERIMENTAL = ("experimentalRawEvents", "persistExtendedHistory", "dynamicTools", "environments")
"""Fields of `thread/start` that require the opt-in."""

INVALID = -32600
"""The error code of nearly every refusal."""


class Refused(Exception):
    """Raised to answer a request with an error."""

    def __init__(self, message: str, code: int = INVALID) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message}


def thread(id: str, cwd: str) -> dict[str, Any]:
    return {
        **{"id": id, "sessionId": id, "cwd": cwd, "preview": "", "turns": [], "ephemeral": False},
        **{"cliVersion": "0.166.0", "createdAt": 1, "updatedAt": 1, "source": "appServer"},
        **{"modelProvider": "fake", "status": {"type": "idle"}, "projectId": None},
    }


class Server:
    """One connection."""

    def __init__(self, wire: str, script: dict[str, list[list[dict[str, Any]]]]) -> None:
        self._wire = os.open(wire, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._script = script
        self._hello: dict[str, Any] | None = None
        self._settings: dict[str, Any] = {}
        self._turns = 0

    def run(self) -> NoReturn:
        while True:
            self._take(self._read())

    # -- the wire

    def _read(self) -> Any:
        """The next message. Anything but an object is dropped without a response."""
        while line := sys.stdin.buffer.readline():
            try:
                message = json.loads(line)
            except ValueError:
                message = line.decode("utf-8", "replace")
            self._record("client", message)
            if isinstance(message, dict):
                return message
            sys.stderr.write("dropped a message\n")
        self._record("end", None)
        sys.exit(0)

    def _record(self, side: str, message: Any) -> None:
        os.write(self._wire, json.dumps([side, message]).encode() + b"\n")

    def _send(self, message: dict[str, Any]) -> None:
        self._record("server", message)
        self._write(json.dumps(message))

    def _write(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    # -- requests

    def _take(self, message: dict[str, Any]) -> None:
        method, id = message.get("method"), message.get("id")
        if method is None or id is None:
            return
        try:
            self._require(method, message.get("params") or {})
            steps = self._script.get(method) or []
            if steps:
                self._play(steps.pop(0), id, method, message.get("params") or {})
            else:
                self._send({"id": id, "result": self._result(method, message["params"])})
        except Refused as refusal:
            self._send({"id": id, "error": refusal.error})

    def _require(self, method: str, params: dict[str, Any]) -> None:
        if method not in METHODS:
            raise Refused(f"Invalid request: unknown variant `{method}`, expected one of …")
        if method == "initialize":
            if self._hello is not None:
                raise Refused("Already initialized")
            if not {"name", "version"} <= params.get("clientInfo", {}).keys():
                raise Refused("Invalid request: missing field `name`")
        elif self._hello is None:
            raise Refused("Not initialized")
        elif method.startswith("thread/"):
            self._require_settings(method, params)

    def _require_settings(self, method: str, params: dict[str, Any]) -> None:
        for name, known in (("sandbox", tuple(SANDBOXES)), ("approvalPolicy", POLICIES)):
            if params.get(name) not in (None, *known):
                raise Refused(f"Invalid request: unknown variant `{params[name]}`")
        capabilities = (self._hello or {}).get("capabilities") or {}
        for field in EXPERIMENTAL:
            if field in params and not capabilities.get("experimentalApi"):
                raise Refused(f"{method}.{field} requires experimentalApi capability")

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                self._hello = params
                agent = "dragoman/0.166.0 (test)"
                home = {"codexHome": "/home/user/.codex"}
                return {"userAgent": agent, **home, "platformFamily": "unix", "platformOs": "linux"}
            case "account/read":
                return {"account": None, "requiresOpenaiAuth": False}
            case "model/list" | "thread/list":
                return {"data": [], "nextCursor": None}
            case "thread/start" | "thread/resume" | "thread/fork":
                return self._opened(method, params)
            case "turn/start":
                self._turns += 1
                self._keep(params)
                turn = {"id": f"u{self._turns}", "status": "inProgress", "items": []}
                return {"turn": turn}
            case "thread/read" | "thread/unarchive":
                return {"thread": thread(params["threadId"], self._settings.get("cwd", "/"))}
            case "thread/unsubscribe":
                return {"status": "unsubscribed"}
            case "account/rateLimits/read":
                return {"rateLimits": {}}
            case "turn/steer":
                return {"turnId": params["expectedTurnId"]}
            case _:
                return {}

    def _opened(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._keep(params)
        id = params.get("threadId", "t1")
        cwd = self._settings.get("cwd", "/")
        return {
            "thread": thread("t2" if method == "thread/fork" else id, cwd),
            "model": self._settings.get("model", "fake-model"),
            "modelProvider": "fake",
            "cwd": cwd,
            "approvalPolicy": self._settings.get("approvalPolicy", "on-request"),
            "approvalsReviewer": "user",
            "sandbox": self._settings.get("sandboxPolicy", SANDBOXES["read-only"]),
        }

    def _keep(self, params: dict[str, Any]) -> None:
        """Store settings. They stay in force until a thread or turn request changes them."""
        names = ("cwd", "model", "approvalPolicy", "sandboxPolicy")
        self._settings.update({name: params[name] for name in names if name in params})
        if "sandbox" in params:
            self._settings["sandboxPolicy"] = SANDBOXES[params["sandbox"]]

    # -- the script

    def _play(
        self, steps: list[dict[str, Any]], id: Any, method: str, params: dict[str, Any]
    ) -> None:
        for step in steps:
            ((what, value),) = step.items()
            match what:
                case "answer":
                    self._send({"id": id, "result": self._result(method, params)})
                case "reply":
                    self._send({"id": id, "result": value})
                case "refuse":
                    self._send({"id": id, "error": value})
                case "send":
                    self._send(value)
                case "write":
                    self._write(value)
                case "log":
                    sys.stderr.write(value + "\n")
                    sys.stderr.flush()
                case "await":
                    self._await(value)
                case "die":
                    os.kill(os.getpid(), signal.SIGKILL)

    def _await(self, what: str | int) -> None:
        """Wait for a call of this method, which is answered first, or for the response to the
        request with this id."""
        while True:
            message = self._read()
            self._take(message)
            if "method" in message:
                if message["method"] == what:
                    return
            elif message.get("id") == what and type(message["id"]) is type(what):
                return


if __name__ == "__main__":
    if hasattr(signal, "alarm"):
        signal.alarm(LIFE_LIMIT)
    Server(sys.argv[1], json.loads(sys.argv[2])).run()
