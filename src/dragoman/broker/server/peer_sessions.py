"""Calls to the peer that open, resume, load and close sessions, each with a timeout.

Waits for history that a peer replays after its answer, and closes a session that the peer opens
after the caller gave up. `sessions` decides which session to open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker import protocol
from dragoman.broker.protocol import pack
from dragoman.catalogue import descriptor
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import CallTimeout, DragomanError, InvalidAnswer
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.server.broker import Broker
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.live_session import LiveSession
    from dragoman.broker.server.peer import PeerLink
    from dragoman.rpc import Call

NEW: Final = acp.SESSION_NEW.name
LOAD: Final = acp.SESSION_LOAD.name
RESUME: Final = acp.SESSION_RESUME.name
CLOSE: Final = acp.SESSION_CLOSE.name

log: Final = logging.getLogger("dragoman.broker")


class PeerSide:
    """Opens and closes sessions at the peer.

    The callback `has_session(far, id)` returns whether the broker has a session open in this
    process of the peer under this id.
    """

    def __init__(self, broker: Broker, *, has_session: Callable[[PeerLink, str], bool]) -> None:
        self._broker = broker
        self._has_session = has_session

    async def open(
        self,
        far: PeerLink,
        method: str,
        params: Raw,
        opened: Callable[[Raw], None],
        *,
        id: str | None = None,
    ) -> Raw:
        """Call a method that opens a session, and return its result. The callback `opened` gets the
        result while the response is being read, before anything that the peer sent after it is
        handled. `id` is that of a session that the broker knows already; None for a new one. Raises
        `CallTimeout` if the peer does not respond in time."""
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

        def settle(result: Raw | None, error: DragomanError | None) -> None:
            answered()
            if future.done():
                if result is not None:
                    self._orphaned(far, result, id)
                return
            if error is None:
                assert result is not None
                try:
                    opened(result)
                except msgspec.ValidationError as invalid:
                    error = InvalidAnswer(f"invalid response to {method}: {invalid}")
                except DragomanError as refused:
                    error = refused
            if error is not None:
                future.set_exception(far.explain(error))
            else:
                assert result is not None
                future.set_result(result)

        timeout = self._broker.budgets.session
        answered = self._broker.liveness.expect(far, method, timeout)
        if id is None:
            call = far.upstream.open(method, params, settle)
        else:
            # History that arrives after the caller gave up must not be kept for its next owner.
            call = far.connection.begin(method, params, settle=settle)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            self._call_off(far, call, id)
            await self._broker.liveness.check(far)
            raise CallTimeout(method, timeout) from None
        except asyncio.CancelledError:
            self._call_off(far, call, id)
            raise

    async def have_opened(self, session: LiveSession, far: PeerLink, caller: Caller | None) -> None:
        """Resume a session, or load it if a caller wants the history or the peer cannot resume.

        Raises `Overflow` if the caller did not read the history.
        """
        body = {"sessionId": session.id, **wanted(session)}

        def opened(result: Raw) -> None:
            response = acp.SESSION_RESUME.decode_result(result)
            session.sheltered.opened(response.modes, response.models, response.config_options)

        if caller is None and far.can("sessionCapabilities.resume"):
            await self.open(far, RESUME, pack(body), opened, id=session.id)
            return
        replay = session.begin_replay(caller)
        try:
            await self.open(far, LOAD, pack(body), opened, id=session.id)
        except BaseException:
            session.end_replay()
            raise
        replay.loaded()
        # One real agent replays most of its history after the response.
        self._broker.tasks.start(self.wait_replayed(session), "wait for the end of a replay")
        if replay.unread is not None:
            self.close_soon(far, session.id)
            raise replay.unread

    async def prepare(self, session: LiveSession) -> bool:
        """Set the peer's default mode in a session. Returns whether that changed anything."""
        before = session.sheltered.modes, session.sheltered.config_options
        await session.sheltered.prepare(mode=None, model=None)
        return before != (session.sheltered.modes, session.sheltered.config_options)

    async def wait_for_minute(self, session: LiveSession, far: PeerLink) -> None:
        """Delay loading a session at a peer that would lose it if it were loaded too early. Raises
        `ConnectionLost` if the peer ends during the delay."""
        if not self._broker.loads_next_minute:
            return
        seconds = descriptor.load_delay(session.created_at, time.time())
        if seconds:
            log.info(
                "session %s is loaded in %.0f s: the peer would lose it if loaded earlier",
                session.id,
                seconds,
            )
            await asyncio.sleep(seconds)
            if far.failure is not None:
                raise far.failure.fresh()

    async def wait_replayed(self, session: LiveSession) -> None:
        budgets = self._broker.budgets
        loop = asyncio.get_running_loop()
        while (replay := session.replay) is not None:
            await replay.wait_loaded()
            if session.replay is not replay:
                continue
            over_at = min(
                max(replay.heard_at, replay.loaded_at) + budgets.replay_quiet,
                replay.loaded_at + budgets.replay_total,
            )
            if (left := over_at - loop.time()) <= 0 or session.far.failure is not None:
                session.end_replay()
                return
            # This waits until nothing arrives for a while.
            await asyncio.sleep(left)

    def _call_off(self, far: PeerLink, call: Call, id: str | None) -> None:
        """Cancel a request at the peer. Its response is still needed: if it opens a session anyway,
        that session has to be closed."""
        if not call.settled:
            notice = acp.CancelRequestNotification(request_id=call.id)
            with contextlib.suppress(DragomanError):
                far.connection.post(acp.CANCEL_REQUEST.name, notice)
        elif id is not None:
            # The response arrived just before.
            self.close_soon(far, id)

    def _orphaned(self, far: PeerLink, result: Raw, id: str | None) -> None:
        """Close a session that the peer opened although no caller waits for it any more."""
        if id is None:
            try:
                id = acp.SESSION_NEW.decode_result(result).session_id
            except msgspec.ValidationError as error:
                log.info("the peer opened a session that cannot be closed: %s", error)
                return
        self.close_soon(far, id)

    def close_soon(self, far: PeerLink, id: str) -> None:
        """Close a session at the peer, if the peer supports that and the session is not used."""
        if far.failure is None:
            self._broker.tasks.start(self._close_unused(far, id), "close an unowned session")

    async def _close_unused(self, far: PeerLink, id: str) -> None:
        if not self._has_session(far, id):
            await self.close(far, id)

    async def close(self, far: PeerLink, id: str) -> None:
        """Close a session at the peer, if the peer supports that. Errors are only logged."""
        if far.can("sessionCapabilities.close"):
            timeout = self._broker.budgets.request
            answered = self._broker.liveness.expect(far, CLOSE, timeout)
            try:
                await far.connection.call(CLOSE, pack({"sessionId": id}), timeout=timeout)
            except DragomanError as error:
                log.info("the peer does not close session %s: %s", id, error)
            else:
                answered()


def wanted(session: LiveSession) -> dict[str, Any]:
    """Return the parameters that open a session, apart from its id."""
    body: dict[str, Any] = {"cwd": str(session.cwd), "mcpServers": session.mcp_servers}
    if session.additional:
        body["additionalDirectories"] = [str(each) for each in session.additional]
    return body


def loads(far: PeerLink) -> bool:
    """Return whether the peer can replay the history of a session."""
    return far.can("loadSession")


def takes_up(far: PeerLink) -> bool:
    """Return whether the peer can reopen a session that it does not have open."""
    return far.can("sessionCapabilities.resume") or loads(far)


def folder_of(body: dict[str, Raw]) -> Path | None:
    """Return the working directory in the params of a request, or None if it is not an absolute
    path."""
    text = protocol.text(body.get("cwd"))
    return Path(text) if text is not None and Path(text).is_absolute() else None


def others_of(body: dict[str, Raw]) -> list[Path]:
    """Return the additional directories in the params of a request; none if they are invalid."""
    raw = body.get("additionalDirectories")
    try:
        found = [] if raw is None else msgspec.json.decode(raw, type=list[str] | None)
    except UNDECODABLE:
        return []
    return [Path(each) for each in found or []]
