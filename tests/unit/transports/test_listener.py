"""Who owns accepted streams: every handler ends, every stream is closed, whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.transports import listener as module
from dragoman.transports.base import Stream
from dragoman.transports.listener import Listener, OnStream
from dragoman.transports.memory import MemoryStream, memory_pair
from tests.aio import aio


class HandedListener(Listener):
    """A listener whose connections are handed to it by the test."""

    stops = 0

    @property
    def address(self) -> str:
        return "here"

    def _stop_accepting(self) -> None:
        self.stops += 1

    def hand(self) -> MemoryStream:
        ours, theirs = memory_pair()
        self._accepted(ours)
        return theirs


class Ended:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.heard: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)

    def stream_ended(self, failure: object) -> None:
        self.event.set()


async def assert_ended(stream: MemoryStream) -> Ended:
    ended = Ended()
    stream.start(ended)
    async with asyncio.timeout(5):
        await ended.event.wait()
    return ended


def caught_reports() -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    return reports


def waiting_handler() -> tuple[OnStream, asyncio.Event]:
    begun = asyncio.Event()

    async def handler(stream: Stream) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    return handler, begun


@aio
async def test_a_stream_is_closed_when_its_handler_returns() -> None:
    async def handler(stream: Stream) -> None:
        stream.write(b"hello\n")

    async with HandedListener(handler) as listener:
        ended = await assert_ended(listener.hand())
        assert ended.heard == [b"hello\n"]


@aio
async def test_a_handler_that_fails_is_reported_and_its_stream_closed() -> None:
    reports = caught_reports()

    async def handler(stream: Stream) -> None:
        raise ValueError("a mistake in the handler")

    async with HandedListener(handler) as listener:
        await assert_ended(listener.hand())
    assert [str(report["exception"]) for report in reports] == ["a mistake in the handler"]


@aio
async def test_closing_cancels_handlers_and_closes_their_streams() -> None:
    handler, begun = waiting_handler()
    listener = HandedListener(handler)
    theirs = listener.hand()
    await begun.wait()
    await listener.aclose()
    await assert_ended(theirs)
    await listener.aclose()
    assert listener.stops == 1


@aio
async def test_a_stream_whose_handler_had_no_first_turn_yet_is_closed_too() -> None:
    handler, begun = waiting_handler()
    listener = HandedListener(handler)
    theirs = listener.hand()
    await listener.aclose()
    assert not begun.is_set()
    await assert_ended(theirs)


@aio
async def test_handlers_end_even_if_the_close_itself_is_cancelled() -> None:
    handler, begun = waiting_handler()
    listener = HandedListener(handler)
    theirs = listener.hand()
    await begun.wait()
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(listener.aclose())
        await asyncio.sleep(0)
        closing.cancel()
    await assert_ended(theirs)
    await listener.aclose()


@aio
async def test_a_handler_may_close_its_own_listener() -> None:
    closed = asyncio.Event()

    async def handler(stream: Stream) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await listener.aclose()
            closed.set()

    listener = HandedListener(handler)
    listener.hand()
    await asyncio.sleep(0)
    await listener.aclose()
    assert closed.is_set()


@aio
async def test_a_handler_that_refuses_to_end_is_reported_and_does_not_hold_up_the_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HANDLER_TIMEOUT", 0.01)
    reports = caught_reports()
    release = asyncio.Event()
    done = asyncio.Event()

    async def handler(stream: Stream) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        done.set()

    listener = HandedListener(handler)
    listener.hand()
    await asyncio.sleep(0)
    await listener.aclose()
    assert ["did not end" in report["message"] for report in reports] == [True]
    release.set()
    await done.wait()
    await listener.aclose()


@aio
async def test_open_connections_stay_when_no_new_ones_are_accepted() -> None:
    gone = asyncio.Event()

    async def wait(stream: Stream) -> None:
        await gone.wait()

    listener = HandedListener(wait)
    theirs = listener.hand()
    for _ in range(2):
        listener.stop_accepting()
    assert listener.stops == 1
    theirs.write(b"still here\n")
    gone.set()
    await assert_ended(theirs)
    await listener.aclose()
    assert listener.stops == 1
