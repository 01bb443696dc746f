"""The loop in a thread: its life, and what happens to those who wait for it.

With agents it is in tests/integration/test_conversation_blocking.py.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.client import sync
from dragoman.client.inquiries import DECLINED, Inquiry, Reply
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import Answer, Question, deny_all
from dragoman.client.sync import _in_thread, _Loop
from dragoman.errors import ConnectionClosed, UsageError
from tests.aio import aio

TIMEOUT = 20.0

QUESTION = Question("s", "t", "Dig", "execute", (), None)


async def name() -> str:
    return threading.current_thread().name


def test_work_runs_in_the_thread_of_the_loop_and_its_error_comes_back() -> None:
    async def fail() -> None:
        raise ValueError("from over there")

    with _Loop() as loop:
        assert loop.run(name) == "dragoman"
        with pytest.raises(ValueError, match="over there"):
            loop.run(fail)
    assert "dragoman" not in [thread.name for thread in threading.enumerate()]


def test_after_the_block_nothing_runs_any_more() -> None:
    with _Loop() as loop:
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
    with pytest.raises(OSError, match="Too many open files"), _Loop():
        pytest.fail("there is no loop")
    assert "dragoman" not in [thread.name for thread in threading.enumerate()]


def test_waiting_for_the_loop_in_the_loop_is_refused() -> None:
    with _Loop() as loop:

        async def nested() -> None:
            loop.run(name)

        with pytest.raises(UsageError, match="would deadlock"):
            loop.run(nested)


def test_an_interrupted_wait_cancels_the_work_and_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    begun = threading.Event()

    class Interrupted(Future[None]):
        """A future whose owner presses Ctrl-C while waiting for it."""

        def result(self, timeout: float | None = None) -> None:
            begun.wait(TIMEOUT)
            raise KeyboardInterrupt

    async def noticed() -> None:
        begun.set()
        await work()

    with _Loop() as loop:
        monkeypatch.setattr(sync, "Future", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(noticed)
        assert ended == ["cleaned up"]


def test_an_interrupt_before_the_work_has_begun_leaves_nothing_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            raise KeyboardInterrupt

    with _Loop() as loop:
        monkeypatch.setattr(sync, "Future", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(lambda: asyncio.Event().wait())


def test_a_block_is_left_whatever_happens_inside() -> None:
    left: list[str] = []

    @asynccontextmanager
    async def block() -> AsyncIterator[int]:
        try:
            yield 7
        finally:
            left.append(threading.current_thread().name)

    with _Loop() as loop:
        with pytest.raises(KeyboardInterrupt):
            with loop.entered(block()) as value:
                assert value == 7
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
async def nobody(options: ConnectOptions) -> AsyncIterator[Any]:
    yield options


def test_both_who_may_block_get_a_thread() -> None:
    with sync.connect_sync(nobody, ConnectOptions()) as peer:
        assert peer._peer.inquire is None  # type: ignore[attr-defined]
    options = ConnectOptions(
        permit=lambda question: Answer.ALLOW_ONCE, inquire=lambda inquiry: DECLINED
    )
    with sync.connect_sync(nobody, options) as peer:
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
