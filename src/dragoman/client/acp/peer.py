"""Conversation API peer for ACP v1.

Opens and lists the sessions of a `client`, whose updates `event_source` and `session` turn into
events. All requests go through the client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.event_source import EventSource, peer_info
from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.session import Session
from dragoman.client.base import ClientPeer, started
from dragoman.client.conversation import Opening, SessionSummary
from dragoman.client.permissions import Permit
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.session import listed_in
from dragoman.errors import UsageError
from dragoman.events.parts import AuthMethod, Capabilities, PeerInfo
from dragoman.transports.base import Stream

if TYPE_CHECKING:
    from dragoman.client.inquiries import Inquire


async def open_peer(
    stream: Stream,
    workspace: Path,
    options: ClientOptions | None = None,
    *,
    launch: Sequence[str] = (),
) -> AcpPeer:
    """Do the handshake with an agent on a stream. The stream is closed if that fails.

    `launch` is the command line that started the agent; empty if it was reached at an address.
    """
    return await started(
        stream, lambda: AcpPeer(AcpClient(stream, options, launch=launch), workspace)
    )


class AcpPeer(ClientPeer):
    """An agent that speaks ACP v1. May be created before or after its client's handshake."""

    dialect = translate.DIALECT
    client: AcpClient

    def __init__(self, client: AcpClient, workspace: Path) -> None:
        self.record = EventSource(client)
        super().__init__(client, self.record, workspace)

    @property
    def info(self) -> PeerInfo:  # type: ignore[override]
        return peer_info(self.client.agent)

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        can = translate.capabilities(self.client.agent.agent_capabilities)
        return can if self.client.options.unstable else replace(can, fork=False)

    @property
    def auth_methods(self) -> tuple[AuthMethod, ...]:  # type: ignore[override]
        return tuple(
            translate.auth_method(method, self.client.login_command(method))
            for method in self.client.agent.auth_methods
        )

    def answer_with(self, permit: Permit) -> None:
        super().answer_with(permit)
        self.client.permit_with(permit)

    def inquire_with(self, inquire: Inquire) -> None:
        from dragoman.client.acp.inquiries import elicit_by

        self.client.elicit_with(elicit_by(inquire))

    async def open(self, opening: Opening) -> Session:
        client = self.client
        shared: dict[str, Any] = {
            "additional_directories": opening.additional_directories,
            "mcp_servers": opening.mcp_servers,
            "mode": opening.mode,
            "model": opening.model,
            "meta": {**client.options.session_meta, **opening.metadata} or None,
        }

        match opening.how:
            case "load":
                assert opening.session_id is not None
                session = await client.load_session(opening.session_id, opening.cwd, **shared)
            case "resume":
                assert opening.session_id is not None
                session = await client.resume_session(opening.session_id, opening.cwd, **shared)
            case "fork":
                assert opening.session_id is not None
                session = await client.fork_session(opening.session_id, opening.cwd, **shared)
            case _:
                session = await client.new_session(opening.cwd, **shared)
        return session

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        async for info in self.client.list_sessions(cwd):
            yield SessionSummary(
                info.session_id,
                info.cwd,
                info.title,
                info.updated_at,
                *listed_in(info.meta),
            )

    async def delete_session(self, session_id: str) -> None:
        await self.client.delete_session(session_id)

    async def authenticate(
        self, method_id: str, *, password: str | None = None, token: str | None = None
    ) -> None:
        if password is not None or token is not None:
            raise UsageError(f"the login method {method_id!r} takes no password or token")
        await self.client.authenticate(method_id)

    async def logout(self) -> None:
        await self.client.logout()
