"""What a chaos agent does for a prompt.

Turns are generators that yield what they wait for: a response from the client (`Ask`), or time
(`Pause`). `agent` runs the turns and sends the messages.

A prompt is read as the fake model's triggers (``WRITE:path:text``, ``SHELL:command``, ``SLOW``,
``HTTP:400``) or as the plain sentences of the ladder's canaries. Anything else is echoed.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dragoman.testing.chaos import children

SLOW_PIECES: Final = 2000
SLOW_INTERVAL: Final = 0.02
"""Seconds between chunks of a slow answer, which takes 40 seconds: longer than any wait for the end
of a cancelled turn."""

_WRITE: Final = re.compile(
    r"^WRITE:(?P<path>[^:\n]+):(?P<text>.*)$"
    r"|the file (?P<path2>\S+) with exactly this content and nothing else: (?P<text2>.*)$",
    re.MULTILINE,
)
_SHELL: Final = re.compile(
    r"^SHELL:(?P<command>.*)$"
    r"|Run this command in the shell and nothing else: (?P<command2>.*)$",
    re.MULTILINE,
)
_SLOW: Final = re.compile(r"\bSLOW\b|^Count from 1 to")
_FAILURE: Final = re.compile(r"\bHTTP:(\d{3})")

OPTIONS: Final = [
    {"optionId": "go", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


@dataclass(frozen=True, slots=True)
class Ask:
    """Wait for the client's response to this request."""

    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


class TurnFailed(Exception):
    """Raised by a turn, so that its prompt gets an error as the response."""


Steps: TypeAlias = Generator[Ask | Pause, Any, str]
"""The steps of a turn: it yields what it waits for, is sent the client's response (None after a
`Pause`), and returns the stop reason."""


class Turn:
    """One prompt of one session. The agent drives `steps` and sends what is passed to `tell`."""

    def __init__(
        self,
        fault: str,
        session: dict[str, Any],
        text: str,
        number: int,
        offers: dict[str, Any],
        tell: Callable[[dict[str, Any]], None],
        long_line: Callable[[], None],
    ) -> None:
        self.cancelled = False
        self._fault = fault
        self._session = session
        self._text = text
        self._id = f"turn-{number}"
        self._offers = offers
        self._tell = tell
        self._long_line = long_line
        self._calls = 0

    def steps(self) -> Steps:
        if self._fault == "empty-turn":
            return "end_turn"
        if failure := _FAILURE.search(self._text):
            return self._fail(failure[1])
        if _SLOW.search(self._text):
            return (yield from self._speak_slowly())
        if write := _WRITE.search(self._text):
            path = write["path"] or write["path2"]
            return (yield from self._write(path, write["text"] or write["text2"] or ""))
        if shell := _SHELL.search(self._text):
            return (yield from self._run(shell["command"] or shell["command2"]))
        return self._speak()

    # -- text

    def say(self, text: str) -> None:
        content = {"type": "text", "text": text}
        update: dict[str, Any] = {"sessionUpdate": "agent_message_chunk", "content": content}
        if self._fault != "no-turn-ids":
            update["_meta"] = {"turnId": self._id}
        self._tell(update)

    def _speak(self) -> str:
        words = re.findall(r"\S+\s*", f"You said: {self._text}")
        if self._fault == "one-piece":
            self.say("".join(words))
            return "end_turn"
        for number, word in enumerate(words):
            if number == 1 and self._fault == "dies-mid-turn":
                os.write(2, b"chaos: the model went away\n")
                os._exit(3)
            if number == 1 and self._fault == "freezes":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                children.stay()
            if number == 1 and self._fault == "long-line":
                self._long_line()
            self.say(word)
        return "end_turn"

    def _speak_slowly(self) -> Steps:
        for number in range(1, SLOW_PIECES + 1):
            if self.cancelled and self._fault not in ("ignores-cancel", "hang:session/cancel"):
                return "cancelled"
            self.say(f"{number} ")
            yield Pause(SLOW_INTERVAL)
        return "end_turn"

    def _fail(self, status: str) -> str:
        if self._fault != "errors-as-text":
            raise TurnFailed(f"the model answered with {status}")
        self.say(f"Error: {status} the model failed")
        return "end_turn"

    # -- tools

    def _write(self, path: str, text: str) -> Steps:
        path = os.path.join(self._session["cwd"], path)
        call = self._call(f"write {path}", "edit")
        stop = yield from self._permitted(call)
        if stop is not None:
            return stop
        files = self._offers.get("fs")
        if (
            isinstance(files, dict)
            and files.get("writeTextFile")
            and self._fault != "writes-itself"
        ):
            yield Ask("fs/write_text_file", {**self._here(), "path": path, "content": text})
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        self._done(call)
        self.say("It is written.")
        return "end_turn"

    def _run(self, command: str) -> Steps:
        call = self._call(command, "execute")
        stop = yield from self._permitted(call)
        if stop is not None:
            return stop
        if self._offers.get("terminal") and self._fault != "runs-itself":
            words = {"command": "/bin/sh", "args": ["-c", command], "cwd": self._session["cwd"]}
            made = yield Ask("terminal/create", {**self._here(), **words})
            if "result" in made:
                terminal = {**self._here(), "terminalId": made["result"]["terminalId"]}
                yield Ask("terminal/wait_for_exit", terminal)
                yield Ask("terminal/output", terminal)
                yield Ask("terminal/release", terminal)
        else:
            children.run(command, cwd=self._session["cwd"])
        self._done(call)
        self.say("It has run.")
        return "end_turn"

    def _permitted(self, call: dict[str, Any]) -> Generator[Ask | Pause, Any, str | None]:
        """Ask whether a call may run. Returns None if it may, or else why the turn ends."""
        if self._fault == "never-asks":
            return None
        answer = yield Ask(
            "session/request_permission", {**self._here(), "toolCall": call, "options": OPTIONS}
        )
        outcome = answer.get("result", {}).get("outcome", {})
        if outcome.get("outcome") == "cancelled":
            return "cancelled"
        if outcome.get("optionId") == "go" or self._fault == "ignores-refusal":
            return None
        self._update_call(call, "failed")
        if self._fault != "refusal-ends-turn":
            self.say("Then I leave it.")
        return "end_turn"

    def _call(self, title: str, kind: str) -> dict[str, Any]:
        self._calls += 1
        call = {
            "toolCallId": f"{self._id}-call-{self._calls}",
            "title": title,
            "kind": kind,
            "status": "pending",
        }
        self._tell({"sessionUpdate": "tool_call", **call})
        return call

    def _done(self, call: dict[str, Any]) -> None:
        self._update_call(call, "completed")

    def _update_call(self, call: dict[str, Any], status: str) -> None:
        changed = {"toolCallId": call["toolCallId"], "status": status}
        self._tell({"sessionUpdate": "tool_call_update", **changed})

    def _here(self) -> dict[str, Any]:
        return {"sessionId": self._session["id"]}


def usage(text: str) -> dict[str, int]:
    """Return an invented token usage for a turn with this prompt, with words counted as tokens."""
    words = len(text.split())
    return {"inputTokens": words, "outputTokens": words + 2, "totalTokens": 2 * words + 2}
