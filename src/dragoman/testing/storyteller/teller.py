"""Base class of the tellers: JSON lines, the order of the steps, and waiting.

Has the loop that reads requests and the walk through a story. Each dialect's teller implements the
methods here. It uses plain `json` and nothing of dragoman's own protocols, so that it is an
independent check.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar

from dragoman.testing.storyteller.story import (
    Ask,
    ChangeFile,
    Count,
    Crash,
    End,
    Fail,
    FinishTool,
    Past,
    Say,
    SetOption,
    SetPlan,
    Step,
    Story,
    SwitchMode,
    TellChoices,
    Think,
    UseTool,
    Wait,
)

METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603

Params = dict[str, Any]


class Gone(Exception):
    """The client disconnected."""


@dataclass(slots=True)
class Call:
    """A tool call as reported so far."""

    begun: UseTool
    changes: list[ChangeFile] = field(default_factory=list)
    status: str = "in_progress"
    output: str = ""


class Teller:
    """An agent that tells its story at every prompt. It serves one request at a time."""

    name: ClassVar[str]

    def __init__(self, story: Story, source: IO[bytes], sink: IO[bytes]) -> None:
        self.story = story
        self.calls: dict[str, Call] = {}
        self.count: Count | None = None
        self.cancelled = False
        self.mode: str | None = None
        self.values: dict[str, str] = {}
        self.begin_with()
        self.session = ""
        """The session of the last request."""
        self.sessions = 0
        self.requests: dict[str, Callable[[Any, Params], None]] = {}
        """The handler of each request: called with its id and its params."""
        self._source = source
        self._sink = sink
        self._waiting: list[Params] = []
        self._asked = 0
        self._told = 0
        self._last: type | None = None

    def new_session(self) -> str:
        """Count a new session and return its id."""
        self.sessions += 1
        return f"session-{self.sessions}"

    def past(self, id: str) -> Past | None:
        """Return the session with this id from before this process started, or None."""
        return next((past for past in self.story.past if past.id == id), None)

    def usage(self) -> Params:
        """Return a `usage` member with the tokens of the turn, in snake case; empty if the story
        has none."""
        if self.count is None:
            return {}
        used = {"input_tokens": self.count.input, "output_tokens": self.count.output}
        return {"usage": used}

    # -- lines

    def send(self, **message: Any) -> None:
        self._sink.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._sink.flush()

    def notify(self, method: str, params: Params) -> None:
        self.send(method=method, params=params)

    def answer(self, id: Any, result: Any) -> None:
        self.send(id=id, result=result)

    def refuse(self, id: Any, code: int, message: str) -> None:
        self.send(id=id, error={"code": code, "message": message})

    def read(self) -> Params:
        line = self._source.readline()
        if not line:
            raise Gone
        message: Params = json.loads(line)
        return message

    def run(self) -> None:
        """Serve until the client disconnects."""
        try:
            while True:
                self._serve(self._waiting.pop(0) if self._waiting else self.read())
        except Gone:
            return

    def _serve(self, message: Params) -> None:
        method = message.get("method")
        if method is None:
            # A response without a request.
            return
        if "id" not in message:
            self.heard(method, message.get("params") or {})
        elif method in self.requests:
            self.requests[method](message["id"], message.get("params") or {})
        else:
            self.refuse(message["id"], METHOD_NOT_FOUND, f"unknown method {method}")

    def heard(self, method: str, params: Params) -> None:
        """Handle a notification from the client: here, ignore it. A dialect with notifications
        overrides this."""

    def meanwhile(self, message: Params) -> bool:
        """Handle a message that arrived during a story if it is a notification. Returns whether it
        was handled; otherwise it waits for the end of the story. A dialect may also handle
        requests."""
        if "method" in message and "id" not in message:
            self.heard(message["method"], message.get("params") or {})
            return True
        return False

    def request(self, method: str, params: Params) -> Any:
        """Send a request to the client, wait for the response, and return its result; None for an
        error."""
        self._asked += 1
        id = f"ask-{self._asked}"
        self.send(id=id, method=method, params=params)
        while True:
            message = self.read()
            if message.get("id") == id and "method" not in message:
                return message.get("result")
            if not self.meanwhile(message):
                self._waiting.append(message)

    # -- choices

    def begin_with(self) -> None:
        """Set the mode and every option to its first value, for a new session."""
        choices = self.story.choices
        self.mode = choices.modes[0] if choices.modes else None
        self.values = {id: values[0] for id, values in choices.values.items()}

    def _chosen(self) -> str:
        values = [f"{id} is {value}" for id, value in self.values.items()]
        return "; ".join([f"the mode is {self.mode}", *values])

    # -- the story

    def tell(self) -> End | Fail:
        """Tell the story once, to its end or until it is cancelled, and return how it ended."""
        self.cancelled = False
        self.count = None
        self.calls.clear()
        self._last = None
        end = self._walk(self.story.steps) or End()
        return End("cancelled") if self.cancelled else end

    def _walk(self, steps: Sequence[Step]) -> End | Fail | None:
        for step in steps:
            if self.cancelled:
                return None
            if type(step) is not self._last:
                # Consecutive pieces of text are one message.
                self._told += 1
                self._last = type(step)
            end = self._step(step)
            if end is not None:
                return end
        return None

    def _step(self, step: Step) -> End | Fail | None:
        match step:
            case Say(text=text):
                self.say(text, f"message-{self._told}")
            case Think(text=text):
                self.think(text, f"message-{self._told}")
            case UseTool():
                self.calls[step.id] = Call(step)
                self.begin(self.calls[step.id])
            case ChangeFile():
                self.calls[step.tool].changes.append(step)
                self.change(self.calls[step.tool])
            case FinishTool():
                call = self.calls[step.id]
                call.status, call.output = step.status, step.output
                self.finish(call)
            case SetPlan(entries=entries):
                self.plan(entries)
            case SwitchMode(mode=mode):
                self.mode = mode
                self.switch()
            case SetOption(id=id, value=value):
                self.values[id] = value
                self.choose()
            case TellChoices():
                self.say(self._chosen(), f"message-{self._told}")
            case Count():
                self.count = step
                self.use(step)
            case Ask():
                allowed = self.ask(self.calls[step.tool])
                return self._walk(step.allowed if allowed else step.refused)
            case Wait():
                while not self.cancelled:
                    message = self.read()
                    if not self.meanwhile(message):
                        self._waiting.append(message)
            case Crash(code=code):
                os._exit(code)
            case End() | Fail():
                return step
        return None

    # -- for the dialects. What a dialect cannot express is left out.

    def say(self, text: str, message_id: str) -> None: ...

    def think(self, text: str, message_id: str) -> None: ...

    def begin(self, call: Call) -> None: ...

    def change(self, call: Call) -> None: ...

    def finish(self, call: Call) -> None: ...

    def plan(self, entries: Sequence[tuple[str, str]]) -> None: ...

    def switch(self) -> None:
        """Called when the mode has changed, so that the dialect can report it."""

    def choose(self) -> None:
        """Called when an option has changed, so that the dialect can report it."""

    def use(self, count: Count) -> None: ...

    def ask(self, call: Call) -> bool:
        """Ask whether a tool call may run, and return the answer. Here, for a dialect that cannot
        ask, True."""
        return True
