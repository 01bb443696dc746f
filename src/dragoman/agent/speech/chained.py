"""The chained dialect on the agent's side.

The dialect has several families of method names: requests in all of them are served, and
notifications use the family of the prompt. Turns continue after the response to their prompt: a
notification ends them. An earlier session is opened by the first prompt for it, because the dialect
has no other means. A list of sessions contains the messages of those that this client has used. The
schemas are in `dragoman.dialects.legacy.chained`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.agent.speech.base import DocumentSpeech, Handler, outcome_of
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.legacy import chained
from dragoman.errors import ConnectionLost, MessageTooLong, RemoteError
from dragoman.errors.usage import shown
from dragoman.events.parts import Block, Image, Text
from dragoman.events.words import Outcome, Role
from dragoman.events.words import outcome_of as outcome_of_stop
from dragoman.wire import codes

if TYPE_CHECKING:
    from dragoman.agent.server import Server

PAGES = 1000
"""Maximum number of pages to read of the agent's own list. A client requests a range of the whole
list, so all of it is read."""


class ChainedSpeech(DocumentSpeech):
    """Serves one client in the `chained` dialect."""

    dialect = chained.DIALECT

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._family = 0
        self._titles: dict[str, str | None] = {}
        self._said: dict[str, list[chained.SessionMessage]] = {}
        """The messages of each session that this client has opened, by session id."""
        self._loading = asyncio.Lock()

    def handle(self, method: str, handler: Handler, params: Any) -> Any:
        self._family = chained.family_of(method) or 0
        self.greet()
        return handler(self, params)

    async def _list(self, params: chained.ListSessions) -> chained.Sessions:
        sessions = [
            chained.Session(id, title, status="active") for id, title in self._titles.items()
        ]
        if self.server.can(acp.SESSION_LIST):
            sessions = await self._all()
        end = params.offset + params.limit
        more = end if end < len(sessions) else None
        page = [
            replace(session, messages=list(self._said.get(session.id, ())) or None)
            for session in sessions[params.offset : end]
        ]
        return chained.Sessions(page, more)

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
        self._said[opened.session_id] = []
        return chained.Created(opened.session_id)

    async def _load(self, session_id: str) -> None:
        """Open an earlier session, and keep its history for later lists. The client has the
        history, so it is not sent."""
        missing = f"there is no session {shown(session_id)}"
        messages = await self.reopen(
            session_id, RemoteError(codes.NOT_FOUND, missing, {"id": session_id})
        )
        self._said[session_id] = [
            chained.SessionMessage("user" if role is Role.USER else "assistant", text)
            for role, text in messages
        ]

    def _send(self, params: chained.Send) -> Any:
        if params.session_id in self._said:
            return self._sent(params)
        return self._loaded_and_sent(params, self._family)

    async def _loaded_and_sent(self, params: chained.Send, family: int) -> chained.Sent:
        async with self._loading:
            if params.session_id not in self._said:
                await self._load(params.session_id)
        self._family = family
        return self._sent(params)

    def _sent(self, params: chained.Send) -> chained.Sent:
        blocks: list[Block] = [Text(params.message)]
        blocks += [Image(each.data, each.type) for each in params.attachments]
        work = self.prompt(params.session_id, blocks)
        turn_id = f"turn-{os.urandom(8).hex()}"
        writer = chained.AgentEnd(params.session_id, turn_id, self._family, stream=params.stream)
        self.writers[params.session_id] = writer
        self._said[params.session_id].append(chained.SessionMessage("user", params.message))
        turn = self._turn(work, writer, self._said[params.session_id])
        self.server.connection.tasks.start(turn, "answer a prompt")
        return chained.Sent(turn_id=turn_id, status="processing")

    async def _turn(
        self,
        work: Coroutine[Any, Any, acp.PromptResponse],
        writer: chained.AgentEnd,
        said: list[chained.SessionMessage],
    ) -> None:
        connection = self.server.connection
        ended = await outcome_of(work)
        if text := writer.text:
            said.append(chained.SessionMessage("assistant", text))
        with contextlib.suppress(ConnectionLost):
            if isinstance(ended, RemoteError):
                try:
                    await connection.notify(*writer.failed(ended.code, ended.message))
                    await connection.notify(*writer.ended("error", ended.message))
                except MessageTooLong as error:
                    # The client waits for the end of the turn.
                    await connection.notify(*writer.ended("error", str(error)))
            elif outcome_of_stop(ended.stop_reason) is Outcome.OK:
                await connection.notify(*writer.ended("completed"))
            else:
                await connection.notify(*writer.ended("error", ended.stop_reason))

    requests = {
        **dict.fromkeys(chained.LIST, (chained.ListSessions, _list)),
        **dict.fromkeys(chained.CREATE, (chained.CreateSession, _create)),
        **dict.fromkeys(chained.PROMPT, (chained.Send, _send)),
    }
