"""Conversation API peer for a Codex app-server.

Opens threads, checks the settings that keep a thread safe, and lists the threads that the server
remembers. `thread` has the thread itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from msgspec import structs

from dragoman.client.base import ClientPeer, Cursor, started
from dragoman.client.codex.client import ABILITIES, CodexClient, CodexOptions
from dragoman.client.codex.thread import (
    CLOSE_TIMEOUT,
    OPENAI,
    CodexConversation,
    require_mode,
    require_model,
    require_policy,
    require_safe,
)
from dragoman.client.conversation import Opening, SessionSummary, absolute
from dragoman.client.inquiries import Inquire
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.codex import shapes, translate
from dragoman.errors import DragomanError, ProtocolMismatch, Unsupported
from dragoman.events import model
from dragoman.rpc.tasks import finish
from dragoman.transports.base import Stream

log: Final = logging.getLogger("dragoman.client")

LIST_TIMEOUT: Final = 5.0
"""Timeout in seconds for the whole list of models, which the server has in memory or on disk."""

_METHODS: Final = {
    "new": "thread/start",
    "load": "thread/resume",
    "resume": "thread/resume",
    "fork": "thread/fork",
}


def configured(servers: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Convert the MCP servers of a session to Codex's own configuration format.

    Raises `Unsupported` for a server that this format cannot express.
    """
    return {getattr(one, "name", ""): _configured(one) for one in servers}


def _configured(server: Any) -> dict[str, Any]:
    match server:
        case acp.McpServerStdio():
            env = {one.name: one.value for one in server.env}
            return {"command": server.command, "args": list(server.args), "env": env}
        case acp.McpServerHttp():
            headers = {one.name: one.value for one in server.headers}
            return {"url": server.url, "http_headers": headers}
        case acp.McpServerSse():
            raise Unsupported(f"Codex does not support MCP servers over SSE: {server.name}")
        case _:
            # Only its type: a server may contain secrets.
            kind = type(server).__name__
            raise Unsupported(f"Codex does not support an MCP server given as {kind}")


class CodexPeer(ClientPeer):
    """A Codex app-server, whose threads are its sessions."""

    client: CodexClient
    dialect = translate.DIALECT
    capabilities = ABILITIES
    auth_methods = ()

    def __init__(self, client: CodexClient, workspace: Path) -> None:
        super().__init__(client, client, workspace)
        self.info = translate.named(client.server.user_agent)
        self._listed: Sequence[shapes.Model] | None = None

    @classmethod
    async def connect(
        cls, stream: Stream, workspace: str | Path, options: CodexOptions | None = None
    ) -> Self:
        """Do the handshake with the server on a stream; the stream is closed if that fails."""
        client = await started(stream, lambda: CodexClient(stream, options))
        return cls(client, absolute(workspace))

    def inquire_with(self, inquire: Inquire) -> None:
        self.client.options = structs.replace(self.client.options, inquire=inquire)

    # -- opening

    async def open(self, opening: Opening) -> CodexConversation:
        if opening.additional_directories:
            raise Unsupported("Codex does not support additional directories for a thread")
        if opening.metadata:
            raise Unsupported("Codex does not support metadata for a thread")
        if opening.how != "fork" and opening.session_id is not None:
            self.client.require_new(opening.session_id)
        options = self.client.options
        settings = {
            "approvalPolicy": require_policy(options.approval_policy),
            "sandbox": require_mode(opening.mode or options.sandbox),
        }
        params: dict[str, Any] = {"cwd": str(opening.cwd), **settings}
        if opening.model is not None:
            params["model"] = opening.model
        if opening.mcp_servers:
            params["config"] = {"mcp_servers": configured(opening.mcp_servers)}
        if options.developer_instructions:
            params["developerInstructions"] = options.developer_instructions
        if opening.how == "new":
            params["serviceName"] = options.name
        else:
            params["threadId"] = opening.session_id
            params["excludeTurns"] = opening.how != "load"
        with self.client.early.expecting():
            answer = await self.client.ask(
                _METHODS[opening.how],
                params,
                shapes.ThreadResponse,
                timeout=self.client.budgets.session,
                # Another caller may be resuming the same thread meanwhile.
                undo=self._leave_soon if opening.how in ("new", "fork") else None,
            )
            try:
                await self._require(answer, opening, settings)
                models = await self._models()
                # Another caller may have opened it in the meantime.
                self.client.require_new(answer.thread.id)
            except BaseException:
                if answer.thread.id not in self.client.conversations:
                    await finish(self._leave(answer.thread.id))
                raise
            conversation = CodexConversation(self.client, answer, settings, models)
            self.client.adopt(conversation)
        conversation.announce(opening.how, answer)
        return conversation

    async def _models(self) -> Sequence[shapes.Model]:
        """Return the models that the server lists, from a cache after the first time. Empty if the
        request fails or takes longer than `LIST_TIMEOUT`: the server is still usable."""
        if self._listed is None:
            try:
                async with asyncio.timeout(LIST_TIMEOUT):
                    self._listed = await self.client.models()
            except (DragomanError, TimeoutError) as error:
                log.debug("could not list the models: %s", str(error) or "no answer in time")
                return ()
        return self._listed

    async def _require(
        self, answer: shapes.ThreadResponse, opening: Opening, settings: dict[str, str]
    ) -> None:
        """Raise `ProtocolMismatch` if the server did not apply the requested settings or model. If
        the model's provider is OpenAI, raise `Unsupported` unless the server lists it."""
        require_safe(answer, settings["sandbox"], settings["approvalPolicy"])
        wanted = opening.model
        if wanted is None:
            return
        if answer.model != wanted:
            raise ProtocolMismatch(
                f"Codex was asked for the model {wanted!r} but uses {answer.model!r}"
            )
        if answer.model_provider == OPENAI:
            await require_model(self.client, wanted)

    def _leave_soon(self, answer: shapes.ThreadResponse) -> None:
        """Leave a thread in the background, because its caller was cancelled or gave up before the
        response."""
        thread_id, connection = answer.thread.id, self.client.connection
        if thread_id not in self.client.conversations and connection.failure is None:
            connection.tasks.start(self._leave(thread_id), "leave a thread that nothing uses")

    async def _leave(self, thread_id: str) -> None:
        try:
            params = {"threadId": thread_id}
            await self.client.ask("thread/unsubscribe", params, dict, timeout=CLOSE_TIMEOUT)
        except DragomanError as error:
            log.debug("unsubscribing from thread %s failed: %s", thread_id, error)

    # -- threads that the server remembers

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        params: dict[str, Any] = {} if cwd is None else {"cwd": str(absolute(cwd))}
        cursor = Cursor("sessions")
        while not cursor.over:
            if cursor.value is not None:
                params["cursor"] = cursor.value
            page = await self.client.ask("thread/list", params, shapes.ThreadListResponse)
            for thread in page.data:
                title = thread.name or thread.preview or None
                yield SessionSummary(
                    thread.id,
                    thread.cwd,
                    title,
                    _instant(thread.updated_at),
                    _instant(thread.created_at),
                )
            cursor.advance(page.next_cursor)

    async def read_session(self, session_id: str) -> list[model.Event]:
        """Return the history of a thread as replayed events, without opening the thread."""
        params = {"threadId": session_id, "includeTurns": True}
        answer = await self.client.ask("thread/read", params, shapes.ThreadReadResponse)
        place = self.client.place(session_id)
        place.replay = True
        turns = answer.thread.turns
        return [event for turn in turns for event in translate.of_turn(turn, place, "thread/read")]

    async def rename_session(self, session_id: str, title: str) -> None:
        await self.client.ask("thread/name/set", {"threadId": session_id, "name": title}, dict)

    async def archive_session(self, session_id: str) -> None:
        """Archive a thread: it leaves the list but is kept."""
        await self.client.ask("thread/archive", {"threadId": session_id}, dict)

    async def unarchive_session(self, session_id: str) -> None:
        await self.client.ask("thread/unarchive", {"threadId": session_id}, dict)

    async def delete_session(self, session_id: str) -> None:
        await self.client.ask("thread/delete", {"threadId": session_id}, dict)


def _instant(seconds: int | None) -> str | None:
    """Return a Unix time in ISO format, or None if there is none or it is out of range."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OSError, OverflowError, ValueError):
        return None
