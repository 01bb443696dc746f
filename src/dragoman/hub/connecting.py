"""`dragoman.connect`: an agent by its name, its command line or its address.

Owns only the fork: what is no address is the name of a peer, and the hub knows the way to it; all
else goes to `dragoman.client.connecting` as it stands. A name needs no enabling. The user's
settings count, a project's only as far as they are trusted.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from dragoman.client import connecting
from dragoman.client.connecting import Target
from dragoman.client.conversation import Peer
from dragoman.client.permissions import Permit, deny_all

if TYPE_CHECKING:
    from dragoman.client.blocking import BlockingPeer

P = ParamSpec("P")
R = TypeVar("R")


def _typed_as(model: Callable[P, R]) -> Callable[[Callable[..., Any]], Callable[P, R]]:
    """Says to type checkers that a function takes what another one takes."""
    return lambda function: cast("Callable[P, R]", function)


@_typed_as(connecting.connect)
@asynccontextmanager
async def connect(
    target: Target, *, workspace: str | os.PathLike[str] = ".", **options: Any
) -> AsyncIterator[Peer]:
    """Start or reach an agent and talk with it until the block ends; then it is gone.

    `target` is the name of a peer such as ``"gemini"``, the words of a command line, or an address
    (``unix:/path``, ``ws://…``, ``wss://…``). The options are those of
    `dragoman.client.connecting.connect`; for a name, they go before what is known of the peer.
    """
    if not isinstance(target, str) or is_address(target):
        async with connecting.connect(target, workspace=workspace, **options) as peer:
            yield peer
        return
    # Whoever brings a command line needs no catalogue and does not load one.
    from dragoman.hub.naming import open_named

    async with open_named(target, workspace=Path(workspace), **options) as peer:
        yield peer


@contextmanager
def connect_sync(
    target: Target, *, permit: Permit = deny_all, **options: Any
) -> Iterator[BlockingPeer]:
    """`dragoman.connect` for programs without an event loop; it takes the same options.

    A plain `permit` runs in a thread of its own and may block, for example to ask a person.
    """
    from dragoman.client import blocking

    with blocking.connect_sync(target, permit=permit, by=connect, **options) as peer:
        yield peer


def is_address(target: str) -> bool:
    """Whether a text is an address, or meant to be one, and not a name."""
    return ":" in target or "/" in target or not target


__all__ = ["connect", "connect_sync", "is_address"]
