"""What the legacy dialects share on the agent's side; each has a table of its requests.

Decodes requests, opens sessions, begins turns, and sends an update as a dialect's own messages.
`dragoman.agent.server` runs the agent's handlers with ACP types, whatever the client speaks.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from dragoman.decoders import decode_typed
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.methods import Method
from dragoman.dialects.legacy.base import TokenUsage
from dragoman.errors import RemoteError, Unsupported
from dragoman.events.model import Event, EventEnvelope, MessageDelta, Source
from dragoman.events.parts import Block
from dragoman.events.words import Role
from dragoman.rpc import boundary
from dragoman.wire.messages import NO_PARAMS, UNDECODABLE, Notification, Request

if TYPE_CHECKING:
    from dragoman.agent.server import Server

P = TypeVar("P")
R = TypeVar("R")

log: Final = logging.getLogger("dragoman.agent")


Handler: TypeAlias = Callable[[Any, Any], Any]
"""A method of a `DocumentSpeech` that answers a request, given the instance and the params."""


class DialectWriter(Protocol):
    """Translates the events of a session to the messages of a dialect."""

    def tell(self, event: Event) -> list[tuple[str, Any]]: ...


class DocumentSpeech:
    """Base class: serves one client in a legacy dialect."""

    dialect: ClassVar[str]
    requests: ClassVar[Mapping[str, tuple[Any, Handler]]]
    """The schema and the handler for each request name."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.greeted = False
        """Whether the handshake is done; before it, the client may still turn out to speak
        another dialect."""
        self.presumed = False
        """Whether a prompt may still show that the client speaks ACP."""
        self.writers: dict[str, DialectWriter] = {}
        source = Source(self.dialect, server.connection.name)
        self._place = EventEnvelope(source, itertools.count(1), None)

    def take_over(self, session_ids: Iterable[str]) -> None:
        """Take over a client whose handshake and sessions were in ACP. Only `KeyedSpeech` can."""
        raise NotImplementedError

    # -- what comes in

    def request(self, request: Request) -> Any:
        known = self.requests.get(request.method)
        if known is None:
            raise boundary.method_not_found(request.method)
        shape, handler = known
        raw = request.params
        try:
            params = decode_typed(b"{}" if raw is NO_PARAMS else raw, shape)
        except UNDECODABLE as error:
            raise boundary.invalid_params(error) from error
        return self.handle(request.method, handler, params)

    def handle(self, method: str, handler: Handler, params: Any) -> Any:
        return handler(self, params)

    def notification(self, notification: Notification) -> None:
        log.debug("ignored notification: %.200r", notification.line)

    # -- what goes out

    def new_id(self) -> str:
        return os.urandom(16).hex()

    async def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        writer = self.writers.get(session_id)
        if writer is None:
            return
        connection = self.server.connection
        if connection.is_full:
            # Before anything is sent: a caller that is cancelled here may repeat the update.
            await connection.drain()
        for event in translate.of_update(update, self._place, None):
            for method, params in writer.tell(event):
                connection.post(method, params)

    async def ask(self, method: Method[P, R], params: P) -> R:
        raise Unsupported(f"the dialect {self.dialect} has no equivalent of {method.name}")

    # -- for the dialects

    def greet(
        self,
        capabilities: acp.ClientCapabilities | None = None,
        *,
        name: str = "",
        version: str = "",
        title: str | None = None,
    ) -> None:
        """Record what the client reported about itself. Only the first report counts."""
        info = acp.Implementation(name=name, version=version, title=title) if name else None
        self.server.greet(
            acp.InitializeRequest(
                protocol_version=acp.PROTOCOL_VERSION,
                client_capabilities=capabilities or acp.ClientCapabilities(),
                client_info=info,
            )
        )

    async def new_session(
        self,
        cwd: str | None = None,
        mcp_servers: Sequence[acp.McpServer] = (),
        meta: dict[str, Any] | None = None,
    ) -> acp.NewSessionResponse:
        """Open a session, in the agent's own directory if the client names no absolute path."""
        request = acp.NewSessionRequest(cwd=self.folder(cwd), mcp_servers=mcp_servers, meta=meta)
        return await self.server.perform(acp.SESSION_NEW, request)

    def folder(self, cwd: str | None) -> str:
        """Return the directory that a client names, or the agent's own if the client names no
        absolute path."""
        return cwd if cwd and Path(cwd).is_absolute() else str(Path.cwd())

    async def reopen(self, session_id: str, missing: RemoteError) -> list[tuple[Role, str]]:
        """Open an earlier session, and return its messages; none if the agent can resume it but not
        load it. Raises `missing` if the agent can do neither."""
        loads = self.server.can(acp.SESSION_LOAD)
        if not loads and not self.server.can(acp.SESSION_RESUME):
            raise missing
        cwd = str(Path.cwd())
        replay = ReplayedMessages()
        if loads:
            loading = acp.LoadSessionRequest(session_id=session_id, cwd=cwd, mcp_servers=())
            await self.load(loading, replay)
            del self.writers[session_id]
        else:
            resuming = acp.ResumeSessionRequest(session_id=session_id, cwd=cwd)
            await self.server.perform(acp.SESSION_RESUME, resuming)
        return replay.messages

    async def load(
        self, request: acp.LoadSessionRequest, writer: DialectWriter
    ) -> acp.LoadSessionResponse:
        """Load a session. `writer` becomes the session's writer, before its history is replayed. If
        loading fails, for example because a turn of the session is running, the session keeps the
        writer that it had."""
        before = self.writers.pop(request.session_id, None)
        self.writers[request.session_id] = writer
        try:
            return await self.server.perform(acp.SESSION_LOAD, request)
        except BaseException:
            del self.writers[request.session_id]
            if before is not None:
                self.writers[request.session_id] = before
            raise

    def prompt(
        self, session_id: str, blocks: Sequence[Block]
    ) -> Coroutine[Any, Any, acp.PromptResponse]:
        """Begin a turn now. The returned coroutine returns the response when the turn ends."""
        wire = [translate.to_block(block) for block in blocks]
        return self.server.perform(
            acp.SESSION_PROMPT, acp.PromptRequest(session_id=session_id, prompt=wire)
        )


class ReplayedMessages:
    """Collects the messages of a replayed history, and joins consecutive ones of the same role.
    Sends nothing."""

    def __init__(self) -> None:
        self.messages: list[tuple[Role, str]] = []

    def tell(self, event: Event) -> list[tuple[str, Any]]:
        if isinstance(event, MessageDelta) and event.role is not Role.THOUGHT:
            text = event.text
            if self.messages and self.messages[-1][0] is event.role:
                text = self.messages.pop()[1] + text
            self.messages.append((event.role, text))
        return []


async def outcome_of(
    work: Coroutine[Any, Any, acp.PromptResponse],
) -> acp.PromptResponse | RemoteError:
    """Return the response to a prompt or, if the turn failed, the error as a value, for dialects in
    which it is part of the result."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - handler to wire
        code, message, data = boundary.to_wire(error, "prompt")
        # Half a surrogate pair, as in the name of a file that is not UTF-8, cannot be sent.
        return RemoteError(code, message.encode(errors="replace").decode(), data)


def tokens_of(response: acp.PromptResponse) -> tuple[int | None, int | None]:
    """Return the input and output tokens that a turn used; None for those that the agent did not
    report."""
    source = Source("", "")
    usage = translate.of_answer(
        response, EventEnvelope(source, itertools.count(), None), None
    ).usage
    return (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)


def usage_of(response: acp.PromptResponse) -> TokenUsage | None:
    """Return the tokens that a turn used, as a part of its result, or None if the agent did not
    report them."""
    used = TokenUsage(*tokens_of(response))
    return None if used == TokenUsage() else used
