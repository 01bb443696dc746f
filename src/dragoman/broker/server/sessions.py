"""The sessions of a broker: open, resume, load, restore after a peer restart, release, close.

Finds a session by every id that callers use. A request for a session that the peer has open is
answered at once. Any other session is resumed or loaded, and replaced by a new one only if the
caller allows it. Replayed history is never stored. `peer_sessions` calls the peer, `live_session`
is one open session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from dragoman.broker import error_codec, protocol
from dragoman.broker.protocol import FOR_GATEWAY, NOTHING, Added, SessionMeta, pack, with_added
from dragoman.broker.server.event_log import LogLimits
from dragoman.broker.server.live_session import NOTHING_SPENT, LiveSession
from dragoman.broker.server.peer_sessions import (
    NEW,
    PeerSide,
    folder_of,
    loads,
    others_of,
    takes_up,
    wanted,
)
from dragoman.client.results import error_kind
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    PeerUnresponsive,
    RemoteError,
    SessionLost,
    SessionUnusable,
    TurnInProgress,
    UnknownSession,
)
from dragoman.events.words import ErrorKind
from dragoman.store.records import SessionRecord, new_session_key

if TYPE_CHECKING:
    from dragoman.broker.server.broker import Broker
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.peer import PeerLink
    from dragoman.broker.server.recorder import BrokerRecorder

log: Final = logging.getLogger("dragoman.broker")

NO_SERVERS: Final = Raw(b"[]")

LEAVE_LOOKS: Final = 20
LEAVE_INTERVAL: Final = 0.02
"""Maximum number of checks whether other callers have left a session, and seconds after each. By
then, the connection of a command that ended before the next one began is known to be closed."""

_SESSION_KEPT: Final = frozenset(
    {
        ErrorKind.AUTH_REQUIRED,
        ErrorKind.OVERLOADED,
        ErrorKind.RATE_LIMITED,
        ErrorKind.QUOTA,
        ErrorKind.NETWORK,
    }
)
"""Errors after which a restarted agent may still have the session that it was asked for."""

MAX_SESSIONS: Final = 256
"""Number of open sessions at which an unused one is closed before another is opened."""


class Sessions:
    """The sessions of a broker."""

    def __init__(self, broker: Broker, recorder: BrokerRecorder) -> None:
        self._broker = broker
        self._recorder = recorder
        self._sessions: dict[str, LiveSession] = {}
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._leaving: dict[str, asyncio.Event] = {}
        """For each session that is being closed or released, by the peer's id: set when done."""
        self._peer = PeerSide(broker, has_session=self._has_session)
        self.room = LogLimits()

    def __iter__(self) -> Iterator[LiveSession]:
        """Iterate over the sessions, each once."""
        return iter(list({id(each): each for each in self._sessions.values()}.values()))

    def get(self, name: str) -> LiveSession | None:
        return self._sessions.get(name)

    def require(self, name: str) -> LiveSession:
        session = self._sessions.get(name)
        if session is None:
            raise UnknownSession(
                f"no session {name!r} is open in this broker; resume it, or open a new one"
            )
        return session

    # -- requests of callers

    async def new(self, caller: Caller, method: str, params: Raw) -> Raw:
        """Open a session, or fork one."""
        return await self._once_more(lambda: self._new(caller, method, params))

    async def _once_more(self, ask: Callable[[], Coroutine[Any, Any, Raw]]) -> Raw:
        """Return the result of `ask`. If the peer hung, or ended before the request was sent to it,
        call `ask` once more, unless half of the session timeout has passed."""
        clock = asyncio.get_running_loop().time
        began_at = clock()
        try:
            return await ask()
        except (PeerUnresponsive, RemoteError) as error:
            late = clock() - began_at > self._broker.budgets.session / 2
            if late or (isinstance(error, RemoteError) and not _was_unsent(error)):
                raise
        return await ask()

    async def _new(self, caller: Caller, method: str, params: Raw) -> Raw:
        body = protocol.members(params)
        meta = protocol.our_meta(body, SessionMeta)
        self._check_folder(body)
        source = protocol.text(body.get("sessionId"))
        far = await self._broker.ready()
        if source is not None and (known := self._sessions.get(source)) is not None:
            # A restarted peer has to reopen it, perhaps under another id.
            await self.restore(known, far, fresh=False)
            body["sessionId"] = pack(known.id)
        await self._make_room()
        made: list[LiveSession] = []

        def opened(result: Raw) -> None:
            response = acp.SESSION_NEW.decode_result(result)
            self._check_new_id(response.session_id, far, None)
            session = self._make(far, response.session_id, body, meta, None)
            if source is None:
                session.cost = NOTHING_SPENT
                session.opening = sent
            session.once = meta.once
            # The log does not have what a fork has in common with its source.
            session.whole = source is None
            session.sheltered.opened(response.modes, response.models, response.config_options)
            made.append(session)
            session.open_for(caller, session.id)
            far.upstream.route(session.id, session)

        but = FOR_GATEWAY if far.behind_gateway else NOTHING
        sent = pack(protocol.without_our_meta(body, but=but))
        try:
            result = await self._peer.open(far, method, sent, opened)
            session = made[0]
            changed = await self._peer.prepare(session)
            self._recorder.created(session)
            # The next command looks for it in the store before it asks a broker.
            await self._recorder.settle(session)
        except BaseException:
            for session in made:
                self._forget(session)
                self._peer.close_soon(far, session.id)
            raise
        if changed:
            result = pack(protocol.members(result) | session.settings())
        return with_added(result, Added(key=session.key))

    async def resume(self, caller: Caller, params: Raw) -> Raw:
        """Open a session for a caller, without sending the session's history."""
        return await self._once_more(lambda: self._resume(caller, params))

    async def _resume(self, caller: Caller, params: Raw) -> Raw:
        body, name, meta = self._named(params)
        context = "live"
        async with self._lock(name):
            session = self._sessions.get(name)
            if session is None:
                session = await self._take_up(name, body, meta, caller=None)
                context = "restored"
            elif session.far is not self._broker.far:
                far = await self._broker.ready()
                context = await self._restore(session, far, fresh=False)
        session.open_for(caller, name)
        # A caller that resumed it by id may do so again, so it is not closed after its jobs.
        session.once = False
        return with_added(
            pack(session.settings()),
            Added(key=session.key, context=context, next=session.log.next),
        )

    async def load(self, caller: Caller, params: Raw) -> Raw:
        """Open a session for a caller, and send the session's history before the response."""
        body, name, meta = self._named(params)
        told: asyncio.Event | None = None
        async with self._lock(name):
            session = self._sessions.get(name)
            if session is None:
                session = await self._take_up(name, body, meta, caller=caller)
                session.open_for(caller, name)
            else:
                if session.far is not self._broker.far:
                    await self._restore(session, await self._broker.ready(), fresh=False)
                session.open_for(caller, name)
                if session.whole:
                    told = await self._tell_history(session, caller)
                else:
                    await self._load_again(session, caller)
        session.once = False
        if told is not None:
            # Takes as long as the caller needs to read it; cancelled when the caller disconnects.
            # Without the lock: a caller that stops reading must not keep the others waiting.
            await told.wait()
        return with_added(pack(session.settings()), Added(key=session.key))

    async def close(self, caller: Caller, params: Raw) -> Raw:
        """Close a session for a caller, and cancel that caller's turns in it. If no other caller
        has the session open, the broker closes it too, after its last turn."""
        about = protocol.read(params, protocol.SessionParams)
        session = self.require(about.session_id)
        session.close_for(caller)
        self._broker.turns.cancel_own(caller, session)
        if session.readers:
            return Raw(b"{}")
        if self._is_used(session):
            session.once = True
            return Raw(b"{}")
        await self.give_up(session)
        # The caller may delete it from the store.
        await self._recorder.flush()
        return Raw(b"{}")

    def close_if_done(self, session: LiveSession) -> None:
        """Close a session that was opened only for its jobs, if they have ended and no caller has
        it open.

        This also covers callers that disconnected before the end or were killed.
        """
        if self._is_done(session):
            self._broker.tasks.start(self._close_done(session), f"close {session.key}")

    def _is_done(self, session: LiveSession) -> bool:
        return (
            session.once
            and not session.readers
            and not self._is_used(session)
            and self.is_open(session)
        )

    async def _close_done(self, session: LiveSession) -> None:
        # A caller that has attached since then still waits for its events.
        if self._is_done(session):
            await self.give_up(session)

    def is_open(self, session: LiveSession) -> bool:
        """Return whether a session has been neither closed nor released."""
        return self._sessions.get(session.id) is session

    def _is_used(self, session: LiveSession) -> bool:
        """Return whether a session has turns, or is being reopened for a caller."""
        return self._broker.is_used(session) or self.is_reopening(session)

    def _has_session(self, far: PeerLink, id: str) -> bool:
        session = self._sessions.get(id)
        return session is not None and session.far is far and session.id == id

    async def release(self, caller: Caller, params: Raw) -> dict[str, Any]:
        """Release a session so that another broker or process can continue it. Returns `released`,
        False if it is not open here, and `closed`: whether the peer no longer has it open.

        All its events are stored before the response, so that the other process continues the
        numbering. Raises `TurnInProgress` while it is in use here, and while its events cannot be
        stored: that process would give the same numbers to other events.
        """
        about = protocol.read(params, protocol.SessionParams)
        session = self._sessions.get(about.session_id)
        if session is None:
            return {"released": False}
        named = session.name or session.key
        stored = await self._recorder.settle(session)
        left = await self._left_by_others(session, caller)
        if not self.is_open(session):
            return {"released": False}
        if self._broker.is_used(session):
            raise TurnInProgress(
                f"a turn of the session {named} is running or queued in another broker"
            )
        if not left:
            raise TurnInProgress(
                f"the session {named} is open in another shell with different options"
            )
        if not stored or self._recorder.trouble:
            raise TurnInProgress(
                f"the session {named} cannot continue elsewhere before its last turns are stored: "
                f"{self._recorder.why_unstored}"
            )
        far = session.far
        closes = far.closes and far.failure is None
        if not closes:
            far.outdated.add(session.id)
        await self._let_go(session)
        return {"released": True, "closed": closes}

    async def _left_by_others(self, session: LiveSession, caller: Caller) -> bool:
        """Return whether no other caller has the session open, after waiting briefly for those that
        have just disconnected. False also if the session is used."""
        for _ in range(LEAVE_LOOKS):
            if self._is_used(session):
                # It is not released in any case.
                return False
            if not any(
                each is not caller and reader.opened for each, reader in session.readers.items()
            ):
                return True
            # The end of its connection may be read after the next caller's request.
            await asyncio.sleep(LEAVE_INTERVAL)
        return False

    async def _make_room(self) -> None:
        """If the limit is reached, close the oldest unused session, which can be reopened by id.

        Sessions accumulate because callers that die leave them open.
        """
        if len(self._sessions) < MAX_SESSIONS:
            return
        for session in self:
            if not session.readers and not self._is_used(session):
                await self._let_go(session)
                return

    async def _let_go(self, session: LiveSession) -> None:
        followers = [
            (reader.connection, reader.session_id)
            for reader in session.readers.values()
            if reader.attached
        ]
        with self._leaves(session.id):
            self._drop(session)
            await self._recorder.released(session)
            for connection, name in followers:
                try:
                    connection.post(protocol.RELEASED, protocol.SessionParams(name))
                except DragomanError as error:
                    log.debug("could not notify a follower of a released session: %s", error)
            session.log.close()
            await self._close_at_peer(session)

    async def give_up(self, session: LiveSession) -> None:
        """Close a session at the peer, if the peer supports that, and forget it."""
        with self._leaves(session.id):
            self._forget(session)
            await self._close_at_peer(session)

    @contextlib.contextmanager
    def _leaves(self, id: str) -> Iterator[None]:
        """Context manager for closing or releasing the session with this id of the peer. Requests
        that open the session again wait for the end, so that the reopened session is not closed."""
        left = self._leaving[id] = asyncio.Event()
        try:
            yield
        finally:
            if self._leaving.get(id) is left:
                del self._leaving[id]
            left.set()

    async def _close_at_peer(self, session: LiveSession) -> None:
        far = self._broker.far
        if far is None or session.far is not far:
            return
        # Errors from the peer are only logged: the broker no longer has the session in any case.
        try:
            await self._peer.close(far, session.id)
        finally:
            await session.sheltered.release()

    # -- used by turns

    def is_reopening(self, session: LiveSession) -> bool:
        """Return whether a request that reopens a session is running, so that the peer may not
        have it open yet, or not in its default mode."""
        return session.first_id in self._locks

    async def restore(self, session: LiveSession, far: PeerLink, *, fresh: bool) -> str:
        """Ensure that the peer has a session open; if the peer has lost it, `_restore` decides.
        Returns the state of the context: `live`, `restored` or `fresh`. Raises `SessionLost`."""
        async with self._lock(session.id):
            context = "live"
            if session.far is not far:
                context = await self._restore(session, far, fresh=fresh)
            await self._peer.wait_replayed(session)
            return context

    # -- internals

    def _make(
        self,
        far: PeerLink,
        id: str,
        body: dict[str, Raw],
        meta: SessionMeta,
        record: SessionRecord | None,
    ) -> LiveSession:
        session = LiveSession(
            self._recorder,
            far,
            id,
            key=record.key if record is not None else meta.key or new_session_key(),
            name=record.name if record is not None else meta.name,
            cwd=folder_of(body) or Path(),
            additional=others_of(body),
            mcp_servers=body.get("mcpServers", NO_SERVERS),
            next_event=0 if record is None else record.resumed_event,
            room=self.room,
        )
        session.questions.watchers = self._broker.watchers
        session.created_at = time.time() if record is None else record.created_at
        self._sessions[id] = session
        return session

    def _check_new_id(self, id: str, far: PeerLink, session: LiveSession | None) -> None:
        """Raise `InvalidAnswer` if the peer gave the id of another session to a new one, or to
        `session`.

        An agent that numbers its sessions begins again when it is restarted. So an unused session
        of its last process is closed instead.
        """
        known = self._sessions.get(id)
        if known is None or known is session:
            return
        if known.far is far or known.readers or self._is_used(known):
            raise InvalidAnswer(f"the peer returned the session id {id!r} twice")
        self._forget(known)

    def _forget(self, session: LiveSession) -> None:
        self._drop(session)
        self._recorder.closed(session)
        session.log.close()

    def _drop(self, session: LiveSession) -> None:
        session.far.upstream.forget(session.id, session)
        session.far.client.forget(session.sheltered)
        for name in [name for name, each in self._sessions.items() if each is session]:
            del self._sessions[name]
        for caller in list(session.readers):
            session.close_for(caller)

    def _named(self, params: Raw) -> tuple[dict[str, Raw], str, SessionMeta]:
        name = protocol.read(params, protocol.SessionParams).session_id
        body = protocol.members(params)
        self._check_folder(body)
        return body, name, protocol.our_meta(body, SessionMeta)

    def _check_folder(self, body: dict[str, Raw]) -> None:
        if folder_of(body) is None:
            detail = "`cwd` must be an absolute path"
            raise RemoteError(-32602, "Invalid params", {"detail": detail})

    async def _take_up(
        self, name: str, body: dict[str, Raw], meta: SessionMeta, caller: Caller | None
    ) -> LiveSession:
        """Have the peer open a session that this broker does not know. If a caller is given, it
        gets the history that the peer replays."""
        while (left := self._leaving.get(name)) is not None:
            await left.wait()
        far = await self._broker.ready()
        if name in far.outdated:
            raise SessionUnusable(
                f"the session {name!r} was continued in another process, and this peer process "
                "has a stale copy: stop the broker to restart the peer"
            )
        record = await self._recorder.find(name, meta.key)
        if caller is None and not takes_up(far):
            raise UnknownSession(
                f"the session {name!r} is no longer open, and the peer can neither resume nor "
                "load sessions: start a new one"
            )
        session = self._make(far, name, body, meta, record)
        session.whole = False
        far.upstream.route(name, session)
        if caller is not None:
            session.open_for(caller, name)
        is_open = False
        try:
            await self._peer.have_opened(session, far, caller)
            is_open = True
            await self._peer.prepare(session)
        except BaseException:
            self._forget(session)
            if is_open:
                self._peer.close_soon(far, name)
            raise
        if record is None:
            self._recorder.created(session)
        else:
            self._recorder.found(session)
        await self._recorder.settle(session)
        return session

    async def _restore(self, session: LiveSession, far: PeerLink, *, fresh: bool) -> str:
        """Have a new process of the peer reopen a session of the previous one. If that process does
        not have it, replace it with a new session if it had no prompt yet or `fresh` is set; else
        raise `SessionLost`. Returns the state of its context."""
        named = session.name or session.id
        problem: DragomanError = SessionLost(
            "the agent was restarted (it had ended, or was killed) and cannot reopen the "
            f"session {named!r}: it can neither resume nor load sessions"
        )
        if takes_up(far):
            await self._peer.wait_for_minute(session, far)
            session.moved(far, session.id)
            try:
                await self._peer.have_opened(session, far, None)
                await self._peer.prepare(session)
                return "restored"
            except RemoteError as error:
                self._lose(session, far)
                if error_kind(error.code, error.message, error.data) in _SESSION_KEPT:
                    raise
                problem = SessionLost(
                    "the agent was restarted (it had ended, or was killed) and has lost the "
                    f"session {named!r}: {error}"
                )
            except BaseException:
                self._lose(session, far)
                raise
        if session.opening is not None:
            # It had no prompt yet, so nothing is lost.
            await self._open_again(session, far, session.opening)
            return "live"
        if not fresh:
            raise problem
        await self._open_again(session, far, pack(wanted(session)))
        session.note("fresh", {"peerSessionId": session.id})
        return "fresh"

    def _lose(self, session: LiveSession, far: PeerLink) -> None:
        far.upstream.forget(session.id, session)
        # The session never existed there, so it has no terminals to close.
        session.sheltered.let_go()
        session.lost()

    async def _open_again(self, session: LiveSession, far: PeerLink, params: Raw) -> None:
        """Continue a session, under the ids that callers use, in a new session of the peer."""

        def opened(result: Raw) -> None:
            response = acp.SESSION_NEW.decode_result(result)
            self._check_new_id(response.session_id, far, session)
            session.moved(far, response.session_id)
            session.sheltered.opened(response.modes, response.models, response.config_options)
            self._sessions[response.session_id] = session

        await self._peer.open(far, NEW, params, opened)
        await self._peer.prepare(session)
        self._recorder.moved(session)

    async def _tell_history(self, session: LiveSession, caller: Caller) -> asyncio.Event:
        """Send the whole history from the log and the store, so that the peer need not replay
        it. Returns an event that is set when all of it was sent."""
        reader = session.reader(caller)
        told = asyncio.Event()
        reader.go_back(await self._recorder.first_event(session))
        reader.behind(told.set)
        return told

    async def _load_again(self, session: LiveSession, caller: Caller) -> None:
        if self._broker.is_used(session):
            raise TurnInProgress("a session cannot be loaded while its turns are running or queued")
        if not loads(session.far):
            raise UnknownSession("the peer cannot replay a session's history: resume it instead")
        await self._peer.have_opened(session, session.far, caller)

    @contextlib.asynccontextmanager
    async def _lock(self, name: str) -> AsyncIterator[None]:
        """Context manager: serialize work per session. The lock is removed when its last user
        leaves."""
        session = self._sessions.get(name)
        # The same name before and after a session becomes known.
        name = name if session is None else session.first_id
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = (lock, users - 1)
            elif (session := self._sessions.get(name)) is not None:
                # A caller may have closed it in the meantime.
                self.close_if_done(session)


def _was_unsent(error: RemoteError) -> bool:
    """Return whether the peer ended before its gateway had sent the request to it."""
    lost = error_codec.revive(error.data)
    return isinstance(lost, ConnectionLost) and not lost.may_have_run
