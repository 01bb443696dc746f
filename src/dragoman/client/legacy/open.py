"""Open a peer in a legacy dialect, on an open stream or by starting a program.

`DIALECTS` maps each name to its dialect. The caller names the dialect; `dialects.discovery` can
detect it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from dragoman import transports  # Not its names: only starting a program needs them.
from dragoman.client.base import started
from dragoman.client.conversation import absolute
from dragoman.client.legacy.client import DocumentClient, DocumentOptions
from dragoman.client.legacy.method_names import MethodNames
from dragoman.client.legacy.peer import DocumentPeer, KeyedPeer
from dragoman.client.programs import launch_of, program_of
from dragoman.dialects.discovery import Cache, Program
from dragoman.dialects.legacy import chained, keyed, oneshot, tagged, threads
from dragoman.dialects.legacy.base import ClientEnd
from dragoman.errors import Unsupported
from dragoman.transports.base import Stream


def _oneshot(options: DocumentOptions) -> ClientEnd:
    return oneshot.ClientEnd(
        version=options.protocol_version or oneshot.VERSION, any_version=options.any_version
    )


def _threads(options: DocumentOptions) -> ClientEnd:
    return threads.ClientEnd(
        service_name=options.service_name or threads.SERVICE, handshake=options.handshake
    )


def _tagged(options: DocumentOptions) -> ClientEnd:
    return tagged.ClientEnd(
        client_name=options.name,
        client_version=options.version,
        versions=(options.protocol_version,) if options.protocol_version else tagged.VERSIONS,
    )


def _keyed(options: DocumentOptions) -> ClientEnd:
    return keyed.ClientEnd(
        client_name=options.name,
        client_title=options.title,
        client_version=options.version,
        read_files=options.read_files,
        write_files=options.write_files,
        terminals=options.terminals,
        any_version=options.any_version,
    )


def _chained(options: DocumentOptions) -> ClientEnd:
    return chained.ClientEnd()


DIALECTS: Final[dict[str, Callable[[DocumentOptions], ClientEnd]]] = {
    oneshot.DIALECT: _oneshot,
    threads.DIALECT: _threads,
    tagged.DIALECT: _tagged,
    keyed.DIALECT: _keyed,
    chained.DIALECT: _chained,
}
"""Functions that create the client end of a dialect, by the dialect's name; `registry` adds to
them."""


async def use_peer(
    dialect: str,
    stream: Stream,
    *,
    workspace: str | Path,
    options: DocumentOptions | None = None,
    cache: Cache | None = None,
    program: Program | None = None,
    launch: str = "",
    prove: bool = False,
) -> DocumentPeer:
    """Open a peer on an open stream and do the handshake; the stream is closed if that fails.

    With both `cache` and `program`, the method names that the program knows are kept for later
    connections; `launch` distinguishes several launches of one program. With `prove`, the agent
    must also prove that it speaks this dialect (`DocumentPeer.prove`).
    """
    chosen = options or DocumentOptions()

    def make() -> DocumentPeer:
        make_end = DIALECTS.get(dialect)
        if make_end is None:
            raise Unsupported(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
        method_names = MethodNames(dialect, cache, program, launch)
        client = DocumentClient(stream, make_end(chosen), chosen, method_names=method_names)
        kind = KeyedPeer if dialect == keyed.DIALECT else DocumentPeer
        return kind(client, absolute(workspace))

    peer = await started(stream, make)
    if prove:
        try:
            await peer.prove()
        except BaseException:
            await peer.aclose()
            raise
    return peer


@asynccontextmanager
async def open_peer(
    dialect: str,
    argv: Sequence[str],
    *,
    workspace: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    options: DocumentOptions | None = None,
    cache: Cache | None = None,
) -> AsyncIterator[DocumentPeer]:
    """Start an agent's program in the workspace and connect to it. The program ends with the
    ``async with`` block."""
    options = options or DocumentOptions()
    folder = absolute(workspace or Path.cwd())
    stream = await transports.spawn(argv, cwd=folder, env=env, inherit=inherit)
    async with await use_peer(
        dialect,
        stream,
        workspace=folder,
        options=options,
        cache=cache,
        program=program_of(argv),
        launch=launch_of(argv, folder),
    ) as peer:
        yield peer
