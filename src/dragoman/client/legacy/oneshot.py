"""The small typed client of the oneshot dialect, as its document describes it.

Owns `initialize`, `prompt` and `close`, with a callback for notifications. It knows no events and
no conversations; `peer` has those. Directly or through a broker it is the same: it needs a stream.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from dragoman.client.legacy.exchange import Exchange, OnNotification
from dragoman.dialects.legacy import oneshot
from dragoman.errors import ProtocolMismatch

log: Final = logging.getLogger("dragoman.client")


class OneshotClient(Exchange):
    """``{initialize, prompt, close}`` over one stream."""

    async def initialize(
        self,
        *,
        protocol_version: str = oneshot.VERSION,
        client_capabilities: dict[str, Any] | None = None,
        on_notification: OnNotification | None = None,
    ) -> oneshot.Initialized:
        """Shake hands. Raises `ProtocolMismatch`, and ends the connection, if versions differ."""
        params = oneshot.Initialize(protocol_version, client_capabilities or {})
        answer = await self._call(
            oneshot.INITIALIZE,
            params,
            oneshot.Initialized,
            on_notification,
            self.budgets.initialize,
        )
        try:
            oneshot.require_version(answer, protocol_version)
        except ProtocolMismatch as mismatch:
            log.warning("protocol_mismatch: %s", mismatch)
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
        """Send a prompt and wait for its result. It is never sent a second time."""
        return await self._call(
            oneshot.PROMPT, oneshot.Prompt(text), oneshot.Answer, on_notification, timeout
        )
