"""Start or connect to the peer of a broker, in any dialect, as an ACP v1 connection.

An ACP peer is used as it is; any other is put behind a `gateway` in this process. `supervisor`
decides when to start it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from msgspec import structs

from dragoman.broker import error_codec, protocol
from dragoman.broker.protocol import PING, TRACE
from dragoman.broker.spec import BrokerSpec
from dragoman.catalogue.open import found_before
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions, connection_settings
from dragoman.client.connect import connect
from dragoman.client.conversation import Peer
from dragoman.client.legacy.client import MASK
from dragoman.client.options import ConnectOptions, plain_of
from dragoman.client.permissions import approve_all, deny_all
from dragoman.client.results import stderr_since, stderr_size
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.methods import Gate
from dragoman.dialects.discovery import ACP, CODEX
from dragoman.errors import ConnectionClosed, ConnectionLost, DragomanError, PeerUnresponsive
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.relay import Upstream
from dragoman.rpc import Connection
from dragoman.rpc.link import linked
from dragoman.rpc.tasks import TaskOwner
from dragoman.rpc.trace import TraceSink, lines_of
from dragoman.transports.process.identity import is_stopped
from dragoman.transports.process.stream import ProcessStream
from dragoman.wire.peer import Event

NAME: Final = "dragoman"

MAX_TRACED_SIZE: Final = 256 * 1024
"""Maximum size of a line sent to a caller for its trace, in bytes. A longer one is only mentioned:
it would delay the events behind it, and its copy has to fit into the caller's own limit."""

MAX_UNREAD_TRACE: Final = 16 * 1024 * 1024
"""Number of bytes that a caller may leave unread before its trace skips lines."""


class PeerLink:
    """A connected peer: one process of it, or one connection. `generation` is the number of this
    start, from 1."""

    def __init__(
        self,
        upstream: Upstream,
        peer: Peer,
        generation: int,
        *,
        name: str = "",
        command_titles: bool = False,
        pings: bool = True,
    ) -> None:
        self.upstream = upstream
        self.client: AcpClient = upstream.client
        self.connection = upstream.connection
        self.generation = generation
        self.name = name
        """The peer's name in policy rules."""
        self.command_titles = command_titles
        self._peer = peer
        self._pings = pings
        self._unresponsive: PeerUnresponsive | None = None
        self._own_trace: TraceSink | None = peer.client.connection.trace
        self.outdated: set[str] = set()
        """Sessions of which this process has a stale copy, because another process continued
        them."""

    def can(self, capability: str) -> bool:
        """Return whether the peer advertised a capability, by its dotted name on the wire."""
        return Gate("agent", (capability,)).is_open(self.client.agent.agent_capabilities)

    @property
    def behind_gateway(self) -> bool:
        """Whether the peer speaks a dialect other than ACP."""
        return self._peer.client is not self.client

    @property
    def closes(self) -> bool:
        """Whether the process releases a closed session so that another process can open it.

        A process behind a gateway may merely stop reporting on the session.
        """
        return self._peer.client is self.client and self.can("sessionCapabilities.close")

    @property
    def pid(self) -> int | None:
        """The id of the peer's process, or None if there is none."""
        stream = self._peer.client.connection.stream
        return stream.pid if isinstance(stream, ProcessStream) else None

    @property
    def stderr_size(self) -> int:
        """Number of bytes read from the peer's stderr so far."""
        return stderr_size(self._peer.client.connection.stream)

    def stderr_tail(self, since: int) -> str:
        """Return the end of what the peer wrote to stderr after its first `since` bytes."""
        return stderr_since(self._peer.client.connection.stream, since)

    @property
    def failure(self) -> ConnectionLost | None:
        """Why the peer is gone; None while it is connected. Behind a gateway, the peer's own
        connection fails first."""
        failure: ConnectionLost | None = self._peer.client.connection.failure
        return self._unresponsive or failure or self.connection.failure

    # -- liveness

    @property
    def heard(self) -> int:
        """Number of times anything was received from the peer itself, not from a gateway in front
        of it."""
        received: int = self._peer.client.connection.received
        return received

    @property
    def is_held(self) -> bool:
        """Whether nothing arrives because we do not read."""
        full: bool = self._peer.client.connection.flow.blocked
        return full or self.connection.flow.held > 0

    @property
    def is_stopped(self) -> bool:
        """Whether the peer's process is stopped by a signal."""
        pid = self.pid
        return pid is not None and is_stopped(pid)

    def ping(self) -> bool:
        """Ping the peer itself. Returns False if its dialect has no way to do that."""
        if self._pings:
            self._peer.client.connection.begin(PING, {}, settle=_ignore)
        return self._pings

    def trace_with(self, sink: TraceSink | None) -> None:
        """Pass every line of the peer's own connection to `sink`; with None, only to the trace that
        the connection began with, if it has one."""
        self._peer.client.connection.trace = sink or self._own_trace

    @property
    def secrets(self) -> Sequence[bytes]:
        """The credentials sent for a login, as they are on the wire."""
        return getattr(self._peer.client, "secrets", ())

    def hurry(self) -> None:
        """Shorten the peer's time to exit, because it does not answer."""
        self._peer.client.connection.stream.hurry()

    async def end(self, why: PeerUnresponsive) -> None:
        """Kill a peer that no longer answers, or close the connection to it if it is not our
        process. `why` becomes its `failure`."""
        self._unresponsive = why
        connection = self._peer.client.connection
        if isinstance(connection.stream, ProcessStream):
            # The process would ignore anything else.
            connection.stream.kill()
        else:
            await connection.aclose()

    def explain(self, error: DragomanError) -> DragomanError:
        """Return the error for a caller: the reason if the peer was killed or the broker ended it,
        otherwise what the client's `explain` returns."""
        if self._unresponsive is not None and isinstance(error, ConnectionLost):
            return self._unresponsive.fresh()
        if isinstance(error, ConnectionClosed):
            # A broker closes the connection to its peer only when it ends.
            stopped = ConnectionClosed("the broker was stopped")
            stopped.may_have_run = error.may_have_run
            return stopped
        return self.client.explain(error)

    async def wait_ended(self) -> ConnectionLost:
        await self.connection.wait_ended()
        failure = self.failure
        assert failure is not None
        return failure


class PeerTrace:
    """Sends the lines of the peer's own connection to callers that trace it."""

    def __init__(self, far: PeerLink, callers: Sequence[Connection]) -> None:
        self._far = far
        self._callers = callers

    def record_received(self, conn: str, events: Iterable[Event[Any]]) -> None:
        for line in lines_of(events):
            self.record(conn, "recv", line)

    def record(self, conn: str, direction: str, line: bytes) -> None:
        for secret in self._far.secrets:
            line = line.replace(secret, MASK)
        text = line.decode("utf-8", "replace")
        if len(line) > MAX_TRACED_SIZE:
            text = f"a message of {len(line)} bytes, left out"
        told = protocol.TracedLine(direction, text)
        for connection in self._callers:
            # The peer does not wait for a trace: a caller that does not read misses lines.
            if connection.failure is None and connection.stream.unsent_size < MAX_UNREAD_TRACE:
                connection.post(TRACE, told)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


@asynccontextmanager
async def reach(
    spec: BrokerSpec, generation: int, on_stderr: Callable[[bytes], None] | None = None
) -> AsyncIterator[PeerLink]:
    """Context manager: start the peer of a spec, or connect to it, and perform the handshake. On
    exit the connection is closed, and a started peer is ended. Raises what a direct start
    raises."""
    told: dict[str, Any] = {"name": spec.peer, "command_titles": spec.command_titles}
    async with AsyncExitStack() as stack:
        target = list(spec.command) if spec.command is not None else str(spec.address)
        options = ConnectOptions(
            **plain_of(spec),
            dialect=spec.protocol,
            permit=deny_all,
            visits=True,
            # Requests that get this far were already checked in `peer_requests`.
            guard=approve_all,
            budgets=spec.budgets,
            env=spec.env,
            name=NAME,
            on_stderr=on_stderr,
            cache=found_before(spec.protocol, spec.paths.cache),
            details=_details(spec),
        )
        peer = await stack.enter_async_context(connect(target, options, workspace=spec.workspace))
        told["pings"] = peer.dialect in (ACP, CODEX)
        if isinstance(peer.client, AcpClient):
            if spec.mode_after_open is not None:
                peer.client.options = structs.replace(
                    peer.client.options, starting_mode=spec.mode_after_open
                )
            yield PeerLink(Upstream(peer.client), peer, generation, **told)
            return
        gateway = Gateway(
            peer,
            max_line_size=spec.max_line_size,
            refusal=error_codec.refusal,
            secret_logins=True,
        )
        near, far = linked(connection_settings(spec.max_line_size), gateway.settings)
        stack.push_async_callback(far.aclose)
        tasks = TaskOwner("broker's gateway")
        stack.push_async_callback(tasks.aclose)
        tasks.start(gateway.serve(far), "serve the gateway")
        near.start()
        client = AcpClient(near, _options(spec))
        stack.push_async_callback(client.aclose)
        upstream = Upstream(client)
        await client.start()
        yield PeerLink(upstream, peer, generation, **told)


def _details(spec: BrokerSpec) -> dict[str, Any]:
    """Return the options of the dialect's client. Those of ACP always announce that the user can be
    asked. Whether that is true depends on the current caller; without one that can ask, questions
    are declined."""
    details = dict(spec.details)
    if spec.protocol == ACP:
        details["elicit"] = _decline
        if spec.missing_file_is_empty:
            details.setdefault("missing_file_is_empty", True)
    return details


def _options(spec: BrokerSpec) -> ClientOptions:
    return ClientOptions(
        **plain_of(spec),
        elicit=_decline,
        visits=True,
        budgets=spec.budgets,
        starting_mode=spec.mode_after_open,
        missing_file_is_empty=spec.missing_file_is_empty,
        name=NAME,
    )


def _ignore(*_: object) -> None:
    """Do nothing: only the arrival of the message counts, and the connection has recorded that."""


def _decline(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
    return acp.ElicitationDeclined()
