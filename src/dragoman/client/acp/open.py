"""Start an ACP agent's program, or use an open stream, and complete the handshake.

`open_agent` and `use_agent` return an `AcpClient` for an ``async with`` block and close it
afterwards. Choosing the program and its arguments is left to the caller.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from dragoman import transports  # The module: who reaches an agent that runs starts none.
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.client.budgets import Budgets
from dragoman.client.not_entered import Entering
from dragoman.client.permissions import require_permit
from dragoman.client.programs import require_words
from dragoman.errors import SpawnError, UsageError
from dragoman.transports.base import Stream

_USE: Final = "open_agent(…) is not a client yet: write `async with open_agent(…) as client:`"


def open_agent(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    options: ClientOptions | None = None,
) -> Entering[AcpClient]:
    """Start an agent's program and be its client until the block ends; then it is gone.

    `env` is added to a small base environment, and `inherit` names variables of ours that the
    program may have besides: API keys do not travel by accident.
    """
    if isinstance(argv, str):
        raise UsageError(f"a command line is a list of words: pass {argv.split()!r}")
    require_words(argv)
    options = options or ClientOptions()
    require_permit(options.permit)
    return Entering(_opened(argv, cwd, env, inherit, options), _USE)


@asynccontextmanager
async def _opened(
    argv: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    inherit: Iterable[str],
    options: ClientOptions,
) -> AsyncIterator[AcpClient]:
    timeout = (options.budgets or Budgets()).spawn
    stream = await _spawned(argv, cwd, env, inherit, timeout)
    async with await _client(stream, options, argv) as client:
        yield client


@asynccontextmanager
async def use_agent(
    stream: Stream, *, options: ClientOptions | None = None
) -> AsyncIterator[AcpClient]:
    """Be the client of an agent on a stream that is already open."""
    async with await _client(stream, options) as client:
        yield client


async def _client(
    stream: Stream, options: ClientOptions | None, launch: Sequence[str] = ()
) -> AcpClient:
    try:
        return AcpClient(stream, options, launch=launch)
    except BaseException:
        # A client that could not be made closes nothing, and a process would be left behind.
        await stream.aclose()
        raise


async def _spawned(
    argv: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    inherit: Iterable[str],
    timeout: float,
) -> Stream:
    try:
        async with asyncio.timeout(timeout):
            return await transports.spawn(argv, cwd=cwd, env=env, inherit=inherit)
    except TimeoutError as error:
        raise SpawnError(f"{argv[0]!r} could not be started within {timeout:g} s") from error
