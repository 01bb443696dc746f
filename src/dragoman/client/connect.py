"""Connect to an agent by command line or address, and detect its dialect.

The command line suggests a dialect and the handshake confirms it. If the response shows another
dialect, or refuses this one, `connect` opens a new connection with another dialect; this is safe
because no prompt was sent yet. `dialects.discovery` defines the order. `OPENERS` maps each dialect
to its client, which is imported on first use.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, structs

from dragoman import transports  # Not its names: they are imported on first use.
from dragoman.client import file_guard, handshake_errors
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer, absolute
from dragoman.client.options import (
    AUTO,
    ConnectOptions,
    D,
    for_dialect,
    named_dialect,
    require_options,
)
from dragoman.client.programs import (
    launch_of,
    program_at,
    program_of,
    require_words,
)
from dragoman.dialects import discovery
from dragoman.dialects.discovery import ACP, Program
from dragoman.errors import (
    ConnectionLost,
    DragomanError,
    HandshakeFailed,
    ProtocolMismatch,
    UsageError,
)
from dragoman.transports.base import Stream
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE

if TYPE_CHECKING:
    from dragoman.wire.peer import Noise, Stray

Target: TypeAlias = str | Sequence[str]
"""An address (``unix:/path``, ``ws://…``, ``wss://…``), or the arguments of a command line."""


@asynccontextmanager
async def connect(
    target: Target,
    options: ConnectOptions | None = None,
    *,
    workspace: str | os.PathLike[str] = ".",
) -> AsyncIterator[Peer]:
    """Connect to an agent, starting its program if needed. A started program ends with the ``async
    with`` block.

    The program is started in the workspace, with a small base environment and what the options add
    to it. Without a `guard`, in the options or as an attribute of `permit`, file reads are allowed,
    and `permit` is asked before a file is written or a command is run, unless it has already
    allowed the same action at the agent's request.
    """
    options = options or ConnectOptions()
    require_options(options)
    folder = absolute(Path(workspace))
    permit, guard = file_guard.guarded(options.permit, options.guard, folder)
    options = structs.replace(options, permit=permit, guard=guard)
    source = _stream_source(target, folder, options)
    async with await _open(source, folder, options) as peer:
        yield peer


# -- opening a stream


class StreamSource(Struct, frozen=True):
    """How to open a stream to one agent. `open` may be called several times, once for each
    handshake."""

    name: str
    open: Callable[[str], Awaitable[Stream]]
    """Opens a new stream; called with the dialect that will be used on it."""
    launch: tuple[str, ...] = ()
    program: Program | None = None
    folder: str = ""
    """The directory the program is started in."""


def _stream_source(target: Target, workspace: Path, options: ConnectOptions) -> StreamSource:
    if isinstance(target, str):
        return _address(target, options)
    require_words(target)
    argv, inherit = tuple(target), tuple(options.inherit)
    if not argv or not all(isinstance(word, str) for word in argv):
        raise UsageError("a command line is a list of strings, the program first")

    async def start(dialect: str) -> Stream:
        return await transports.spawn(
            argv, cwd=workspace, env=options.env, inherit=inherit, on_stderr=options.on_stderr
        )

    named = handshake_errors.shown(argv)
    return StreamSource(named, start, argv, program_of(argv), str(workspace))


def _address(address: str, options: ConnectOptions) -> StreamSource:
    scheme, _, rest = address.partition(":")
    name, size = address, options.max_line_size or DEFAULT_MAX_LINE_SIZE
    if scheme in ("ws", "wss") and rest.startswith("//"):
        from dragoman.transports.addresses import without_secrets

        try:
            name = without_secrets(address)
        except ValueError as error:
            raise UsageError(f"the address is not valid: {error}") from error

        async def reach(dialect: str) -> Stream:
            return await transports.connect_websocket(address, max_message_size=size)

    elif scheme == "unix" and rest:
        path = rest.removeprefix("//")

        async def reach(dialect: str) -> Stream:
            if dialect == discovery.CODEX:
                # The app-server uses WebSocket on its Unix socket as well.
                return await transports.connect_websocket(
                    "ws://localhost/", unix_path=path, max_message_size=size
                )
            return await transports.connect_unix(path)

    else:
        raise UsageError(
            f"{address!r} is not an address: use unix:/path, ws://… or wss://…, "
            "or a list of strings for a program to start"
        )
    return StreamSource(name, reach, program=program_at(address))


# -- detecting the dialect


GREETING_TIMEOUT: Final = 10.0
"""Maximum timeout in seconds for each further handshake, in another dialect. The program has
answered an earlier one, so it is known to respond."""


async def _open(source: StreamSource, workspace: Path, options: ConnectOptions) -> Peer:
    chosen = named_dialect(options.dialect)
    if chosen != AUTO:
        return await _shake_hands(source, workspace, options, chosen)
    cache, program, key = options.cache, source.program, dialect_key(source)
    known = cache.get(program, key) if cache is not None and program is not None else None
    if known in OPENERS:
        try:
            return await _shake_hands(source, workspace, options, known, proving=known == ACP)
        except DragomanError as error:
            plain = _plain(error)
            if not (discovery.is_refusal(plain) or isinstance(plain, ConnectionLost)):
                raise
            # The agent now speaks another dialect: detect it again.
    search = discovery.DialectSearch(source.launch)
    using = options
    first: DragomanError | None = None
    refused: list[str] = []
    unanswered: list[str] = []
    while True:
        try:
            peer = await _shake_hands(source, workspace, using, search.dialect, proving=True)
        except DragomanError as error:
            plain = _plain(error)
            if first is not None:
                (refused if discovery.is_refusal(plain) else unanswered).append(search.dialect)
            first = first or error
            if search.go_on(plain):
                using = _hurried(options)
                continue
            if error is first or (isinstance(error, ProtocolMismatch) and error.version):
                raise
            told = handshake_errors.greeted_in_vain(first, refused, unanswered)
            raise told from first.__cause__
        if cache is not None and program is not None and search.dialect != known:
            # The dialect that the command line suggests is tried first anyway: do not cache it.
            if known is not None or search.answered:
                cache.put(program, key, search.dialect)
        return peer


def dialect_key(source: StreamSource) -> str:
    """Return the cache key for the dialect of a launch."""
    return discovery.dialect_concept(launch_of(source.launch, source.folder))


def _plain(error: DragomanError) -> DragomanError:
    """Return the error that `error` explains, if it is a `HandshakeFailed`, else `error` itself."""
    cause = error.__cause__
    explained = isinstance(error, HandshakeFailed) and isinstance(cause, DragomanError)
    return cause if explained and isinstance(cause, DragomanError) else error


def _hurried(options: ConnectOptions) -> ConnectOptions:
    budgets = options.budgets or Budgets()
    # Half: a caller's limit for the whole command must leave time to report the first refusal.
    initialize = min(budgets.initialize / 2, GREETING_TIMEOUT)
    return structs.replace(options, budgets=structs.replace(budgets, initialize=initialize))


async def _shake_hands(
    source: StreamSource,
    workspace: Path,
    options: ConnectOptions,
    dialect: str,
    *,
    proving: bool = False,
) -> Peer:
    """Open a peer in this dialect, on a new connection.

    With `proving`, a response to the handshake of ACP that shows another dialect raises a
    `ProtocolMismatch` that names that dialect; and an agent must prove that it speaks a legacy
    dialect (`DocumentPeer.prove`).
    """
    watch = handshake_errors.HandshakeWatch()
    stream: Stream | None = None
    try:
        plan = PlannedHandshake(
            dialect=dialect,
            workspace=workspace,
            options=options,
            launch=source.launch,
            folder=source.folder,
            program=source.program,
            on_noise=watch.hear,
            proving=proving,
        )
        opener = opener_of(dialect)(plan)
        stream = await source.open(dialect)
        peer = await opener(stream)
    except ProtocolMismatch:
        raise
    except DragomanError as error:
        if stream is None:
            raise
        named = "" if options.dialect == AUTO else dialect
        explained = handshake_errors.explain(error, source.name, stream, watch.lines, named=named)
        if explained is error:
            raise
        raise explained from error
    if proving and dialect == ACP:
        found = discovery.of_text(peer.client.hello)
        if found is not None and found != dialect:
            await peer.aclose()
            raise ProtocolMismatch(f"{source.name} speaks {found}", dialect=found)
    return peer


# -- the dialects

Opener: TypeAlias = Callable[[Stream], Awaitable[Peer]]


class PlannedHandshake(Struct, frozen=True, kw_only=True):
    """What an opener needs for the handshake in one dialect."""

    dialect: str
    workspace: Path
    options: ConnectOptions
    launch: tuple[str, ...] = ()
    """The command line that starts the agent; empty if it is reached at an address."""
    folder: str = ""
    """The directory the agent is started in."""
    program: Program | None = None
    on_noise: Callable[[Noise | Stray], None] | None = None
    proving: bool = False
    """Whether an agent must prove that it speaks a legacy dialect (`DocumentPeer.prove`)."""

    def options_of(self, kind: type[D]) -> D:
        """Return the options of the dialect's client."""
        return for_dialect(kind, self.options, self.dialect, on_noise=self.on_noise)


def _acp(plan: PlannedHandshake) -> Opener:
    from dragoman.client.acp.keyed_translation import KeyedStream
    from dragoman.client.acp.options import ClientOptions
    from dragoman.client.acp.peer import open_peer

    options = plan.options_of(ClientOptions)
    # Only a detected dialect may still turn out to be wrong.
    guessed = plan.options.dialect == AUTO

    def opener(stream: Stream) -> Awaitable[Peer]:
        if guessed:
            stream = KeyedStream(stream, options.max_line_size)
        return open_peer(stream, plan.workspace, options, launch=plan.launch)

    return opener


def _codex(plan: PlannedHandshake) -> Opener:
    from dragoman.client.codex import CodexOptions, CodexPeer

    options = plan.options_of(CodexOptions)
    return lambda stream: CodexPeer.connect(stream, plan.workspace, options)


def _documents(plan: PlannedHandshake) -> Opener:
    from dragoman.client.legacy import DocumentOptions, use_peer

    options = plan.options_of(DocumentOptions)
    return lambda stream: use_peer(
        plan.dialect,
        stream,
        workspace=plan.workspace,
        options=options,
        cache=plan.options.cache,
        program=plan.program,
        launch=launch_of(plan.launch, plan.folder),
        prove=plan.proving,
    )


OPENERS: Final[dict[str, Callable[[PlannedHandshake], Opener]]] = {
    discovery.ACP: _acp,
    discovery.CODEX: _codex,
    discovery.ONESHOT: _documents,
    discovery.THREADS: _documents,
    discovery.TAGGED: _documents,
    discovery.KEYED: _documents,
    discovery.CHAINED: _documents,
}
"""Openers by dialect. An opener checks the client's options before anything is started, and returns
a function that does the handshake on a stream."""


def opener_of(dialect: str) -> Callable[[PlannedHandshake], Opener]:
    """Return the opener of a dialect, which an installed package may register. Raises `UsageError`
    if there is no such dialect, or if its package does not load."""
    return OPENERS[named_dialect(dialect)]
