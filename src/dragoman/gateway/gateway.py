"""`Gateway`: serve one peer to any number of ACP clients.

Routes the peer's events and permission requests to the client that has the session open. Everything
about one client is in `gateway.client_session`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from dragoman.agent.speech import served_dialect
from dragoman.client.acp.client import AcpClient
from dragoman.client.conversation import Peer
from dragoman.client.early_messages import EarlyMessages
from dragoman.client.permissions import Answer, Decision, Question
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.codec import RESERVED
from dragoman.dialects.acp.v1.methods import cancel_notice
from dragoman.errors import ConnectionLost
from dragoman.events import model
from dragoman.gateway import prompt_responses
from dragoman.gateway.acp_filter import RAW_KEY
from dragoman.gateway.client_requests import Services
from dragoman.gateway.client_session import ClientSession
from dragoman.gateway.relay import Upstream
from dragoman.rpc import Connection, ConnectionSettings
from dragoman.rpc.responder import Handlers
from dragoman.transports import listen_unix, listen_websocket
from dragoman.transports.base import Stream
from dragoman.transports.listener import Listener
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE, require_line_size

__all__ = ["RAW_KEY", "Gateway", "serve"]


async def serve(
    peer: Peer,
    stream: Stream,
    *,
    raw: bool = False,
    dialect: str | None = None,
    max_line_size: int | None = None,
) -> ConnectionLost:
    """Serve a connected peer to one client on a stream until either disconnects. Returns why the
    client's connection ended. The options are those of `Gateway`."""
    gateway = Gateway(peer, raw=raw, dialect=dialect, max_line_size=max_line_size)
    return await gateway.serve(stream)


class Gateway:
    """Serves a peer. Its clients decide permissions and, if they can, serve its other requests:
    files, terminals, user input.

    With `raw`, translated updates carry the peer's own message in their `_meta`. `dialect` is the
    clients' dialect; by default it is detected from each client's requests.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        raw: bool = False,
        dialect: str | None = None,
        max_line_size: int | None = None,
        refusal: prompt_responses.Refusal = prompt_responses.refusal,
        secret_logins: bool = False,
    ) -> None:
        require_line_size(max_line_size)
        self.peer = peer
        self.raw = raw
        self.dialect = None if dialect is None else served_dialect(dialect)
        self.secret_logins = secret_logins
        """Whether ACP clients see the login methods that take a secret."""
        self.refusal = refusal
        """Converts an error from the peer, or from the connection to it, into the error for the
        client."""
        self.settings = ConnectionSettings(
            max_line_size=max_line_size or DEFAULT_MAX_LINE_SIZE,
            cancel_notice=cancel_notice,
            reserved=RESERVED,
        )
        self._clients: dict[str, ClientSession] = {}
        self.early: EarlyMessages[model.Event] = EarlyMessages()
        self._before = peer.on_event
        peer.on_event = self._happened
        peer.answer_with(self._decide)
        self.services = Services(self._clients.get)
        peer.inquire_with(self.services.inquire)
        self._upstream: Upstream | None = None
        if isinstance(peer.client, AcpClient):
            peer.client.serve_with(self.services.serve)
            if self._before is None and dialect in (None, translate.DIALECT):
                # An observer needs events, and forwarded lines are not decoded into events.
                self._upstream = Upstream(peer.client)

    async def serve(
        self,
        stream: Stream | Connection,
        *,
        on_taken: Callable[[Handlers], None] | None = None,
    ) -> ConnectionLost:
        """Serve one client until it or the peer disconnects. Returns why the client's connection
        ended.

        A connection passed instead of a stream must have been created with `settings`. If it was
        already started, `on_taken` must be given; it is called with the handlers. Without it, the
        connection is started here.
        """
        return await ClientSession(self).serve(stream, self._upstream, on_taken=on_taken)

    async def serve_unix(self, path: str | os.PathLike[str]) -> Listener:
        """Serve clients on a Unix socket; close the returned listener to stop."""
        return await listen_unix(path, self._serve_one)

    async def serve_websocket(self, host: str, port: int, **options: Any) -> Listener:
        """Serve clients on a WebSocket; close the returned listener to stop."""
        return await listen_websocket(host, port, self._serve_one, **options)

    async def _serve_one(self, stream: Stream) -> None:
        await self.serve(stream)

    # -- session owners

    def adopt(self, session_id: str, client: ClientSession) -> None:
        """Set the client of a session and deliver the events kept for it."""
        self._clients[session_id] = client
        for event in self.early.take(session_id):
            client.happened(event)

    def forget(self, session_id: str, client: ClientSession) -> None:
        if self._clients.get(session_id) is client:
            del self._clients[session_id]

    def _happened(self, event: model.Event) -> None:
        if self._before is not None:
            self._before(event)
        self.services.happened(event)
        if event.session is None:
            return
        client = self._clients.get(event.session)
        if client is not None:
            client.happened(event)
        else:
            self.early.keep(event.session, event, len(event.raw or b""))

    async def _decide(self, question: Question) -> Decision:
        client = self._clients.get(question.session_id)
        # No client has the session open, so no user can allow it.
        return Answer.REJECT_ONCE if client is None else await client.decide(question)
