"""Waiting for a change, or for a retry after failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.console import retry
from dragoman.console.retry import changed_or_due
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio


@aio
async def test_without_a_failure_only_a_change_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(retry, "backoff")
    changed = asyncio.Event()
    tasks = TaskOwner("test")
    waiting = tasks.start(changed_or_due(changed, 0), "wait")
    changed.set()
    async with asyncio.timeout(5):
        await waiting


@aio
async def test_after_failures_the_wait_ends_after_a_delay_that_depends_on_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers: list[int] = []

    def delay(failed: int, rng: Any) -> float:
        numbers.append(failed)
        return 0.0

    monkeypatch.setattr(retry, "backoff", delay)
    async with asyncio.timeout(5):
        await changed_or_due(asyncio.Event(), 1)
        await changed_or_due(asyncio.Event(), 2)
    assert numbers == [1, 2]
