"""`dragoman.connect` and `connect_sync`: connect to a peer by name, command line or address.

A command line or an address goes to `client.connect` unchanged; a name goes to `runs.open_by_name`,
which uses a broker unless `warm` or the settings say otherwise. The peer need not be enabled.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from dragoman.client import connect as client_connect
from dragoman.client.budgets import Budgets
from dragoman.client.connect import Target
from dragoman.client.conversation import Peer
from dragoman.client.inquiries import Inquire, require_inquire
from dragoman.client.not_entered import Entering, EnteringSync
from dragoman.client.permissions import Permit, deny_all, require_permit
from dragoman.client.programs import require_words
from dragoman.dialects.discovery import Cache
from dragoman.errors import UsageError
from dragoman.events import model

if TYPE_CHECKING:
    from dragoman.client.sync import BlockingPeer


class Options(TypedDict, total=False):
    """The options of `dragoman.connect`, as `dragoman.client.connect.connect` has them."""

    dialect: str
    permit: Permit
    guard: Permit | None
    inquire: Inquire | None
    visits: bool
    budgets: Budgets | None
    env: Mapping[str, str] | None
    inherit: Iterable[str]
    on_event: Callable[[model.Event], None] | None
    on_stderr: Callable[[bytes], None] | None
    cache: Cache | None
    read_files: bool
    write_files: bool
    terminals: bool
    unstable: bool
    name: str
    max_line_size: int | None
    details: Mapping[str, Any] | None


_USE: Final = "connect(…) is not a peer yet: write `async with connect(…) as peer:`"
_USE_SYNC: Final = "connect_sync(…) is not a peer yet: write `with connect_sync(…) as peer:`"


def connect(
    target: Target,
    *,
    workspace: str | os.PathLike[str] = ".",
    warm: bool | None = None,
    **options: Unpack[Options],
) -> Entering[Peer]:
    """Start or reach an agent and talk with it until the block ends.

    `target` is the name of a peer such as ``"gemini"``, the words of a command line, or an address
    (``unix:/path``, ``ws://…``, ``wss://…``). A program that is started for a command line ends
    with the block. A peer by its name is reached through a broker that keeps it alive for the next
    call; with ``warm=False``, or where the settings say so, it is started for this block alone.
    The other options are those of `dragoman.client.connect.connect`; for a name, they go before
    what is known of the peer.
    """
    _require(target, workspace, options)
    return Entering(_connected(target, workspace, warm, options), _USE)


def _require(target: object, workspace: object, options: Mapping[str, Any]) -> None:
    """Raise `UsageError` for what cannot be connected to, or not in this way."""
    if not isinstance(target, str):
        require_words(target)
    elif any(mark in target for mark in " \t\n") and not is_address(target.split()[0]):
        raise UsageError(
            f"{target!r} looks like a command line: pass it as a list of words, "
            f"such as {target.split()!r}"
        )
    require_permit(options.get("permit", deny_all))
    require_inquire(options.get("inquire"))
    client_connect.require_options(workspace, options)


@asynccontextmanager
async def _connected(
    target: Target, workspace: str | os.PathLike[str], warm: bool | None, options: Options
) -> AsyncIterator[Peer]:
    if not isinstance(target, str) or is_address(target):
        if warm:
            raise UsageError("only a peer that has a name has a broker: leave `warm` away")
        async with client_connect.connect(target, workspace=workspace, **options) as peer:
            yield peer
        return
    # Whoever brings a command line needs no catalogue and does not load one.
    from dragoman.runs.open_by_name import open_named

    async with open_named(target, workspace=Path(workspace), warm=warm, **options) as peer:
        yield peer


def connect_sync(
    target: Target, *, permit: Permit = deny_all, **options: Any
) -> EnteringSync[BlockingPeer]:
    """`dragoman.connect` for programs without an event loop; it takes the same options.

    A plain `permit` runs in a thread of its own and may block, for example to ask a person.
    """
    from dragoman.client import sync

    _require(target, options.get("workspace", "."), {"permit": permit, **options})
    return EnteringSync(sync.connect_sync(target, permit=permit, by=connect, **options), _USE_SYNC)


def is_address(target: str) -> bool:
    """Whether a text is an address, or meant to be one, and not a name."""
    return ":" in target or "/" in target or not target


__all__ = ["connect", "connect_sync", "is_address"]
