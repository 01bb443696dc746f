"""Runs an `async def` test in an event loop of its own, with asyncio's debug checks on demand.

Every test gets a fresh loop, and a task that is still running when the test ends is a failure:
a task that nobody owns is how hangs and lost errors begin.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


def aio(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorator for a test written as a coroutine function."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert not left, f"tasks left behind: {left}"

        asyncio.run(main())

    return run
