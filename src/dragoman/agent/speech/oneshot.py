"""The oneshot dialect on the agent's side.

Handles its only session, which opens with the first prompt, and the result that ends a turn: its
text, its stop reason, its usage. The schemas are in `dragoman.dialects.legacy.oneshot`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dragoman.agent.speech.base import DocumentSpeech, usage_of
from dragoman.dialects.legacy import oneshot
from dragoman.events.parts import Text

if TYPE_CHECKING:
    from dragoman.agent.server import Server


class OneshotSpeech(DocumentSpeech):
    """Serves one client in the `oneshot` dialect."""

    dialect = oneshot.DIALECT

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._session_id: str | None = None
        self._opening = asyncio.Lock()

    def _initialize(self, params: oneshot.Initialize) -> oneshot.Initialized:
        self.greeted = True
        self.greet()
        # The client compares the versions, and disconnects if it does not support ours.
        info = self.server.agent.info
        return oneshot.Initialized(oneshot.VERSION, {"name": info.name, "version": info.version})

    async def _prompt(self, params: oneshot.Prompt) -> oneshot.Answer:
        session_id = await self._session()
        work = self.prompt(session_id, [Text(params.text)])
        writer = self.writers[session_id] = oneshot.AgentEnd()
        response = await work
        finish = oneshot.finish_reason(response.stop_reason)
        return oneshot.Answer(writer.text, finish, usage_of(response))

    async def _session(self) -> str:
        async with self._opening:
            if self._session_id is None:
                if not self.greeted:
                    self.greet()
                self._session_id = (await self.new_session()).session_id
            return self._session_id

    requests = {
        oneshot.INITIALIZE: (oneshot.Initialize, _initialize),
        oneshot.PROMPT: (oneshot.Prompt, _prompt),
    }
