"""A small client written with the official Python SDK, as its documentation shows it.

It leaves out, as the SDK's own examples do, the services that it does not offer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from acp import PROTOCOL_VERSION, Client, RequestError, spawn_agent_process, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    Implementation,
    RequestPermissionResponse,
)


class OfficialClient(Client):
    """Allows every request, offers nothing, and prints nothing."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.holding = False

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> RequestPermissionResponse:
        if self.holding:
            await self.cancelled.wait()
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        allowed = [option for option in options if option.kind == "allow_once"]
        if not allowed:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = AllowedOutcome(outcome="selected", option_id=allowed[0].option_id)
        return RequestPermissionResponse(outcome=chosen)

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.heard.set()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return None


async def use(command: Sequence[str], folder: str) -> None:
    """Send a prompt, and another one that is cancelled after its first update."""
    client = OfficialClient()  # type: ignore[abstract]
    limits = {"limit": 50 * 1024 * 1024}
    async with spawn_agent_process(client, command[0], *command[1:], transport_kwargs=limits) as (
        connection,
        _,
    ):
        hello = await connection.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(),
            client_info=Implementation(name="official-client", version="1"),
        )
        if hello.protocol_version != PROTOCOL_VERSION:
            raise RuntimeError("the agent speaks another version")
        opened = await connection.new_session(cwd=folder, mcp_servers=[])
        session_id = opened.session_id
        await connection.prompt(session_id=session_id, prompt=[text_block("hello")])
        client.holding = True
        client.heard.clear()
        prompt = asyncio.gather(
            connection.prompt(session_id=session_id, prompt=[text_block("cancel")])
        )
        await client.heard.wait()
        await connection.cancel(session_id=session_id)
        client.cancelled.set()
        await prompt
