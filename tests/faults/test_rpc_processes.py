"""One fault at a time, at every stage of a conversation with a real process.

Each test is one cell of a table: a stage (where in the conversation) and a fault (what the peer
does there). In every cell, each call settles with the right error, the connection reports why it
ended or continues, and nothing is left of the process and its children.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from msgspec import Raw, Struct

from dragoman.errors import (
    CallTimeout,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    DragomanError,
    LineTooLong,
    Overflow,
    ProcessExited,
)
from dragoman.rpc import Connection, ConnectionSettings, End, Router, outbox
from dragoman.rpc.tasks import TaskOwner
from dragoman.testing.scripted import (
    CloseStdin,
    CloseStdout,
    Die,
    Exit,
    Expect,
    FloodStderr,
    GoSilent,
    IgnoreTerminate,
    Notify,
    Reply,
    Send,
    SendBytes,
    Serve,
    SpawnGrandchild,
    Step,
    command,
)
from dragoman.transports import spawn
from dragoman.transports.process import stream as process_stream
from dragoman.transports.process.child import ShutdownTimes
from dragoman.wire.peer import Noise, Stray
from tests.aio import aio
from tests.unit.rpc.other_side import soon, turns

WAIT_TIMEOUT = 30.0
"""For what must happen soon; long, because a busy machine is not a failure."""

SILENCE_TIMEOUT = 0.05
"""For calls to peers that never answer."""

LINE_SIZE = 100_000

TIMES = ShutdownTimes(flush_timeout=0.2, exit_timeout=0.3, terminate_timeout=0.2, kill_timeout=5.0)


@dataclass(frozen=True)
class Fault:
    name: str
    steps: tuple[Step, ...]
    ends: type[ConnectionLost] | None = None
    """How it ends the connection, if it does."""
    silent: bool = False
    """Whether no call is answered any more although the connection continues."""
    noise: int = 0
    """The minimum number of reported lines that are not messages, or responses that match no
    request."""
    late: bool = False
    """Whether the response arrives only after the call was given up."""


FAULTS = [
    Fault("is killed", (Die(signal.SIGKILL),), ProcessExited),
    Fault("exits", (Exit(3),), ProcessExited),
    Fault("dies and leaves an orphan", (SpawnGrandchild(), Die()), ProcessExited),
    Fault("dies and leaves a daemon", (SpawnGrandchild(new_session=True), Die()), ProcessExited),
    Fault("dies in the middle of a line", (SendBytes(b'{"id":0,"res'), Exit(1)), ProcessExited),
    Fault("floods stderr and dies", (FloodStderr(1 << 20), Exit(4)), ProcessExited),
    Fault("closes stdout", (CloseStdout(), GoSilent()), ConnectionEnded),
    Fault("sends a line without end", (SendBytes(b"x", LINE_SIZE + 1), GoSilent()), LineTooLong),
    Fault("goes silent", (GoSilent(),), silent=True),
    Fault("goes silent and stays", (IgnoreTerminate(), GoSilent()), silent=True),
    Fault("stops in the middle of a line", (SendBytes(b'{"id":0,'), GoSilent()), silent=True),
    Fault("floods stderr", (FloodStderr(3 << 20),)),
    Fault("sends garbage", (SendBytes(b"\x00\xff{]\r\n\xfe garbage\n\n"),), noise=2),
    Fault("sends a number", (Send(42),), noise=1),
    Fault("sends null", (Send(None),), noise=1),
    Fault("sends a batch", (Send([]), Send([{"id": 0, "result": 1}])), noise=2),
    Fault("sends text", (Send("text"),), noise=1),
    Fault("answers twice", (Reply("first"),), noise=1),
    Fault("answers late", (Expect("more"),), noise=1, late=True),
    Fault("leaves a child", (SpawnGrandchild(),)),
]

LAST: tuple[Step, ...] = (Reply("first"), Expect("last"), Reply("last"), Serve())
"""Return the rest of the script of a peer that survived its fault."""


class Peer:
    """A connection to a scripted process, and what was received from it."""

    def __init__(self) -> None:
        self.noises: list[Noise | Stray] = []
        self.news: list[int] = []
        self.ready = asyncio.Event()
        self._heard = asyncio.Event()
        self.router = Router(on_noise=self._noise)
        self.router.on_notification("news", self._handle, News)
        self.router.on_notification("ready", lambda raw: self.ready.set())

    async def _handle(self, news: News) -> None:
        await asyncio.sleep(0)
        self.news.append(news.n)
        self._heard.set()

    def _noise(self, noise: Noise | Stray) -> None:
        self.noises.append(noise)
        self._heard.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not condition():
                self._heard.clear()
                await self._heard.wait()


class News(Struct):
    n: int


@asynccontextmanager
async def talk(*steps: Step) -> AsyncIterator[tuple[Connection, Peer]]:
    peer = Peer()
    stream = await spawn(command(Notify("ready"), *steps), times=TIMES)
    settings = ConnectionSettings(max_line_size=LINE_SIZE)
    async with Connection(stream, End.CLIENT, peer.router, settings=settings) as connection:
        # A call must not time out while the peer's interpreter still starts.
        await soon(peer.ready.wait())
        yield connection, peer


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for the exit of a peer on a busy machine.
    monkeypatch.setattr(process_stream, "END_TO_EXIT_TIMEOUT", 0.5)


every_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


async def settle(work: asyncio.Task[Raw]) -> Raw | DragomanError:
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):
            return await work
    except DragomanError as error:
        return error


async def check(fault: Fault, connection: Connection, peer: Peer, call: asyncio.Task[Raw]) -> None:
    """Return what every stage with a pending call has in common."""
    outcome = await settle(call)
    if fault.ends is not None:
        assert isinstance(outcome, fault.ends)
        assert outcome.may_have_run
        assert type(connection.failure) is type(outcome)
        assert not call.cancelled()
        return
    if fault.silent or fault.late:
        assert isinstance(outcome, CallTimeout)
        assert outcome.may_have_run
    else:
        assert outcome == Raw(b'"first"')
    assert connection.failure is None
    if not fault.silent:
        await check_survived(fault, connection, peer)


async def check_survived(fault: Fault, connection: Connection, peer: Peer) -> None:
    if fault.late:
        await connection.notify("more")
    await peer.until(lambda: len(peer.noises) >= fault.noise)
    assert bytes(await soon(connection.call("last", timeout=WAIT_TIMEOUT))) == b'"last"'
    assert len(peer.noises) == fault.noise


def timeout_for(fault: Fault) -> float:
    return SILENCE_TIMEOUT if fault.silent or fault.late else WAIT_TIMEOUT


@every_fault
@aio
async def test_a_peer_that_fails_before_its_first_answer(fault: Fault) -> None:
    async with talk(Expect("a"), *fault.steps, *LAST) as (connection, peer):
        call = connection.tasks.start(connection.call("a", timeout=timeout_for(fault)), "call")
        await check(fault, connection, peer, call)


@every_fault
@aio
async def test_a_peer_that_fails_during_one_call_of_many(fault: Fault) -> None:
    opening = (Expect("zero"), Reply(0), Expect("one"), Expect("two"), Reply(2), Expect("a"))
    async with talk(*opening, *fault.steps, *LAST) as (connection, peer):
        assert bytes(await connection.call("zero", timeout=WAIT_TIMEOUT)) == b"0"
        # Not a task of the connection, which cancels its tasks when it is closed.
        one = TaskOwner("test").start(connection.call("one"), "one")
        two = connection.tasks.start(connection.call("two"), "two")
        assert bytes(await soon(two)) == b"2"
        call = connection.tasks.start(connection.call("a", timeout=timeout_for(fault)), "call")
        await check(fault, connection, peer, call)
        if fault.ends is None:
            assert not one.done()
            await connection.aclose()
            assert isinstance(await settle(one), ConnectionClosed)
        else:
            error = await settle(one)
            assert isinstance(error, fault.ends) and error.may_have_run
            assert error is not await settle(call)


@every_fault
@aio
async def test_a_peer_that_fails_during_a_stream_of_notifications(fault: Fault) -> None:
    opening = (Expect("a"), Notify("news", times=300))
    async with talk(*opening, *fault.steps, *LAST) as (connection, peer):
        timeout = timeout_for(fault)
        after = peer.router.lane()
        work = connection.call("a", timeout=timeout, after=after)
        call = connection.tasks.start(work, "call")
        if not (fault.silent or fault.late):
            await settle(call)
            # However the call ended, its end overtook nothing.
            assert peer.news == list(range(300))
        await check(fault, connection, peer, call)


@every_fault
@aio
async def test_a_peer_that_fails_between_two_calls(fault: Fault) -> None:
    opening = (Expect("a"), Reply(1), Expect("now"))
    closing = LAST[1:] if not fault.late else (Reply(), *LAST[1:])
    async with talk(*opening, *fault.steps, *closing) as (connection, peer):
        assert bytes(await connection.call("a", timeout=WAIT_TIMEOUT)) == b"1"
        await connection.notify("now")
        if fault.ends is not None:
            assert isinstance(await soon(connection.wait_ended()), fault.ends)
            with pytest.raises(fault.ends) as caught:
                await connection.call("last", timeout=WAIT_TIMEOUT)
            assert not caught.value.may_have_run
        elif fault.silent:
            with pytest.raises(CallTimeout):
                await connection.call("last", timeout=SILENCE_TIMEOUT)
            assert connection.failure is None
        else:
            await check_survived(fault, connection, peer)


@every_fault
@aio
async def test_a_peer_that_fails_while_the_connection_closes(fault: Fault) -> None:
    async with talk(Expect("a"), Serve(), *fault.steps, *LAST) as (connection, _):
        tasks = TaskOwner("test")
        waiting = tasks.start(connection.call("a"), "call")
        await turns()
        assert bytes(await connection.call("b", 5, timeout=WAIT_TIMEOUT)) == b"5"
        async with asyncio.timeout(WAIT_TIMEOUT):
            await connection.aclose()
        error = await settle(waiting)
        assert isinstance(error, ConnectionClosed)
        assert error.may_have_run
        assert isinstance(connection.failure, ConnectionClosed)


@aio
async def test_the_end_of_a_process_tells_how_it_ended_and_its_last_words() -> None:
    async with talk(Expect("a"), FloodStderr(2 << 20), Exit(7)) as (connection, _):
        with pytest.raises(ProcessExited) as caught:
            await connection.call("a", timeout=WAIT_TIMEOUT)
        assert caught.value.exit_code == 7
        assert "the same complaint" in caught.value.stderr_tail
        assert len(caught.value.stderr_tail) <= process_stream.STDERR_TAIL_SIZE
    async with talk(Expect("a"), Die(signal.SIGSEGV)) as (connection, _):
        with pytest.raises(ProcessExited) as caught:
            await connection.call("a", timeout=WAIT_TIMEOUT)
        assert caught.value.signal == signal.SIGSEGV


@aio
async def test_an_answer_before_the_death_is_still_an_answer() -> None:
    async with talk(Expect("a"), Notify("news", {"n": 1}), Reply("last words"), Die()) as (
        connection,
        peer,
    ):
        work = connection.call("a", timeout=WAIT_TIMEOUT, after=peer.router.lane())
        assert bytes(await work) == b'"last words"'
        assert peer.news == [1]
        assert isinstance(await soon(connection.wait_ended()), ProcessExited)


@pytest.mark.parametrize("size", list(itertools.chain(range(1, 64, 7), [63])))
@aio
async def test_a_peer_that_dies_at_any_byte_of_its_answer(size: int) -> None:
    line = b'{"jsonrpc":"2.0","id":0,"result":{"text":"a long answer, really"}}'
    assert len(line) > size
    async with talk(Expect("a"), SendBytes(line[:size]), Die()) as (connection, _):
        with pytest.raises(ProcessExited) as caught:
            await connection.call("a", timeout=WAIT_TIMEOUT)
        assert caught.value.may_have_run


@aio
async def test_a_peer_that_stops_reading_breaks_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_stream, "BROKEN_TO_EXIT_TIMEOUT", 0.05)
    steps = (Expect("a"), CloseStdin(), Notify("news", {"n": 1}), GoSilent())
    async with talk(*steps) as (connection, peer):
        first = connection.tasks.start(connection.call("a"), "first")
        await peer.until(lambda: peer.news == [1])
        second = connection.tasks.start(connection.call("b"), "second")
        for call in (first, second):
            error = await settle(call)
            assert isinstance(error, ConnectionBroken)
            assert error.may_have_run


@aio
async def test_a_peer_that_neither_reads_nor_writes_is_noticed_by_a_timeout_and_by_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "MAX_UNSENT_SIZE", 4 << 20)
    async with talk(Expect("a"), GoSilent()) as (connection, _):
        text = "x" * (LINE_SIZE // 2)
        first = connection.tasks.start(connection.call("a"), "first")
        await turns()
        for _ in range(60):
            connection.post("fill", text)
        with pytest.raises(CallTimeout) as caught:
            await connection.call("b", timeout=SILENCE_TIMEOUT)
        assert not caught.value.may_have_run
        while connection.failure is None:
            connection.post("fill", text)
        error = await settle(first)
        assert isinstance(error, Overflow) and error.may_have_run
