"""dragoman's Codex client connected to `codex_server`, and the messages of its scripts."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexConversation, CodexOptions, CodexPeer
from dragoman.events import model
from dragoman.transports import spawn
from tests.conformance import codex_server
from tests.conformance.places import PATIENCE

Step = dict[str, Any]
Script = Mapping[str, Sequence[Sequence[Step]]]
"""For each method, the steps for its first call, its second and so on. Calls without steps get the
normal response."""

ANSWER: Step = {"answer": None}
"""Send the normal response to the call."""

DIE: Step = {"die": None}

OPTIONS = CodexOptions(budgets=Budgets(cancel_grace=PATIENCE, request=PATIENCE))


@dataclass
class Wire:
    """The messages that the server has received and sent so far."""

    path: Path
    events: list[model.Event] = field(default_factory=list)
    """Every event that the client made from them."""

    def records(self) -> list[tuple[str, Any]]:
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        return [(side, message) for side, message in map(json.loads, lines)]

    def of(self, side: str) -> list[Any]:
        return [message for said_by, message in self.records() if said_by == side]

    def methods(self) -> list[str]:
        """The methods that the client called or notified, in order."""
        return [message["method"] for message in self.of("client") if "method" in message]

    def params(self, method: str) -> list[Any]:
        """The params of each call of a method."""
        return [m.get("params") for m in self.of("client") if m.get("method") == method]

    def answer(self, id: int | str) -> Any:
        """The client's response to a request from the server."""
        (found,) = [m for m in self.of("client") if "method" not in m and m["id"] == id]
        return found.get("result", found.get("error"))


@asynccontextmanager
async def codex(
    folder: Path, script: Script | None = None, options: CodexOptions = OPTIONS
) -> AsyncIterator[tuple[CodexPeer, Wire]]:
    """A client connected to a server that plays a script."""
    wire = Wire(folder / "wire.jsonl")
    program = [sys.executable, "-I", "-S", codex_server.__file__, str(wire.path)]
    async with asyncio.timeout(PATIENCE):
        stream = await spawn([*program, json.dumps(script or {})])
        watched = structs.replace(options, on_event=wire.events.append)
        async with await CodexPeer.connect(stream, folder, watched) as peer:
            yield peer, wire


@asynccontextmanager
async def thread(
    folder: Path, script: Script | None = None, options: CodexOptions = OPTIONS
) -> AsyncIterator[tuple[CodexConversation, Wire]]:
    """A new thread on such a server."""
    async with codex(folder, script, options) as (peer, wire), peer.session() as talk:
        assert isinstance(talk, CodexConversation)
        yield talk, wire


def turns(*turns: Sequence[Step]) -> Script:
    """A script in which each turn has these steps between its start and its end."""
    return {
        "turn/start": [
            [ANSWER, started(f"u{number}"), *steps, ended(f"u{number}")]
            for number, steps in enumerate(turns, 1)
        ]
    }


# -- messages from the server


def tell(method: str, **params: Any) -> Step:
    return {"send": {"method": method, "params": params, "emittedAtMs": 1794854224242}}


def request(id: int | str, method: str, **params: Any) -> Step:
    return {"send": {"id": id, "method": method, "params": params}}


def together(*steps: Step) -> Step:
    """Messages sent in a single write, so that they are read together."""
    return {"write": "\n".join(json.dumps(step["send"]) for step in steps)}


def refuse(message: str, code: int = -32600, **data: Any) -> Step:
    return {"refuse": {"code": code, "message": message, **({"data": data} if data else {})}}


def about(turn: str = "u1") -> dict[str, str]:
    return {"threadId": "t1", "turnId": turn}


def started(turn: str = "u1") -> Step:
    outline = {"id": turn, "status": "inProgress", "items": []}
    return tell("turn/started", threadId="t1", turn=outline)


def ended(turn: str = "u1", status: str = "completed", **fields: Any) -> Step:
    outline = {"id": turn, "status": status, "items": [], **fields}
    return tell("turn/completed", threadId="t1", turn=outline)


def item(when: str, turn: str = "u1", **fields: Any) -> Step:
    """An item has ``started`` or is ``completed``."""
    return tell(f"item/{when}", **about(turn), item=fields, **{f"{when}AtMs": 1})


def delta(text: str, item_id: str = "m1", turn: str = "u1") -> Step:
    return tell("item/agentMessage/delta", **about(turn), itemId=item_id, delta=text)


def message(text: str, item_id: str = "m1", turn: str = "u1") -> Step:
    return item("completed", turn, type="agentMessage", id=item_id, text=text)


def command(status: str, when: str, **fields: Any) -> Step:
    actions: list[Any] = []
    shape = {"type": "commandExecution", "id": "c1", "command": "touch x", "cwd": "/w"}
    return item(when, **shape, commandActions=actions, status=status, **fields)


def ask_command(id: int | str, **fields: Any) -> Step:
    """Ask for the approval of the command ``c1``."""
    fields = {"itemId": "c1", "startedAtMs": 1, "command": "touch x", "cwd": "/w", **fields}
    return request(id, "item/commandExecution/requestApproval", **about(), **fields)


def resolved(id: int | str) -> Step:
    return tell("serverRequest/resolved", threadId="t1", requestId=id)


def wait_for(what: str | int) -> Step:
    """Wait for a call of a method, or for the response to a request."""
    return {"await": what}
