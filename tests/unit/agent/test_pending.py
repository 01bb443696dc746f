"""A call that is not awaited is missed, and never true."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from dragoman.agent.pending import AwaitedCalls, Pending, awaited
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio


class Asker:
    def __init__(self) -> None:
        self._calls = AwaitedCalls()

    @awaited("asker.ask(…)")
    async def ask(self, answer: bool = True) -> bool:
        await asyncio.sleep(0)
        return answer


@aio
async def test_a_pending_call_is_awaited_like_any_coroutine() -> None:
    asker = Asker()
    assert await asker.ask() is True
    both: list[bool] = list(await asyncio.gather(asker.ask(), asker.ask(False)))
    assert both == [True, False]
    tasks = TaskOwner("test")
    cancelled = tasks.start(asker.ask(), "ask")
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await tasks.aclose()
    asker.ask().close()
    assert asker._calls.unawaited() == []


def test_one_that_was_dropped_says_where_it_was_made() -> None:
    asker = Asker()
    asker.ask()  # type: ignore[unused-coroutine]
    (what,) = asker._calls.unawaited()
    assert what.startswith(f"asker.ask(…) at {__file__}:")


def test_the_place_of_a_call_is_the_line_that_made_it() -> None:
    asker = Asker()
    here = inspect.currentframe()
    assert here is not None
    lines = []
    for _ in range(2):
        lines.append(here.f_lineno + 1)
        asker.ask()  # type: ignore[unused-coroutine]
    lines.append(here.f_lineno + 1)
    asker.ask()  # type: ignore[unused-coroutine]
    places = [f"asker.ask(…) at {__file__}:{line}" for line in lines]
    assert asker._calls.unawaited() == places


def test_one_that_is_kept_and_not_awaited_is_missed_too() -> None:
    asker = Asker()
    kept = asker.ask()
    (what,) = asker._calls.unawaited()
    assert what.startswith(f"asker.ask(…) at {__file__}:")
    assert asker._calls.unawaited() == []
    assert repr(kept) == "<asker.ask(…), awaited>"


def test_calls_that_no_turn_reports_are_closed_without_a_warning() -> None:
    asker = Asker()
    asker.ask()  # type: ignore[unused-coroutine]
    del asker
    gc.collect()


@aio
async def test_a_pending_call_cannot_be_used_before_it_was_awaited() -> None:
    asker = Asker()
    answer: Any = asker.ask()
    with pytest.raises(TypeError, match=r"write `await asker\.ask\(…\)`"):
        assert answer != False  # noqa: E712
    answer = asker.ask()
    with pytest.raises(TypeError, match=r"write `await asker\.ask\(…\)`"):
        assert answer == True  # noqa: E712
    answer = asker.ask()
    assert answer == answer and not answer != answer
    with pytest.raises(AttributeError, match=r"write `await asker\.ask\(…\)`; it has no 'wait'"):
        answer.wait()
    with pytest.raises(TypeError, match=r"write `await asker\.ask\(…\)`"):
        async with answer:
            pytest.fail("entered")
    assert asker._calls.unawaited() == []


def test_a_pending_call_has_no_truth_value() -> None:
    asker = Asker()
    with pytest.raises(TypeError, match=r"write `await asker\.ask\(…\)`"):
        if asker.ask():  # type: ignore[truthy-bool]
            pytest.fail("taken for consent")
    assert asker._calls.unawaited() == []


def test_a_pending_call_shows_whether_it_was_awaited() -> None:
    pending: Coroutine[object, object, bool] = Asker().ask()
    assert isinstance(pending, Pending)
    assert repr(pending) == "<asker.ask(…), not awaited>"
    pending.close()
    assert repr(pending) == "<asker.ask(…), awaited>"
