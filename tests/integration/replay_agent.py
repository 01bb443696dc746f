"""An agent that answers with a document's own messages, as a program that is plain `json`.

    replay_agent.py LOG DIALECT [METHOD=EXAMPLE…] EXAMPLE…

It writes every line that it gets to LOG. Requests that open something are answered with the
example that the document has for them, or with the one that is named for a method. A prompt is
answered with the examples in their order: notifications are sent, requests are sent and their
answers waited for, and an answer is that of the prompt. Only the ids of answers, the folder of the
document, the session of a prompt and the ids of later turns are replaced. ``family=N`` lets the
dialect chained know the Nth names only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "documents"

OPENINGS: dict[str, dict[str, str]] = {
    "oneshot": {"initialize": "initialized"},
    "threads": {
        "initialize": "initialized",
        "threadStart": "started",
        "threadResume": "resumed",
    },
    "tagged": {
        "initialize": "initialized",
        "session/new": "opened",
        "session/cancel": "cancel_answer",
    },
    "keyed": {
        "initialize": "initialized",
        "authenticate": "",
        "session/new": "opened",
        "session/load": "loaded",
        "session/set_mode": "",
    },
    "chained": {"session/list": "sessions", "session/create": "created"},
}
PROMPTS = {
    "oneshot": "prompt",
    "threads": "turn",
    "tagged": "session/prompt",
    "keyed": "session/prompt",
    "chained": "prompt/send",
}
CHAINS = (
    ("session/list", "sessions/list", "list_sessions", "listSessions"),
    ("session/create", "session/start", "create_session", "startSession"),
    ("prompt/send", "message/send", "chat/send", "sendMessage"),
    ("message/delta", "stream/chunk", "completion/delta", "text/delta"),
    ("tool/start", "function/call", "action/start"),
    ("tool/result", "function/result", "action/result"),
    ("reasoning/delta", "thinking/delta"),
    ("turn/status", "message/status", "completion/status"),
)


class ReplayAgent:
    """One connection on standard input and output."""

    def __init__(self, log: str, dialect: str, words: list[str]) -> None:
        self._log = log
        self._dialect = dialect
        self._examples = json.loads((FOLDER / f"{dialect}.json").read_text())
        named = dict(word.split("=", 1) for word in words if "=" in word)
        self._family = int(named.pop("family", "0"))
        self._answers = {**OPENINGS[dialect], **named}
        self._turn = [word for word in words if "=" not in word]
        self._turns = 0

    def _spelled(self, method: str) -> str:
        """A method of the document in the agent's family of names."""
        for names in CHAINS if self._dialect == "chained" else ():
            if method in names:
                return names[min(self._family, len(names) - 1)]
        return method

    def _written(self, method: str) -> str | None:
        """The document's first name for a method of the client; None if it is not known here."""
        for names in CHAINS if self._dialect == "chained" else ():
            if method in names:
                return names[0] if method == self._spelled(method) else None
        return method

    def _read(self) -> Any:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        with open(self._log, "a") as log:
            log.write(line)
        return json.loads(line)

    def _say(self, message: dict[str, Any]) -> None:
        text = json.dumps(message).replace("/project", os.getcwd())
        if self._turns > 1:
            text = text.replace("turn-uuid-789", f"turn-uuid-789-{self._turns}")
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _answer(self, request: Any, example: str) -> None:
        said = dict(self._examples[example]["message"]) if example else {"result": None}
        self._say({"jsonrpc": "2.0", **said, "id": request["id"]})

    def serve(self) -> None:
        while True:
            message = self._read()
            if "id" not in message or "method" not in message:
                continue
            method = self._written(message["method"])
            if method == PROMPTS[self._dialect]:
                self._take_turn(message)
            elif method in self._answers:
                self._answer(message, self._answers[method])
            else:
                error = {"code": -32601, "message": "Method not found"}
                self._say({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _take_turn(self, prompt: Any) -> None:
        self._turns += 1
        for name in self._turn:
            said = json.loads(json.dumps(self._examples[name]["message"]))
            if "method" not in said:
                self._answer(prompt, name)
                continue
            if "sessionId" in said["params"]:
                said["params"]["sessionId"] = prompt["params"]["sessionId"]
            said["method"] = self._spelled(said["method"])
            self._say(said)
            while "id" in said and self._read().get("id") != said["id"]:
                pass


if __name__ == "__main__":
    ReplayAgent(sys.argv[1], sys.argv[2], sys.argv[3:]).serve()
