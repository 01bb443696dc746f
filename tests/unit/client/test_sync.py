"""The loop in a thread: its life, and what happens to those who wait for it.

With agents it is in tests/integration/test_conversation_blocking.py.
"""

from __future__ import annotations

import _thread
import asyncio
import errno
import inspect
import itertools
import queue
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import pytest

from dragoman.client import sync
from dragoman.client.file_guard import decided
from dragoman.client.inquiries import DECLINED, Inquiry, Reply
from dragoman.client.not_entered import EnteringSync
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import Answer, Permit, Question, approve_all, deny_all
from dragoman.client.sync import _Call, _in_thread, _Loop
from dragoman.errors import ConnectionClosed, UsageError
from tests.aio import aio

TIMEOUT = 20.0

QUESTION = Question("s", "t", "Dig", "execute", (), None)


async def name() -> str:
    return threading.current_thread().name


async def tasks_left() -> int:
    """Return the number of tasks in the loop, without this one and the one that waits for the
    end."""
    return len(asyncio.all_tasks()) - 2


@contextmanager
def started() -> Iterator[_Loop]:
    loop = _Loop()
    loop.start()
    try:
        yield loop
    finally:
        loop.stop()


def test_work_runs_in_the_thread_of_the_loop_and_its_error_comes_back() -> None:
    async def fail() -> None:
        raise ValueError("from over there")

    with started() as loop:
        assert loop.run(name) == "dragoman"
        with pytest.raises(ValueError, match="over there"):
            loop.run(fail)
    assert "dragoman" not in [thread.name for thread in threading.enumerate()]


def test_after_the_block_nothing_runs_any_more() -> None:
    with started() as loop:
        pass
    with pytest.raises(ConnectionClosed):
        loop.run(name)


def test_a_loop_that_cannot_start_raises_its_error_and_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", no_loop)
    monkeypatch.setattr(asyncio.events, "new_event_loop", no_loop)
    with pytest.raises(OSError, match="Too many open files"), started():
        pytest.fail("there is no loop")
    assert "dragoman" not in [thread.name for thread in threading.enumerate()]


def test_waiting_for_the_loop_in_the_loop_is_refused() -> None:
    with started() as loop:

        async def nested() -> None:
            loop.run(name)

        with pytest.raises(UsageError, match="would deadlock"):
            loop.run(nested)


def press_ctrl_c() -> None:
    """Interrupt the main thread, even while it waits for a lock."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt. It is ignored if the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupts:
    """Raises KeyboardInterrupt in this thread at one of the points where Ctrl-C can. Use it with
    ``with``."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.left = at
        self.has_started_a_thread = False

    def __enter__(self) -> Interrupts:
        sys.setprofile(self.interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def interrupt(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "c_return" and arg is _thread.start_new_thread:
            self.has_started_a_thread = True
        # CPython looks for signals when a function begins and after a call, not when it returns.
        if event != "return" and not self._is_ignored(frame, event):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def _is_ignored(self, frame: FrameType, event: str) -> bool:
        if frame.f_code is Interrupts.__exit__.__code__:
            return True
        if frame.f_code is EnteringSync.__exit__.__code__ and event == "call":
            # This block is left only once the exception, with its traceback, is dropped.
            return True
        # CPython ignores exceptions in finalizers and in the callbacks of weak references.
        callers = (frame, frame.f_back)
        return any(each and each.f_code.co_name in ("__del__", "_remove") for each in callers)


def interrupted_everywhere(work: Callable[[], None]) -> Iterator[Interrupts]:
    """Do the work with one interrupt at each possible point, and yield after each time, while the
    interrupt is being handled."""
    for at in itertools.count(1):
        interrupts = Interrupts(at)
        try:
            with interrupts:
                work()
        except KeyboardInterrupt:
            yield interrupts
        else:
            assert interrupts.left > 0
            return


def test_an_interrupt_at_any_point_of_a_wait_leaves_no_work_running() -> None:
    running: list[int] = []

    async def work() -> None:
        running.append(1)
        try:
            await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            running.pop()

    with started() as loop:
        for at in interrupted_everywhere(lambda: loop.run(work)):
            assert loop.run(tasks_left) == 0, at.at
            assert running == [], at.at


def test_an_interrupt_at_any_point_of_a_block_leaves_the_block() -> None:
    inside: list[int] = []

    @asynccontextmanager
    async def block() -> AsyncIterator[int]:
        await asyncio.sleep(0)
        inside.append(1)
        try:
            yield 7
        finally:
            await asyncio.sleep(0)
            inside.pop()

    with started() as loop:

        @contextmanager
        def entered() -> Iterator[int]:
            yield from loop.entered(block(), int)

        def use() -> None:
            with EnteringSync(entered(), "") as value:
                assert value == 7

        for at in interrupted_everywhere(use):
            assert loop.run(tasks_left) == 0, at.at
            assert inside == [], at.at


def test_an_interrupt_at_any_point_of_a_connection_ends_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()
    work = sync._Loop._work

    def observed(loop: sync._Loop) -> None:
        try:
            work(loop)
        finally:
            ended.put(threading.current_thread())

    monkeypatch.setattr(sync._Loop, "_work", observed)

    def use() -> None:
        with EnteringSync(sync.connect_sync(no_peer, ConnectOptions()), ""):
            pass

    for at in interrupted_everywhere(use):
        if at.has_started_a_thread:
            # Not `join` at once: a thread that was only asked to start cannot be joined yet.
            ended.get(timeout=TIMEOUT).join(TIMEOUT)
        assert "dragoman" not in [thread.name for thread in threading.enumerate()], at.at


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_wait_cancels_the_work_and_waits_for_its_end() -> None:
    ended: list[str] = []

    async def work() -> None:
        press_ctrl_c()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    with started() as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.run(work)
        assert ended == ["cleaned up"]


@pytest.mark.usefixtures("ctrl_c")
def test_a_block_is_left_completely_before_an_interrupt_is_raised() -> None:
    left: list[str] = []

    @asynccontextmanager
    async def block() -> AsyncIterator[int]:
        yield 7
        press_ctrl_c()
        # Enough time for an interrupt that would cancel this.
        for _ in range(100):
            await asyncio.sleep(0)
        left.append("completely")

    with started() as loop:
        with pytest.raises(KeyboardInterrupt):
            for _ in loop.entered(block(), int):
                pass
        assert left == ["completely"]


def test_a_call_from_another_thread_ends_when_the_loop_does() -> None:
    begun = threading.Event()
    failures: list[BaseException] = []

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait(loop: _Loop) -> None:
        try:
            loop.run(work)
        except ConnectionClosed as error:
            failures.append(error)

    with started() as loop:
        other = threading.Thread(target=wait, args=[loop])
        other.start()
        assert begun.wait(TIMEOUT)
    other.join(TIMEOUT)
    assert len(failures) == 1


def test_a_call_that_the_loop_did_not_begin_before_its_end_fails() -> None:
    with started() as loop:
        call = _Call(name)
        loop._calls.add(call)
    assert call.ended and isinstance(call.error, ConnectionClosed)


def test_work_that_fails_before_it_is_a_coroutine_raises_its_error() -> None:
    def work() -> Awaitable[None]:
        raise ValueError("too early")

    with started() as loop, pytest.raises(ValueError, match="too early"):
        loop.run(work)


def test_a_block_is_left_whatever_happens_inside() -> None:
    left: list[str] = []

    @asynccontextmanager
    async def block() -> AsyncIterator[int]:
        try:
            yield 7
        finally:
            left.append(threading.current_thread().name)

    with started() as loop:
        entered = contextmanager(loop.entered)
        with pytest.raises(KeyboardInterrupt):
            with entered(block(), str) as value:
                assert value == "7"
                raise KeyboardInterrupt
    assert left == ["dragoman"]


@aio
async def test_a_question_to_the_user_is_asked_in_a_thread_and_its_failure_comes_back() -> None:
    threads: list[str] = []

    def inquire(inquiry: Inquiry) -> Reply:
        threads.append(threading.current_thread().name)
        if inquiry.message == "fail":
            raise ValueError("no")
        return Reply("accept", {"x": 1})

    asked = _in_thread(inquire)
    assert await asked(Inquiry("s", "well?")) == Reply("accept", {"x": 1})
    with pytest.raises(ValueError, match="no"):
        await asked(Inquiry("s", "fail"))
    assert threads == ["dragoman permit"] * 2


@pytest.mark.parametrize("failure", [SystemExit(2), KeyboardInterrupt(), StopIteration()])
@aio
async def test_a_failure_that_would_end_the_loop_comes_back_as_a_plain_one(
    failure: BaseException,
) -> None:
    def permit(question: Question) -> Answer:
        raise failure

    with pytest.raises(RuntimeError) as caught:
        await _in_thread(permit)(QUESTION)
    assert str(caught.value) == repr(failure)


@asynccontextmanager
async def no_peer(options: ConnectOptions) -> AsyncIterator[Any]:
    yield options


def test_both_who_may_block_get_a_thread() -> None:
    with sync.connect_sync(no_peer, ConnectOptions()) as peer:
        assert peer._peer.inquire is None  # type: ignore[attr-defined]
    options = ConnectOptions(
        permit=lambda question: Answer.ALLOW_ONCE, inquire=lambda inquiry: DECLINED
    )
    with sync.connect_sync(no_peer, options) as peer:
        handed: Any = peer._peer
        assert inspect.iscoroutinefunction(handed.permit)
        assert inspect.iscoroutinefunction(handed.inquire)


@aio
async def test_a_plain_decision_is_made_in_a_thread_and_an_async_one_in_the_loop() -> None:
    here = threading.current_thread()
    threads: list[bool] = []

    def plain(question: Question) -> Answer:
        threads.append(threading.current_thread() is here)
        return Answer.ALLOW_ONCE

    async def decided(question: Question) -> Answer:
        return Answer.ALLOW_ALWAYS

    answers = [
        await _in_thread(permit)(QUESTION)
        for permit in (plain, decided, lambda question: decided(question))
    ]
    assert answers == [Answer.ALLOW_ONCE, Answer.ALLOW_ALWAYS, Answer.ALLOW_ALWAYS]
    assert threads == [False]
    assert _in_thread(deny_all) is deny_all, "a preset never blocks"


class Guarded:
    """A permit with a guard of its own."""

    def __call__(self, question: Question) -> Answer:
        return Answer.ALLOW_ONCE

    def guard(self, question: Question) -> Answer:
        assert threading.current_thread().name == "dragoman permit"
        return Answer.REJECT_ONCE


@pytest.mark.parametrize("options", [{}, {"guard": Guarded().guard}])
def test_the_guard_runs_in_a_thread_too_even_if_it_is_that_of_the_permit(options: Any) -> None:
    answers: list[object] = []

    @asynccontextmanager
    async def open(handed: ConnectOptions) -> AsyncIterator[Any]:
        assert handed.guard is not None
        answers.append(await decided(handed.guard, QUESTION))
        yield None

    permit: Permit = approve_all if options else Guarded()
    with sync.connect_sync(open, ConnectOptions(permit=permit, **options)):
        assert answers == [Answer.REJECT_ONCE]
