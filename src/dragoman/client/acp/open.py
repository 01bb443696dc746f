"""Start an ACP agent's program, or use an open stream, and complete the handshake.

`open_agent` and `use_agent` return an `AcpClient` for an ``async with`` block and close it
afterwards. The caller chooses the program and its arguments.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

from dragoman import transports  # The module: a client of a running agent starts no program.
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.client.base import started
from dragoman.client.not_entered import Entering
from dragoman.client.permissions import require_permit
from dragoman.client.programs import require_words
from dragoman.errors import UsageError
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
    """Start an agent's program and connect to it. The program ends with the ``async with`` block.

    `env` is added to a small base environment, and `inherit` names the variables of this process
    that the program also gets, so that API keys are not passed on by accident.
    """
    if isinstance(argv, str):
        raise UsageError(f"a command line is a list of strings: pass {argv.split()!r}")
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
    stream = await transports.spawn(argv, cwd=cwd, env=env, inherit=inherit)
    async with aclosing(
        await started(stream, lambda: AcpClient(stream, options, launch=argv))
    ) as client:
        yield client


@asynccontextmanager
async def use_agent(
    stream: Stream, *, options: ClientOptions | None = None
) -> AsyncIterator[AcpClient]:
    """Connect to an agent on an open stream, which is closed when the ``async with`` block ends."""
    async with aclosing(await started(stream, lambda: AcpClient(stream, options))) as client:
        yield client
