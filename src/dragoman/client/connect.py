"""Connect to an agent by command line or address, and detect its dialect.

The command line suggests a dialect and the handshake confirms it. If the answer shows another
dialect, `connect` opens a new connection in that one; this is safe because no prompt was sent yet.
`OPENERS` maps each dialect to its client, which is imported on first use.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import structs

from dragoman import transports  # The module, whose names cost something only when they are used.
from dragoman.client import file_guard, handshake_errors
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer, Terms, absolute
from dragoman.client.inquiries import Inquire
from dragoman.client.permissions import Permit, deny_all, require_permit
from dragoman.client.programs import launch_of, program_of, require_words
from dragoman.dialects import discovery
from dragoman.dialects.discovery import Cache, Program
from dragoman.errors import (
    DragomanError,
    ProtocolMismatch,
    RemoteError,
    SpawnError,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.transports.base import Stream

T = TypeVar("T")

AUTO: Final = "auto"

SHOWN_LAUNCH: Final = 160
"""Characters of a command line in an error: enough to know which one it was."""

Target: TypeAlias = str | Sequence[str]
"""An address (``unix:/path``, ``ws://…``, ``wss://…``), or the words of a command line."""


@asynccontextmanager
async def connect(
    target: Target,
    *,
    workspace: str | os.PathLike[str] = ".",
    dialect: str = AUTO,
    permit: Permit = deny_all,
    guard: Permit | None = None,
    inquire: Inquire | None = None,
    visits: bool = False,
    budgets: Budgets | None = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    on_event: Callable[[model.Event], None] | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    cache: Cache | None = None,
    read_files: bool = True,
    write_files: bool = True,
    terminals: bool = False,
    unstable: bool = False,
    name: str = "dragoman",
    max_line_size: int | None = None,
    details: Mapping[str, Any] | None = None,
) -> AsyncIterator[Peer]:
    """Start or reach an agent and talk with it until the block ends; then it is gone.

    A program is started in the workspace, with a small base environment, `env`, and the variables
    that `inherit` names. Permissions are refused unless `permit` says otherwise. `guard` is asked
    before a file or a command is served to the agent; without one, files are read, and `permit` is
    asked before a file is written or a command run, unless it has just allowed that. `inquire`
    answers what the agent asks its user, pages to visit too if it `visits` them. `on_stderr` gets
    what a program that is started writes to its stderr, as it comes. `cache` lets a program be
    asked only once what it speaks. `details` are options that only one dialect has, by their names
    in its own options, such as ``sandbox`` for Codex.
    """
    require_permit(permit)
    if guard is not None:
        require_permit(guard, "guard")
    folder = absolute(Path(workspace))
    permit, guard = file_guard.guarded(permit, guard, folder)
    terms = Terms(
        workspace=folder,
        permit=permit,
        guard=guard,
        inquire=inquire,
        visits=visits,
        budgets=budgets or Budgets(),
        on_event=on_event,
        read_files=read_files,
        write_files=write_files,
        terminals=terminals,
        unstable=unstable,
        name=name,
        max_line_size=max_line_size,
    )
    source = _stream_source(target, terms, env, tuple(inherit), on_stderr)
    if source.launch:
        terms = structs.replace(terms, launch=source.launch)
    async with await _open(source, terms, dialect, cache, dict(details or {})) as peer:
        yield peer


# -- reaching the other side


@dataclass(frozen=True, slots=True)
class StreamSource:
    """How to get a stream to the agent, as often as it is needed."""

    name: str
    open: Callable[[str], Awaitable[Stream]]
    """Given the dialect that is going to be spoken."""
    launch: tuple[str, ...] = ()
    program: Program | None = None


def _stream_source(
    target: Target,
    terms: Terms,
    env: Mapping[str, str] | None,
    inherit: tuple[str, ...],
    on_stderr: Callable[[bytes], None] | None,
) -> StreamSource:
    if isinstance(target, str):
        return _address(target)
    require_words(target)
    argv = tuple(target)
    if not argv or not all(isinstance(word, str) for word in argv):
        raise UsageError("a command line is a list of words, the program first")

    async def start(dialect: str) -> Stream:
        timeout = terms.budgets.spawn
        try:
            async with asyncio.timeout(timeout):
                return await transports.spawn(
                    argv, cwd=terms.workspace, env=env, inherit=inherit, on_stderr=on_stderr
                )
        except TimeoutError as error:
            raise SpawnError(f"{argv[0]!r} could not be started within {timeout:g} s") from error

    return StreamSource(f"`{_shown(shlex.join(argv))}`", start, argv, program_of(argv))


def require_options(workspace: object, options: Mapping[str, Any]) -> None:
    """Raise `UsageError` for options of `connect` that would only be missed later, or never."""
    if not isinstance(workspace, str | os.PathLike) or isinstance(os.fspath(workspace), bytes):
        raise UsageError(f"workspace= takes the path of a folder, not {workspace!r}")
    env = options.get("env")
    if env is not None and not (
        isinstance(env, Mapping)
        and all(isinstance(name, str) and isinstance(text, str) for name, text in env.items())
    ):
        raise UsageError("env= takes a mapping of names to text, such as {'LANG': 'C'}")
    inherit = options.get("inherit", ())
    if isinstance(inherit, str | bytes) or not isinstance(inherit, Iterable):
        raise UsageError(f"inherit= takes a list of names, such as ['PATH'], not {inherit!r}")
    for name in ("on_event", "on_stderr"):
        if (told := options.get(name)) is not None and not callable(told):
            raise UsageError(f"{name}= takes a function, not {told!r}")
    budgets = options.get("budgets")
    if budgets is not None and not isinstance(budgets, Budgets):
        raise UsageError(
            f"budgets= takes a dragoman.client.budgets.Budgets, such as Budgets(total=60), "
            f"not {budgets!r}"
        )


def _shown(words: str) -> str:
    return words if len(words) <= SHOWN_LAUNCH else f"{words[:SHOWN_LAUNCH]}…"


def _address(address: str) -> StreamSource:
    scheme, _, rest = address.partition(":")
    if scheme in ("ws", "wss") and rest.startswith("//"):

        async def reach(dialect: str) -> Stream:
            return await transports.connect_websocket(address)

    elif scheme == "unix" and rest:
        path = rest.removeprefix("//")

        async def reach(dialect: str) -> Stream:
            if dialect == discovery.CODEX:
                # The app-server speaks WebSocket on its Unix socket, too.
                return await transports.connect_websocket("ws://localhost/", unix_path=path)
            return await transports.connect_unix(path)

    else:
        raise UsageError(
            f"{address!r} is no address: use unix:/path, ws://… or wss://…, "
            "or a list of words for a program to start"
        )
    return StreamSource(address, reach)


def _concept(argv: Sequence[str]) -> str:
    """The cache's name for the dialect of a launch."""
    return f"dialect {launch_of(argv)}"


# -- finding the dialect


async def _open(
    source: StreamSource, terms: Terms, dialect: str, cache: Cache | None, details: dict[str, Any]
) -> Peer:
    if dialect != AUTO:
        if dialect not in OPENERS:
            known = ", ".join([AUTO, *OPENERS])
            raise UsageError(f"there is no dialect {dialect!r}; there are {known}")
        return await _shake_hands(source, terms, dialect, cache, details)
    known_as = None
    if cache is not None and source.program is not None:
        known_as = cache.get(source.program, _concept(source.launch))
    trying = known_as if known_as in OPENERS else discovery.family(source.launch)
    tried: list[str] = []
    while True:
        tried.append(trying)
        try:
            peer = await _shake_hands(source, terms, trying, cache, details, proving=True)
        except ProtocolMismatch as error:
            found = error.dialect
            if found not in OPENERS or found in tried:
                raise
            trying = found
            continue
        if cache is not None and source.program is not None and trying != known_as:
            cache.put(source.program, _concept(source.launch), trying)
        return peer


async def _shake_hands(
    source: StreamSource,
    terms: Terms,
    dialect: str,
    cache: Cache | None,
    details: dict[str, Any],
    *,
    proving: bool = False,
) -> Peer:
    """A peer in this dialect, on a new connection.

    If it has to be proved, an answer that shows another dialect is a `ProtocolMismatch` that names
    it, also where this dialect could make do with it.
    """
    watch = handshake_errors.HandshakeWatch()
    terms = structs.replace(terms, on_noise=watch.hear)
    stream: Stream | None = None
    try:
        opener = OPENERS[dialect](dialect, terms, details, cache, source.program)
        stream = await source.open(dialect)
        peer = await opener(stream)
    except ProtocolMismatch:
        raise
    except DragomanError as error:
        if proving and stream is not None and _wants_acp(error) and dialect != discovery.ACP:
            raise ProtocolMismatch(
                f"{source.name} wants a protocol version: {error}", dialect=discovery.ACP
            ) from error
        if stream is None:
            raise
        explained = handshake_errors.explain(error, source.name, stream, watch.lines)
        if explained is error:
            raise
        raise explained from error
    if proving and dialect == discovery.ACP:
        found = discovery.of_text(peer.client.hello)
        if found is not None and found != dialect:
            await peer.aclose()
            raise ProtocolMismatch(f"{source.name} speaks {found}", dialect=found)
    return peer


def _wants_acp(error: DragomanError) -> bool:
    """Whether somebody refused a handshake because it had no protocol version."""
    return isinstance(error, RemoteError) and "protocolVersion" in f"{error.message} {error.data}"


# -- the dialects

Opener: TypeAlias = Callable[[Stream], Awaitable[Peer]]
Prepare: TypeAlias = Callable[
    [str, Terms, dict[str, Any], Cache | None, Program | None],
    Opener,
]
"""Checks the options of a dialect, before anything is started, and returns what shakes hands."""


def _acp(
    dialect: str,
    terms: Terms,
    details: dict[str, Any],
    cache: Cache | None,
    program: Program | None,
) -> Opener:
    from dragoman.client.acp.options import ClientOptions
    from dragoman.client.acp.peer import open_peer, options_of

    options = _detailed(options_of(terms), details, ClientOptions, dialect)
    return lambda stream: open_peer(stream, terms, options)


def _codex(
    dialect: str,
    terms: Terms,
    details: dict[str, Any],
    cache: Cache | None,
    program: Program | None,
) -> Opener:
    from dragoman.client.codex import CodexOptions, CodexPeer

    options = CodexOptions(
        permit=terms.permit,
        inquire=terms.inquire,
        budgets=terms.budgets,
        on_event=terms.on_event,
        on_noise=terms.on_noise,
        name=terms.name,
    )
    options = _detailed(_sized(options, terms), details, CodexOptions, dialect)
    return lambda stream: CodexPeer.connect(stream, terms.workspace, options)


def _documents(
    dialect: str,
    terms: Terms,
    details: dict[str, Any],
    cache: Cache | None,
    program: Program | None,
) -> Opener:
    from dragoman.client.legacy import DocumentOptions, use_peer

    options = DocumentOptions(
        permit=terms.permit,
        guard=terms.guard,
        budgets=terms.budgets,
        on_event=terms.on_event,
        on_noise=terms.on_noise,
        name=terms.name,
        read_files=terms.read_files,
        write_files=terms.write_files,
        terminals=terms.terminals,
    )
    options = _detailed(_sized(options, terms), details, DocumentOptions, dialect)

    async def open(stream: Stream) -> Peer:
        return await use_peer(
            dialect,
            stream,
            workspace=terms.workspace,
            options=options,
            cache=cache,
            program=program,
            launch=launch_of(terms.launch),
        )

    return open


def _sized(options: T, terms: Terms) -> T:
    if terms.max_line_size is None:
        return options
    return replace(options, max_line_size=terms.max_line_size)  # type: ignore[type-var]


def _detailed(options: T, details: dict[str, Any], kind: type[T], dialect: str) -> T:
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(details) - known)
    if unknown:
        raise Unsupported(f"the dialect {dialect} has no option {', '.join(unknown)}")
    return replace(options, **details)  # type: ignore[type-var]


OPENERS: Final[dict[str, Prepare]] = {
    discovery.ACP: _acp,
    discovery.CODEX: _codex,
    discovery.ONESHOT: _documents,
    discovery.THREADS: _documents,
    discovery.TAGGED: _documents,
    discovery.KEYED: _documents,
    discovery.CHAINED: _documents,
}
"""How a peer is made in each dialect."""
