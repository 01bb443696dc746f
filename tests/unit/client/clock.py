"""Clocks that a test turns by hand, so that a test of waiting does not wait.

`Clock` takes the place of the event loop, for code that needs only its time and its timers.
`LoopClock` moves the time of the running event loop forward, for code that also needs tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.rpc.other_side import turns

STEPS = 50


class Timer:
    """What `call_later` gives."""

    def __init__(self, at: float, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.at = at
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """Stands still until `advance`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(self.now + delay, callback, args)
        self.timers.append(timer)
        return timer

    @property
    def due(self) -> list[Timer]:
        """The timers that are still set."""
        return [timer for timer in self.timers if not timer.cancelled]

    def advance(self, seconds: float) -> None:
        """Let time pass, and call what falls due on the way."""
        until = self.now + seconds
        while ready := [timer for timer in self.due if timer.at <= until]:
            first = min(ready, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = max(self.now, first.at)
            first.callback(*first.args)
        self.now = until


class LoopClock:
    """The time of the running event loop, which a test moves forward. Create it before what reads
    the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        real_time = loop.time
        self._ahead = 0.0
        monkeypatch.setattr(loop, "time", lambda: real_time() + self._ahead)

    async def advance(self, seconds: float) -> None:
        """Let time pass in small steps, so that a timer that is set again on the way falls due
        again."""
        for _ in range(STEPS):
            self._ahead += seconds / STEPS
            await turns()
