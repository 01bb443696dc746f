"""`dragoman.connect` and `connect_sync`: connect to a peer by name, command line or address.

A command line or an address goes to `client.connect` unchanged; a name goes to `runs.open_by_name`,
which uses a broker unless `warm` or the settings say otherwise, or with `host` to
`runs.open_on_host`. The peer need not be enabled.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from dragoman.client import connect as client_connect
from dragoman.client.budgets import Budgets
from dragoman.client.connect import Target
from dragoman.client.conversation import Peer
from dragoman.client.folders import require_folder
from dragoman.client.not_entered import Entering, EnteringSync
from dragoman.client.options import ConnectOptions, require_options
from dragoman.client.permissions import Permit, deny_all
from dragoman.client.programs import require_words
from dragoman.dialects.discovery import Cache
from dragoman.errors import UsageError
from dragoman.events import model
from dragoman.wire.framing import require_line_size

if TYPE_CHECKING:
    from dragoman.client.inquiries import Inquire
    from dragoman.client.sync import BlockingPeer

P = ParamSpec("P")
T = TypeVar("T")

_USE: Final = "connect(…) is not a peer yet: write `async with connect(…) as peer:`"
_USE_SYNC: Final = "connect_sync(…) is not a peer yet: write `with connect_sync(…) as peer:`"


def connect(
    target: Target,
    *,
    workspace: str | os.PathLike[str] = ".",
    warm: bool | None = None,
    host: str | None = None,
    dialect: str = "auto",
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
    any_version: bool = False,
    name: str = "dragoman",
    max_line_size: int | None = None,
    details: Mapping[str, Any] | None = None,
) -> Entering[Peer]:
    """Start an agent or connect to one; the connection ends with the block.

    `target` is the name of a peer such as ``"gemini"``, the arguments of a command line, or an
    address (``unix:/path``, ``ws://…``, ``wss://…``). A program that is started for a command line
    ends with the block. A named peer is reached through a broker that keeps it alive for the next
    call, and the options below override its descriptor and the settings.

    Options:

    workspace (default "."): the directory in which the agent works.
    warm (default None): whether a named peer is reached through a broker. None: as the
        settings say. False: it is started for this block alone.
    host (default None): the name of another machine in the settings, reached by SSH. The peer, its
        broker and the workspace are there; "." is the workspace in the settings of the host.
    dialect (default "auto"): the dialect to speak, such as "acp" or "codex". "auto": the one in
        the peer's descriptor; without one, it is detected.
    permit (default deny_all): function that decides about permissions. deny_all refuses them.
    guard (default None): function that decides about files and commands that the agent reads,
        writes and runs through dragoman. None: files are read; `permit` is asked before a file is
        written or a command run, unless it has just allowed that.
    inquire (default None): function that answers the agent's questions to its user. None: the
        agent cannot ask.
    visits (default False): whether `inquire` can also send the user to a URL.
    budgets (default None): the timeouts, as `Budgets`. None: as the settings and the
        peer's descriptor say, or else `Budgets()`.
    env (default None): variables to set for the agent's program, besides a small base environment.
    inherit (default ()): names of variables of this process that the agent's program also gets.
    on_event (default None): function that is called with every event of the connection.
    on_stderr (default None): function that is called with what the agent's program writes to its
        stderr.
    cache (default None): stores what was detected about a program, so that it is detected once.
    read_files (default True): whether the agent may read text files of the workspace through
        dragoman.
    write_files (default True): whether the agent may write text files of the workspace through
        dragoman.
    terminals (default False): whether the agent may run commands through dragoman.
    unstable (default False): whether to use methods that are not stable in the protocol, such as
        forking a session.
    any_version (default False): whether to accept an agent that answers the handshake with another
        protocol version. Otherwise `ProtocolMismatch` is raised.
    name (default "dragoman"): the name of the client in the handshake.
    max_line_size (default None): the longest message in bytes; a longer one ends the connection.
        None: as the settings and the peer's descriptor say, or else 16 MiB.
    details (default None): options that only one dialect has, by name, such as ``sandbox`` of
        Codex.
    """
    options = ConnectOptions(
        dialect=dialect,
        permit=permit,
        guard=guard,
        inquire=inquire,
        visits=visits,
        budgets=budgets,
        env=env,
        inherit=inherit,
        on_event=on_event,
        on_stderr=on_stderr,
        cache=cache,
        read_files=read_files,
        write_files=write_files,
        terminals=terminals,
        unstable=unstable,
        any_version=any_version,
        name=name,
        max_line_size=max_line_size,
        details=details,
    )
    _require(target, workspace, options, host)
    opening = _connected(target, options, workspace=workspace, warm=warm, host=host)
    return Entering(opening, _USE)


def _require(target: object, workspace: object, options: ConnectOptions, host: str | None) -> None:
    """Raise `UsageError` for an invalid target or option."""
    if not isinstance(target, str):
        require_words(target)
    elif any(mark in target for mark in " \t\n") and not is_address(target.split()[0]):
        raise UsageError(
            f"{target!r} looks like a command line: pass it as a list of strings, "
            f"such as {target.split()!r}"
        )
    if host is None:
        # Otherwise it is a directory on that machine.
        require_folder(workspace)
    require_options(options)
    require_line_size(options.max_line_size)


@asynccontextmanager
async def _connected(
    target: Target,
    options: ConnectOptions,
    *,
    workspace: str | os.PathLike[str],
    warm: bool | None,
    host: str | None,
) -> AsyncIterator[Peer]:
    if host is not None:
        if not isinstance(target, str) or is_address(target) or warm is False:
            raise UsageError(
                "with `host`, the target must be the name of a peer on that host, and `warm` must "
                "not be False: the peer runs in a broker there"
            )
        from dragoman.runs.open_on_host import open_on_host

        async with open_on_host(target, options, host=host, workspace=workspace) as peer:
            yield peer
        return
    if not isinstance(target, str) or is_address(target):
        if warm:
            raise UsageError("only a peer with a name has a broker: leave out `warm`")
        async with client_connect.connect(target, options, workspace=workspace) as peer:
            yield peer
        return
    # A command line needs no catalogue, so none is loaded.
    from dragoman.runs.open_by_name import open_named

    async with open_named(target, options, workspace=Path(workspace), warm=warm) as peer:
        yield peer


def _with_options_of(
    model: Callable[P, object],
) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Decorator: give a function the signature of another one, and the description of its
    options."""

    def adopt(function: Callable[..., T]) -> Callable[P, T]:
        signature = inspect.signature(model)
        returned = function.__annotations__["return"]
        adopted = signature.replace(return_annotation=returned)
        function.__signature__ = adopted  # type: ignore[attr-defined]
        if function.__doc__ and model.__doc__:
            options = model.__doc__[model.__doc__.index("Options:") :]
            function.__doc__ += f"\n    {options}"
        return function

    return adopt


@_with_options_of(connect)
def connect_sync(
    target: Target,
    *,
    workspace: str | os.PathLike[str] = ".",
    warm: bool | None = None,
    host: str | None = None,
    **options: Any,
) -> EnteringSync[BlockingPeer]:
    """`dragoman.connect` for programs without an event loop, with the same options.

    A plain `permit`, `guard` or `inquire` function runs in a separate thread and may block, for
    example to ask a person.
    """
    from dragoman.client import sync

    if unknown := options.keys() - set(ConnectOptions.__struct_fields__):
        raise TypeError(f"connect_sync() got an unexpected keyword argument {min(unknown)!r}")
    given = ConnectOptions(**options)
    _require(target, workspace, given, host)
    open = partial(_connected, target, workspace=workspace, warm=warm, host=host)
    return EnteringSync(sync.connect_sync(open, given), _USE_SYNC)


def is_address(target: str) -> bool:
    """Return whether a text is an address, or meant as one, rather than a name."""
    return ":" in target or "/" in target or not target


__all__ = ["connect", "connect_sync", "is_address"]
