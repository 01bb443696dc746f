"""A small agent written with the official Python SDK, as its documentation shows it.

It leaves out, as the SDK's own examples do, the methods that it does not have.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from acp import (
    PROTOCOL_VERSION,
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
    text_block,
    update_agent_message,
)
from acp.interfaces import Client
from acp.schema import AgentCapabilities, Implementation


class OfficialAgent(Agent):
    """Says OK, and counts forever if the prompt asks it to count."""

    _client: Client

    def __init__(self) -> None:
        self._stops: dict[str, asyncio.Event] = {}

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(  # type: ignore[override]
        self, protocol_version: int, **kwargs: Any
    ) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(),
            agent_info=Implementation(name="official-agent", version="1"),
        )

    async def new_session(  # type: ignore[override]
        self, cwd: str, **kwargs: Any
    ) -> NewSessionResponse:
        session_id = secrets.token_hex(8)
        self._stops[session_id] = asyncio.Event()
        return NewSessionResponse(session_id=session_id)

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        stop = self._stops.get(session_id)
        if stop is None:
            raise RequestError.invalid_params({"sessionId": session_id})
        stop.clear()
        text = update_agent_message(text_block("OK"))
        await self._client.session_update(session_id=session_id, update=text)
        if getattr(prompt[0], "text", "").startswith("Count"):
            await stop.wait()
            return PromptResponse(stop_reason="cancelled")
        return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        if session_id in self._stops:
            self._stops[session_id].set()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return None


if __name__ == "__main__":
    asyncio.run(run_agent(OfficialAgent()))  # type: ignore[abstract]
