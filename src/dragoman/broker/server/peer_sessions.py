"""Calls to the peer that open, resume, load and close sessions, each with a timeout.

Waits for history that a peer replays after its answer, and closes a session that the peer opens
after the caller gave up. `sessions` decides which session to open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker.protocol import pack
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import CallTimeout, DragomanError, InvalidAnswer

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

    `is_known` tells whether this broker has a session with an id.
    """

    def __init__(self, broker: Broker, *, is_known: Callable[[str], bool]) -> None:
        self._broker = broker
        self._is_known = is_known

    async def open(
        self, far: PeerLink, method: str, params: Raw, opened: Callable[[Raw], None]
    ) -> Raw:
        """Call a method that opens a session; `opened` is called while the response is being
        read, before anything the peer sends after it."""
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

        def settle(result: Raw | None, error: DragomanError | None) -> None:
            answered()
            if future.done():
                if result is not None and method not in (LOAD, RESUME):
                    self._orphaned(far, result)
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
        call = far.upstream.open(method, params, settle)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            _call_off(far, call)
            await self._broker.liveness.check(far)
            raise CallTimeout(method, timeout) from None
        except asyncio.CancelledError:
            _call_off(far, call)
            raise

    async def have_opened(self, session: LiveSession, far: PeerLink, caller: Caller | None) -> None:
        """Resume or load a session. A caller that wants the history needs load.

        Raises `Overflow` if the caller did not read the history.
        """
        body = {"sessionId": session.id, **wanted(session)}

        def opened(result: Raw) -> None:
            response = acp.SESSION_RESUME.decode_result(result)
            session.sheltered.opened(response.modes, response.models, response.config_options)

        if caller is None and far.can("sessionCapabilities.resume"):
            await self.open(far, RESUME, pack(body), opened)
            return
        replay = session.begin_replay(caller)
        try:
            await self.open(far, LOAD, pack(body), opened)
        except BaseException:
            session.end_replay()
            raise
        replay.loaded()
        # One real agent replays most of its history after the response.
        self._broker.tasks.start(self.wait_replayed(session), "wait for the end of a replay")
        if replay.unread is not None:
            raise replay.unread

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

    def _orphaned(self, far: PeerLink, result: Raw) -> None:
        """Close a session that the peer opened although no caller waits for it any more."""
        try:
            id = acp.SESSION_NEW.decode_result(result).session_id
        except msgspec.ValidationError as error:
            log.info("the peer opened a session that cannot be closed: %s", error)
            return
        if not self._is_known(id):
            self.close_soon(far, id)

    def close_soon(self, far: PeerLink, id: str) -> None:
        """Close an unowned session at the peer, if the peer supports that."""
        if far.failure is None:
            self._broker.tasks.start(self.close(far, id), "close an unowned session")

    async def close(self, far: PeerLink, id: str) -> None:
        """Close a session at the peer, if the peer supports that. Errors are ignored."""
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


def _call_off(far: PeerLink, call: Call) -> None:
    """Cancel a request at the peer. Its response is still needed: if it opens a session anyway,
    that session has to be closed."""
    if call.id is not None:
        notice = acp.CancelRequestNotification(request_id=call.id)
        with contextlib.suppress(DragomanError):
            far.connection.post(acp.CANCEL_REQUEST.name, notice)
