"""Typed client for the oneshot dialect: `initialize`, `prompt` and `close`, as in its
specification.

Works on any stream, to a process or a broker, and passes notifications to a callback. For events
and sessions use `peer` instead.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from dragoman.client.legacy.exchange import Exchange, OnNotification
from dragoman.dialects.legacy import oneshot
from dragoman.errors import ProtocolMismatch

log: Final = logging.getLogger("dragoman.client")


class OneshotClient(Exchange):
    """A client of one agent, with the methods `initialize`, `prompt` and `close`."""

    async def initialize(
        self,
        *,
        protocol_version: str = oneshot.VERSION,
        any_version: bool = False,
        client_capabilities: dict[str, Any] | None = None,
        on_notification: OnNotification | None = None,
    ) -> oneshot.Initialized:
        """Do the handshake. Raises `ProtocolMismatch` and ends the connection if the versions
        differ, unless `any_version` is set."""
        params = oneshot.Initialize(protocol_version, client_capabilities or {})
        answer = await self._call(
            oneshot.INITIALIZE,
            params,
            oneshot.Initialized,
            on_notification,
            self.budgets.initialize,
        )
        if any_version:
            return answer
        try:
            oneshot.require_version(answer, protocol_version)
        except ProtocolMismatch as mismatch:
            log.warning("the handshake failed: %s", mismatch)
            await self.close()
            raise
        return answer

    async def prompt(
        self,
        text: str,
        *,
        on_notification: OnNotification | None = None,
        timeout: float | None = None,
    ) -> oneshot.Answer:
        """Send a prompt and wait for its result. The prompt is never sent twice."""
        return await self._call(
            oneshot.PROMPT, oneshot.Prompt(text), oneshot.Answer, on_notification, timeout
        )
