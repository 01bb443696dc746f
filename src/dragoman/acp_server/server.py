"""Handle the ACP requests of one client: new, load, resume, list, close and delete sessions.

Keeps the sessions that the client has open and closes their peers when the client disconnects.
Prompts and option changes go to `acp_server.session`; transports and authentication are in
`acp_server.listener`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from dragoman.acp_server.choices import (
    AUTO,
    PEER_OPTION,
    ROLE_OPTION,
    ServerChoices,
    first_role,
    peers_in,
)
from dragoman.acp_server.session import EditorSession
from dragoman.acp_server.session_store import SessionStore, instant
from dragoman.acp_server.updates import responding
from dragoman.agent import Agent, Turn
from dragoman.agent.server import Server
from dragoman.agent.session import Session
from dragoman.agent.speech import served_dialect
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import RESERVED
from dragoman.dialects.acp.v1.methods import cancel_notice
from dragoman.errors import (
    ConnectionEnded,
    ConnectionLost,
    DragomanError,
    RemoteError,
    UnknownSession,
    UsageError,
)
from dragoman.gateway import prompt_responses
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.rpc.tasks import all_ended, finish, in_thread
from dragoman.runs.context import RunContext, load_context
from dragoman.store.records import new_session_key
from dragoman.transports.base import Stream
from dragoman.transports.duplex import DuplexStream
from dragoman.version import __version__
from dragoman.wire import codes
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import Request

P = ParamSpec("P")
T = TypeVar("T")

log: Final = logging.getLogger("dragoman.acp_server")

NAME: Final = "dragoman"

CLOSE_TIMEOUT: Final = 10.0
"""Seconds to disconnect from all peers after a client has disconnected."""

LAST_ANSWERS_TIMEOUT: Final = 90.0
"""Seconds for the last responses after the input has ended: as long as a peer may take to start and
open a session. A client that wants to stop us sooner sends a signal or closes our output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """What all clients of one server share: its environment, defaults and settings."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    peer: str = AUTO
    """The peer of a new session, until the client chooses another."""
    role: str | None = None
    dialect: str | None = None
    """The dialect of the clients; None to detect it from their first request."""
    flags: Mapping[str, object] = field(default_factory=dict)
    """Settings by dotted key, which override those of the files."""
    max_line_size: int = DEFAULT_MAX_LINE_SIZE

    def load_context(self, cwd: Path) -> RunContext:
        """Load the settings and peers that apply in a directory."""
        return load_context(cwd, environ=self.environ, flags=self.flags)

    def check(self, cwd: Path) -> None:
        """Raise `UsageError` if the default dialect, peer or role cannot be used in this
        directory."""
        if self.dialect is not None:
            served_dialect(self.dialect)
        place = self.load_context(cwd)
        if self.peer != AUTO and self.peer not in peers_in(place):
            place.catalogue.get(self.peer)
            raise UsageError(f"{self.peer} is not enabled: run `dragoman peers enable {self.peer}`")
        if self.role is not None and self.role not in place.role_catalogue().roles:
            roles = ", ".join(place.role_catalogue().roles)
            raise UsageError(f"no peer claims the role {self.role!r}; the roles are {roles}")


def refused(handler: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Wrap a handler so that a `DragomanError` that it raises becomes a `RemoteError`."""

    @functools.wraps(handler)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await handler(*args, **kwargs)
        except UnknownSession as error:
            data = prompt_responses.error_data(error)
            raise RemoteError(codes.NOT_FOUND, str(error), data) from error
        except DragomanError as error:
            raise prompt_responses.refusal(error) from error

    return run


class _Server(Server):
    """An agent server that sets an event when its client sends the first request, and can cancel
    all turns."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.greeted = asyncio.Event()

    def stop_all(self) -> None:
        """Cancel every running turn. The prompts still get their responses."""
        for session_id in self._sessions:
            self.stop(session_id)

    def request(self, request: Request) -> Any:
        self.greeted.set()
        return super().request(request)


class AcpServer:
    """Serves one client."""

    def __init__(self, front: ServerContext) -> None:
        self._front = front
        self._editor_sessions: dict[str, EditorSession] = {}
        self._stores: dict[Path, SessionStore] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks by session id. One is held while its session is loaded, resumed, closed or deleted:
        two loads at once would leave a connected peer behind."""
        self._server = _Server(self._agent())

    async def serve(
        self, stream: Stream, *, greeting_timeout: float | None = None
    ) -> ConnectionLost:
        """Serve the client until it disconnects. Returns why its connection ended.

        A client that sends no request within `greeting_timeout` seconds is disconnected. A client
        that has only closed its input gets its last responses first.
        """
        settings = ConnectionSettings(
            max_line_size=self._front.max_line_size,
            cancel_notice=cancel_notice,
            reserved=RESERVED,
        )
        try:
            connection = Connection(stream, End.AGENT, self._server, settings=settings)
        except BaseException:
            await stream.aclose()
            raise
        if isinstance(stream, DuplexStream):
            stream.on_input_end = functools.partial(self._input_ended, connection)
        try:
            async with connection:
                if greeting_timeout is not None:
                    connection.tasks.start(
                        self._expect(connection, greeting_timeout), "wait for a greeting"
                    )
                try:
                    return await connection.wait_ended()
                finally:
                    # Before the connection is closed, because that ends the tasks that hold the
                    # peers.
                    await finish(self._leave())
        finally:
            self._editor_sessions.clear()
            # The tasks that the connection ended may have written as their last step.
            await all_ended(*(store.aclose() for store in self._stores.values()))

    async def _expect(self, connection: Connection, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._server.greeted.wait()
        except TimeoutError:
            log.warning("disconnecting a client that sent no request within %g s", seconds)
            await connection.aclose()

    def _input_ended(self, connection: Connection) -> None:
        """Called when nothing more will arrive, although the client may still read."""
        # A last line typed by hand may have no newline.
        connection.data_received(b"\n")
        connection.tasks.start(self._answer_last(connection), "send the last responses")

    async def _answer_last(self, connection: Connection) -> None:
        # A turn may wait for the client, which can no longer answer.
        self._server.stop_all()
        try:
            async with asyncio.timeout(LAST_ANSWERS_TIMEOUT):
                await connection.wait_answered()
        except TimeoutError:
            log.warning("the input has ended; dropping responses that took too long")
        connection.fail(ConnectionEnded())

    async def _leave(self) -> None:
        editor_sessions = list(self._editor_sessions.values())
        if editor_sessions:
            leaving = [
                self._server.connection.tasks.start(t.aclose(), "leave") for t in editor_sessions
            ]
            await asyncio.wait(leaving, timeout=CLOSE_TIMEOUT)

    def _agent(self) -> Agent:
        agent = Agent(
            NAME,
            version=__version__,
            title="dragoman",
            image=True,
            embedded_context=True,
            additional_directories=True,
            dialect=self._front.dialect,
            max_line_size=self._front.max_line_size,
        )
        agent.prompt(refused(self._stored(self._prompt)))
        agent.new_session(refused(self._answered(self._new)))
        agent.load_session(refused(self._answered(self._load)))
        agent.resume_session(refused(self._answered(self._resume)))
        agent.list_sessions(refused(self._answered(self._list)))
        agent.close_session(refused(self._answered(self._close)))
        agent.delete_session(refused(self._answered(self._delete)))
        agent.set_mode(refused(self._answered(self._set_mode)))
        agent.set_option(refused(self._answered(self._set_option)))
        return agent

    def _stored(self, handler: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Wrap a handler so that its response waits, for a limited time, until what it wrote is
        stored: the client may then ask another process for it."""

        @functools.wraps(handler)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                result = await handler(*args, **kwargs)
            except DragomanError:
                await self._flush()
                raise
            await self._flush()
            return result

        return run

    def _answered(self, handler: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Wrap a handler like `_stored`, and let the updates that it causes follow its response."""
        stored = self._stored(handler)

        @functools.wraps(handler)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            with responding():
                return await stored(*args, **kwargs)

        return run

    async def _flush(self) -> None:
        for store in self._stores.values():
            await store.flush()

    # -- sessions

    async def _place(self, cwd: Path) -> RunContext:
        """Return the settings and peers that apply in a directory, read in a thread."""
        return await in_thread(str(cwd), lambda _: self._front.load_context(cwd))

    async def _place_of(self, session: Session) -> RunContext:
        """Return the settings and peers that apply in a session's directory. Raises `UsageError` if
        one of the session's directories does not exist."""

        def load(_: object) -> RunContext:
            for folder in session.roots:
                # Unlike the method of `Path`, this returns False if the system refuses access.
                if not os.path.isdir(folder):
                    raise UsageError(f"{folder} is not a directory")
            return self._front.load_context(session.cwd)

        # In a thread, because a network file system may hang.
        return await in_thread(str(session.cwd), load)

    def _editor_session(self, session: Session, place: RunContext) -> EditorSession:
        return EditorSession(
            self._server,
            session,
            place,
            self._store(place),
            peer=self._front.peer,
            role=self._front.role or first_role(place),
        )

    def _store(self, place: RunContext) -> SessionStore:
        state = place.paths.state
        if state not in self._stores:
            names = [name for peer in place.catalogue for name in peer.credentials.env]
            self._stores[state] = SessionStore(
                place.paths, on_trouble=log.warning, credentials=names
            )
        return self._stores[state]

    async def _new(self, session: Session) -> None:
        session.id = new_session_key()
        place = await self._place_of(session)
        editor_session = self._editor_session(session, place)
        store = self._store(place)
        store.create(session.id, cwd=session.cwd)
        try:
            if editor_session.peer != AUTO:
                await editor_session.worker()
                session.mode = editor_session.choices.first_mode
            await store.flush()
        except BaseException:
            # The client never learns its id, and could not delete it.
            store.discard(session.id)
            await finish(editor_session.aclose())
            raise
        self._adopt(session, editor_session)

    async def _load(self, session: Session, replay: Turn) -> None:
        await self._take_up(session, replay)

    async def _resume(self, session: Session) -> None:
        await self._take_up(session, None)

    async def _take_up(self, session: Session, replay: Turn | None) -> None:
        async with self._alone(session.id):
            place = await self._place_of(session)
            kept = await self._store(place).take(session.id)
            editor_session = self._editor_session(session, place)
            before = self._editor_sessions.get(session.id)
            if before is not None:
                # Not closed yet: if this fails, the client still has it.
                await before.disconnect()
            await editor_session.restore(kept, replay=replay)
            self._adopt(session, editor_session)
            if before is not None:
                await before.aclose()

    def _alone(self, session_id: str) -> asyncio.Lock:
        """Return the lock of a session, which exists only while it is used: a client may name any
        number of sessions."""
        return self._opening.setdefault(session_id, asyncio.Lock())

    def _adopt(self, session: Session, editor_session: EditorSession) -> None:
        session.state.editor_session = editor_session
        self._editor_sessions[session.id] = editor_session
        editor_session.announce()

    async def _list(self, request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
        if request.cursor is not None:
            raise RemoteError(codes.INVALID_PARAMS, "there is only one page, so no cursor is valid")
        cwd = None if request.cwd is None else Path(request.cwd)
        place = await self._place(cwd or Path.home())
        return [
            acp.SessionInfo(
                session_id=record.key,
                cwd=record.cwd,
                title=record.title or record.name,
                updated_at=instant(record.updated_at),
            )
            for record in await self._store(place).sessions(cwd)
        ]

    async def _close(self, session: Session) -> None:
        async with self._alone(session.id):
            await self._end(session.id)
            self._store(await self._place(session.cwd)).close(session.id)

    async def _delete(self, session_id: str) -> None:
        async with self._alone(session_id):
            await self._end(session_id)
            # The store is the same anywhere, and our current directory may be gone.
            await self._store(await self._place(Path.home())).delete(session_id)

    async def _end(self, session_id: str) -> None:
        """If this client has the session open, disconnect from its peer and close the peer's
        session."""
        editor_session = self._editor_sessions.pop(session_id, None)
        if editor_session is not None:
            await editor_session.aclose(close_session=True)

    # -- options and prompts

    async def _set_mode(self, session: Session, mode_id: str) -> None:
        await _editor_session_of(session).set_mode(mode_id)

    async def _set_option(self, session: Session, option_id: str, value: str | bool) -> None:
        editor_session = _editor_session_of(session)
        assert isinstance(session.choices, ServerChoices)
        if option_id == PEER_OPTION:
            await editor_session.choose_peer(str(value))
        elif option_id == ROLE_OPTION:
            await editor_session.choose_role(str(value))
        else:
            await editor_session.set_option(option_id, value)

    async def _prompt(self, turn: Turn) -> Any:
        return await _editor_session_of(turn.session).prompt(turn)


def _editor_session_of(session: Session) -> EditorSession:
    editor_session: EditorSession = session.state.editor_session
    return editor_session
