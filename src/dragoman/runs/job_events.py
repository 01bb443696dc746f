"""Follow the events of a session or job while it runs, in this or another process.

Yields numbered lines without gaps or repeats, from the broker that has the session open or from
the store. Sends no prompt and answers nothing. `store.history` reads sessions of the past.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker.client.hello import ANSWER_TIMEOUT, knock
from dragoman.broker.client.liveness import require_answer, watch
from dragoman.broker.methods import ATTACH, RESULT
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.errors import CallError, ConnectError, ConnectionLost, DragomanError
from dragoman.gateway.relay import HERE, Upstream
from dragoman.rpc import Lane
from dragoman.runs.jobs import LOOK_INTERVAL, address_of, find_job, updated
from dragoman.store.open import open_store

if TYPE_CHECKING:
    from dragoman.broker.records import BrokerRecord
    from dragoman.paths import Paths
    from dragoman.store.records import JobRecord, SessionRecord
    from dragoman.wire.messages import Notification, Request

ATTACH_TIMEOUT: Final = ANSWER_TIMEOUT
"""Seconds for a broker to attach a reader. It needs no peer for that, and reads one number from the
store at most."""

NOBODY: Final = ClientOptions(read_files=False, write_files=False)
"""Who follows offers nothing and decides nothing."""


class Over:
    """Stands behind the last line: why there are no more."""

    def __init__(self, told: Any = None, error: DragomanError | None = None) -> None:
        self.told = told
        self.error = error


class _Route:
    """Takes the updates of one session."""

    def __init__(self, lane: Lane[bytes | Over]) -> None:
        self._lane = lane

    def update(self, notification: Notification) -> None:
        self._lane.put(bytes(notification.params), len(notification.line))

    def request(self, request: Request) -> Any:
        return HERE


async def follow_session(
    record: SessionRecord, broker: BrokerRecord | None, *, start: int | None, paths: Paths
) -> AsyncGenerator[tuple[int, bytes], None]:
    """The lines of a session from `start` on, or from now on, until its broker ends.

    Without a broker that has it open there is nothing to wait for: what is stored comes, and that
    was all. Raises `BrokerError` behind that if the broker has it open and does not answer.
    """
    lost = False
    if broker is not None:
        following = _live(broker.address, broker.name, record.peer_session_id, start, None)
        number = start
        try:
            async for line_number, line in following:
                yield line_number, line
                number = line_number + 1
        except (ConnectError, CallError, ConnectionLost):
            # It is not open there, or not any more; the store has what there was.
            start, lost = number, True
        else:
            return
        finally:
            await following.aclose()
    if start is not None:
        with open_store(read_only=True, paths=paths) as store:
            for stored in store.lines(record.key, start):
                yield stored
    if lost and broker is not None:
        await require_answer(broker.address, broker.name)


async def follow_sessions(
    job: JobRecord, *, paths: Paths
) -> AsyncGenerator[tuple[SessionRecord, AsyncGenerator[tuple[int, bytes], None]], None]:
    """The sessions that a job goes on in, one after another, each with its lines."""
    seen = ""
    while True:
        if job.session_key != seen:
            with open_store(read_only=True, paths=paths) as store:
                record = store.session(job.session_key)
            if record is not None:
                seen = job.session_key
                yield record, follow_job(record, job, paths=paths)
                job = await find_job(job.id, paths=paths, require_answer=True)
                continue
        if job.state == "ended":
            return
        await asyncio.sleep(LOOK_INTERVAL)
        job = await find_job(job.id, paths=paths, require_answer=True)


async def follow_job(
    record: SessionRecord, job: JobRecord, *, paths: Paths
) -> AsyncGenerator[tuple[int, bytes], None]:
    """The lines of a job from its first on, until it has ended or goes on in another session.
    Raises `BrokerError` if its broker does not answer any more."""
    number = job.first_event
    while job.state == "queued":
        await asyncio.sleep(LOOK_INTERVAL)
        job = await find_job(job.id, paths=paths, require_answer=True)
        number = job.first_event
    if job.state == "running" and job.endpoint is not None:
        address = address_of(job.endpoint, paths)
        following = _live(address, job.endpoint, record.peer_session_id, number, job)
        try:
            async for line_number, line in following:
                yield line_number, line
                number = line_number + 1
        except (ConnectError, CallError, ConnectionLost):
            pass
        finally:
            await following.aclose()
    while True:
        # Asked before the lines are read, so that the last of them are not missed.
        job = await find_job(job.id, paths=paths, require_answer=True)
        moved = job.session_key != record.key
        stop = job.next_event if job.state == "ended" and not moved else None
        with open_store(read_only=True, paths=paths) as store:
            for line_number, line in store.lines(record.key, number, stop):
                yield line_number, line
                number = line_number + 1
        if moved or job.state == "ended":
            return
        await asyncio.sleep(LOOK_INTERVAL)


async def _live(
    address: str, broker: str, session_id: str, start: int | None, job: JobRecord | None
) -> AsyncGenerator[tuple[int, bytes], None]:
    client = AcpClient(await knock(address), NOBODY)
    upstream = Upstream(client)
    try:
        connection = client.connection
        watch(connection, address, broker, always=True)
        await client.start()
        lane: Lane[bytes | Over] = Lane(connection.flow)
        upstream.route(session_id, _Route(lane))
        answer = msgspec.json.decode(
            await connection.call(
                ATTACH, {"sessionId": session_id, "start": start}, timeout=ATTACH_TIMEOUT
            )
        )
        number = answer["next"] if start is None else max(start, answer.get("first", start))
        stop: int | None = None
        if job is not None:

            def settle(result: Raw | None, error: DragomanError | None) -> None:
                told = None if result is None else msgspec.json.decode(result)
                lane.put(Over(told, error), 0)

            connection.begin(RESULT, {"job": job.id, "wait": True}, settle=settle)
        while stop is None or number < stop:
            item = await lane.get()
            if not isinstance(item, Over):
                yield number, item
                number += 1
            elif item.error is not None:
                raise item.error
            elif job is not None:
                # The answer may be here before events that the broker has yet to send.
                stop = updated(job, item.told).next_event
    finally:
        await client.aclose()
