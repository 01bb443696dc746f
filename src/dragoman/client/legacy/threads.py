"""Typed client for the threads dialect: `thread_start`, `thread_resume`, `turn` and `close`.

Passes notifications to a callback; for events and sessions use `peer` instead. A failed turn does
not raise: it is a result with the status ``error``.
"""

from __future__ import annotations

from dragoman.client.legacy.exchange import Exchange, OnNotification
from dragoman.dialects.legacy import threads


class ThreadsClient(Exchange):
    """A client of one agent, with the methods `thread_start`, `thread_resume`, `turn` and
    `close`."""

    async def initialize(
        self,
        *,
        service_name: str = threads.SERVICE,
        on_notification: OnNotification | None = None,
    ) -> threads.Thread:
        """Do the handshake, for agents that have one, and return the first thread."""
        return await self._call(
            threads.INITIALIZE,
            threads.Service(service_name),
            threads.Thread,
            on_notification,
            self.budgets.initialize,
        )

    async def thread_start(
        self,
        *,
        service_name: str = threads.SERVICE,
        on_notification: OnNotification | None = None,
    ) -> threads.Thread:
        """Start a thread and return it."""
        return await self._call(
            threads.START,
            threads.Service(service_name),
            threads.Thread,
            on_notification,
            self.budgets.session,
        )

    async def thread_resume(
        self, thread_id: str, *, on_notification: OnNotification | None = None
    ) -> threads.State:
        """Resume a thread and return its history and its last known result."""
        return await self._call(
            threads.RESUME,
            threads.Thread(thread_id),
            threads.State,
            on_notification,
            self.budgets.session,
        )

    async def turn(
        self,
        thread_id: str,
        text: str,
        *,
        on_notification: OnNotification | None = None,
        timeout: float | None = None,
    ) -> threads.Result:
        """Send a prompt and wait for its result, which may be an error. The prompt is sent only
        once."""
        return await self._call(
            threads.TURN,
            threads.Turn(thread_id, text),
            threads.Result,
            on_notification,
            timeout,
        )
