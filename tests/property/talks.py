"""Conversations whose other side is a property test, from the handshake to an open session.

Knows what the other side must say first in each dialect; the test decides the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexConversation, CodexOptions, CodexPeer
from dragoman.client.codex.client import CodexClient
from dragoman.client.conversation import Conversation, Opening
from dragoman.client.legacy import DocumentOptions, DocumentPeer
from dragoman.client.legacy.client import DocumentClient
from dragoman.client.legacy.open import DIALECTS
from dragoman.client.legacy.peer import KeyedPeer
from tests.property.feeding import Heard, Wire
from tests.unit.client.codex.server_side import thread
from tests.unit.client.legacy.far_end import HELLOS, PROMPT_NAMES

HERE = Path(__file__).parent
LONG = Budgets(cancel_grace=0.05)


class DocumentTalk(Heard):
    """A conversation in one of the legacy dialects."""

    def __init__(self, dialect: str, budgets: Budgets = LONG, **more: Any) -> None:
        super().__init__(Wire())
        self.dialect = dialect
        options = DocumentOptions(budgets=budgets, **more)
        self.client = DocumentClient(self.wire, DIALECTS[dialect](options), options)
        kind = KeyedPeer if dialect == "keyed" else DocumentPeer
        self.peer = kind(self.client, HERE)
        self.peer.on_event = self.events.append

    async def open(
        self,
        before: list[bytes],
        *,
        load: str | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> Conversation:
        """Start, and answer the first requests; `before` is sent before each response."""
        replies = {**HELLOS[self.dialect], **(answers or {})}
        opening = Opening(cwd=HERE, how="load" if load else "new", session_id=load)

        async def begin() -> Conversation:
            await self.peer.start()
            return await self.peer.open(opening)

        task = self.client.connection.tasks.start(begin(), "open")
        while not task.done():
            asking = self.client.connection.tasks.start(self.wire.next_request(), "wait")
            await asyncio.wait([task, asking], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                asking.cancel()
                break
            method, id = asking.result()
            answer = self.answer(id, {"result": replies[method]})
            # What comes before and after the response is sent in one piece with it.
            self.feed(*before, answer, self.tell("behind", {}))
        return await task

    async def prompted(self, times: int = 1) -> int:
        """Return the id of the newest prompt, once there were this many."""
        return await self.wire.asked(PROMPT_NAMES[self.dialect], times)

    def last_word(self) -> bytes | None:
        """Return what ends a turn if the response to its prompt does not."""
        if self.dialect != "chained":
            return None
        return self.tell("turn/status", {"status": "completed"})


class CodexTalk(Heard):
    """A thread of an app-server."""

    def __init__(self, budgets: Budgets = LONG) -> None:
        super().__init__(Wire(), jsonrpc=False)
        self.client = CodexClient(self.wire, CodexOptions(budgets=budgets))
        self.client.on_event = self.events.append

    async def open(self, before: list[bytes]) -> CodexConversation:
        tasks = self.client.connection.tasks
        start = tasks.start(self.client.start(), "start")
        id = await self.wire.asked("initialize")
        hello = self.answer(id, {"result": {"userAgent": "x/0.166.0"}})
        self.feed(*before, hello)
        await start
        id = await self.wire.asked("account/read")
        self.feed(*before, self.answer(id, {"result": {"requiresOpenaiAuth": False}}))
        self.peer = CodexPeer(self.client, HERE)
        opening = tasks.start(self.peer.open(Opening(cwd=HERE)), "open")
        id = await self.wire.asked("thread/start")
        self.feed(*before, self.answer(id, {"result": thread()}), self.tell("behind", {}))
        id = await self.wire.asked("model/list")
        self.feed(*before, self.answer(id, {"result": {"data": []}}))
        return await opening

    async def load(self, turns: list[Any]) -> CodexConversation:
        """Open a thread that has this history."""
        await self.open([])
        opening = Opening(cwd=HERE, how="load", session_id="t2")
        task = self.client.connection.tasks.start(self.peer.open(opening), "open")
        id = await self.wire.asked("thread/resume")
        self.feed(self.answer(id, {"result": thread("t2", thread={"turns": turns})}))
        return await task
