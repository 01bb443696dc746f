"""The chained dialect on the agent's side.

Owns the answers under any of its names, in the family of names that the client used, and turns
that go on after their prompt was answered: a notification ends them. The shapes are in
`dragoman.dialects.chained`.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from dragoman.agent.speech.base import DocumentSpeech, outcome_of
from dragoman.dialects import chained
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionLost, RemoteError
from dragoman.events.parts import Block, Image, Text
from dragoman.events.words import Outcome
from dragoman.events.words import outcome_of as outcome_of_stop

if TYPE_CHECKING:
    from dragoman.agent.server import Server

PAGES = 1000
"""Pages of the agent's own list that are read at most to answer a client that counts sessions."""


class ChainedSpeech(DocumentSpeech):
    """One client of the chained dialect."""

    dialect = chained.DIALECT

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._family = 0
        self._titles: dict[str, str | None] = {}
        self.serve(chained.LIST, chained.ListSessions, self._list)
        self.serve(chained.CREATE, chained.CreateSession, self._create)
        self.serve(chained.PROMPT, chained.Send, self._send)

    def handle(self, method: str, handler: Callable[[Any], Any], params: Any) -> Any:
        self._family = chained.family_of(method) or 0
        self.greet()
        return handler(params)

    async def _list(self, params: chained.ListSessions) -> chained.Sessions:
        sessions = [
            chained.Session(id, title, status="active") for id, title in self._titles.items()
        ]
        if self.server.can(acp.SESSION_LIST):
            sessions = await self._all()
        end = params.offset + params.limit
        more = end if end < len(sessions) else None
        return chained.Sessions(sessions[params.offset : end], more)

    async def _all(self) -> list[chained.Session]:
        found: list[chained.Session] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self.server.perform(
                acp.SESSION_LIST, acp.ListSessionsRequest(cursor=cursor)
            )
            found += [
                chained.Session(s.session_id, s.title, updated_at=s.updated_at)
                for s in page.sessions
            ]
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def _create(self, params: chained.CreateSession) -> chained.Created:
        context = params.context or {}
        cwd = context.get("cwd")
        opened = await self.new_session(cwd if isinstance(cwd, str) else None, meta=context)
        self._titles[opened.session_id] = params.title
        return chained.Created(opened.session_id)

    def _send(self, params: chained.Send) -> chained.Sent:
        blocks: list[Block] = [Text(params.message)]
        blocks += [Image(each.data, each.type) for each in params.attachments]
        work = self.prompt(params.session_id, blocks)
        turn_id = f"turn-{secrets.token_hex(8)}"
        voice = chained.Voice(params.session_id, turn_id, self._family)
        self.voices[params.session_id] = voice
        self.server.connection.tasks.start(self._turn(work, voice), "answer a prompt")
        return chained.Sent(turn_id=turn_id, status="processing")

    async def _turn(
        self, work: Coroutine[Any, Any, acp.PromptResponse], voice: chained.Voice
    ) -> None:
        connection = self.server.connection
        ended = await outcome_of(work)
        with contextlib.suppress(ConnectionLost):
            if isinstance(ended, RemoteError):
                await connection.notify(*voice.failed(ended.code, ended.message))
                await connection.notify(*voice.ended("error", ended.message))
            elif outcome_of_stop(ended.stop_reason) is Outcome.OK:
                await connection.notify(*voice.ended("completed"))
            else:
                await connection.notify(*voice.ended("error", ended.stop_reason))
