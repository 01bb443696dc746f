"""Ask running brokers which one has a stored session open, and have that session released or
closed.

Starts no broker and sends no prompt. `take_over` raises `TurnInProgress` while another process uses
the session, and `BrokerUnavailable` if a broker does not say whether it has it open.
`runs.job_events` follows the events of a session.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from dragoman.broker.client.brokers import list_brokers, status_of, stop_broker
from dragoman.broker.client.hello import ANSWER_TIMEOUT, ask_broker, open_stream, unanswered
from dragoman.broker.error_codec import revive
from dragoman.broker.protocol import RELEASE
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    BrokerError,
    BrokerUnavailable,
    CallError,
    CallTimeout,
    ConnectError,
    ConnectionLost,
    DragomanError,
    RemoteError,
    TurnInProgress,
)
from dragoman.rpc.tasks import in_thread, together
from dragoman.store.jobs import is_alive
from dragoman.store.open import open_store

if TYPE_CHECKING:
    from dragoman.broker.records import BrokerRecord
    from dragoman.paths import Paths
    from dragoman.store.records import JobRecord, SessionRecord

log: Final = logging.getLogger("dragoman.broker")

CLOSE_TIMEOUT: Final = 10.0
"""Timeout in seconds for a peer to close a session. The caller closes the stored session even
after a timeout."""


async def statuses(paths: Paths) -> list[tuple[BrokerRecord, dict[str, Any] | None]]:
    """Return every running broker with its status, or with None if it does not answer or no longer
    accepts callers."""
    brokers = list_brokers(paths)
    told = await together(*(status_of(record) for record in brokers))
    return list(zip(brokers, told, strict=True))


async def broker_with(session: SessionRecord, paths: Paths) -> BrokerRecord | None:
    """Return the broker that reports a stored session as open, or None if none does."""
    candidates = [record for record in list_brokers(paths) if record.peer == session.peer]
    told = await together(*(status_of(record) for record in candidates))
    for record, status in zip(candidates, told, strict=True):
        open_there = (status or {}).get("sessions")
        if isinstance(open_there, list) and any(
            isinstance(each, dict) and each.get("key") == session.key for each in open_there
        ):
            return record
    return None


async def silent_brokers(peer: str, paths: Paths) -> list[BrokerRecord]:
    """Return the running brokers of a peer that accept callers but do not answer."""
    candidates = [each for each in list_brokers(paths) if each.peer == peer and not each.draining]
    told = await together(*(status_of(record) for record in candidates))
    return [record for record, status in zip(candidates, told, strict=True) if status is None]


async def sessions_in(broker: str, paths: Paths) -> list[dict[str, Any]]:
    """Return the sessions of the broker with this name; empty if it does not run or answer."""
    for record in list_brokers(paths):
        if record.name == broker and (status := await status_of(record)) is not None:
            told = status.get("sessions")
            found = told if isinstance(told, list) else []
            return [each for each in found if isinstance(each, dict)]
    return []


async def take_over(session: SessionRecord, *, broker: str | None, pid: int, paths: Paths) -> None:
    """Ensure that no other process has a stored session open, so that the session can continue in
    `broker` or, without a broker, in the process `pid`.

    Two processes with one session would not see each other's turns. A broker whose peer cannot
    close the session is stopped if it is idle. Raises `TurnInProgress` if the session is in use,
    and `BrokerUnavailable` if another broker of the peer does not answer: it may have the session
    open, and would continue with it later.
    """
    named = session.name or session.key
    others = [
        record
        for record in list_brokers(paths)
        if record.peer == session.peer and record.name != broker and not record.draining
    ]
    for record in others:
        try:
            params = {"sessionId": session.peer_session_id}
            told = await ask_broker(record.address, RELEASE, params, timeout=ANSWER_TIMEOUT)
            if isinstance(told, dict) and told.get("released") and not told.get("closed"):
                # The peer of that broker keeps the session open for as long as it runs.
                await stop_broker(record, if_idle=True)
        except RemoteError as error:
            refused = revive(error.data, error.message)
            if isinstance(refused, TurnInProgress):
                raise refused from error
            log.debug("the broker %s cannot release a session: %s", record.name, error)
        except (CallTimeout, ConnectError) as error:
            cause = error.__cause__
            if isinstance(cause, FileNotFoundError | ConnectionRefusedError):
                # It has ended, or finishes its turns.
                continue
            silent = isinstance(error, CallTimeout) or isinstance(cause, TimeoutError)
            why = unanswered(record.name, ANSWER_TIMEOUT) if silent else str(error)
            raise BrokerUnavailable(
                f"the session {named} may be open in another broker: {why}"
            ) from error
        except (ConnectionLost, CallError, BrokerError) as error:
            log.debug("the broker %s has ended: %s", record.name, error)
    # Any remaining job runs outside a broker, or in one that no longer accepts callers.
    await require_idle(session.key, named, besides=pid, paths=paths)


async def require_idle(key: str, named: str, *, besides: int, paths: Paths) -> None:
    """Raise `TurnInProgress` if the session has a running or queued job that belongs to a living
    process other than `besides` (a pid). `named` is the session's name in the message."""
    job = await in_thread(str(paths.state), lambda _: running_job(key, paths, besides=besides))
    if job is not None:
        raise TurnInProgress(
            f"the job {job.id} of the session {named} has not ended; "
            f"`dragoman jobs watch {job.id}` shows it"
        )


def running_job(key: str, paths: Paths, *, besides: int | None = None) -> JobRecord | None:
    """Return a session's running or queued job that belongs to a living process other than
    `besides` (a pid), or None."""
    with open_store(read_only=True, paths=paths) as store:
        jobs = [
            *store.jobs("running", session_key=key),
            *store.jobs("queued", session_key=key),
        ]
    theirs = (job for job in jobs if job.runner.get("pid") not in (None, besides))
    return next((job for job in theirs if is_alive(job.runner)), None)


async def close_at_peer(session: SessionRecord, paths: Paths) -> DragomanError | None:
    """Have the peer close a session that a broker has open. Returns why it did not; None if it did,
    or if no broker has the session open."""
    broker = await broker_with(session, paths)
    if broker is None:
        return None
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            options = ClientOptions(read_files=False, write_files=False)
            async with AcpClient(await open_stream(broker.address), options) as client:
                await client.connection.call(
                    acp.SESSION_CLOSE.name, {"sessionId": session.peer_session_id}
                )
    except DragomanError as error:
        return error
    except TimeoutError:
        return CallTimeout(acp.SESSION_CLOSE.name, CLOSE_TIMEOUT)
    return None
