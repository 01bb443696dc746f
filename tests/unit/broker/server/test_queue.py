"""Prompts that wait for their turn."""

from __future__ import annotations

import pytest

from dragoman.broker.server.queue import Queue
from dragoman.errors import BrokerBusy


def queue(*, parallel: bool, limit: int = 100) -> Queue[str]:
    """Of words, each for the session that its first letter names."""
    return Queue(lambda word: word[0], parallel=parallel, limit=limit)


def test_items_of_one_key_run_one_after_the_other() -> None:
    waiting = queue(parallel=True)
    for word in ("a1", "a2", "b1"):
        waiting.put(word)
    assert (waiting.ready(), waiting.ready(), waiting.ready()) == ("a1", "b1", None)
    assert waiting.running == ["a1", "b1"]
    waiting.done("a1")
    assert waiting.ready() == "a2"


def test_without_parallel_work_everything_runs_in_the_order_of_arrival() -> None:
    waiting = queue(parallel=False)
    for word in ("a1", "b1", "a2"):
        waiting.put(word)
    order = []
    while (item := waiting.ready()) is not None:
        assert waiting.ready() is None
        order.append(item)
        waiting.done(item)
    assert order == ["a1", "b1", "a2"]
    assert not waiting.busy


def test_one_too_many_is_refused_unless_it_need_not_wait() -> None:
    waiting = queue(parallel=True, limit=2)
    waiting.put("a1")
    assert waiting.ready() == "a1"
    waiting.put("a2")
    waiting.put("a3")
    with pytest.raises(BrokerBusy, match="waiting at this broker"):
        waiting.put("a4")
    waiting.put("b1")
    assert waiting.ready() == "b1"
    with pytest.raises(BrokerBusy, match="waiting at this broker"):
        waiting.put("b2")


def test_what_waits_can_be_taken_out_and_what_runs_cannot() -> None:
    waiting = queue(parallel=True)
    waiting.put("a1")
    waiting.put("a2")
    assert waiting.ready() == "a1"
    assert not waiting.drop("a1")
    assert list(waiting.waiting("a")) == ["a2"]
    assert waiting.drop("a2")
    assert len(waiting) == 0
    assert waiting.busy


def test_the_end_of_one_that_does_not_run_changes_nothing() -> None:
    waiting = queue(parallel=False)
    waiting.put("a1")
    assert waiting.ready() == "a1"
    waiting.done("a2")
    assert waiting.running == ["a1"]
