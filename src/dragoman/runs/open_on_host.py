"""Open a peer on another machine from Python: `connect("codex", host="box")`.

One ssh process runs ``dragoman broker attach PEER`` on the host, which speaks ACP. The agent, its
session and their store stay on the host, and the agent works with the host's files and commands.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import structs

from dragoman.broker import host_protocol
from dragoman.broker.client import attach
from dragoman.broker.client.ssh import ShellOutput, TooNoisy, explain
from dragoman.broker.client.ssh_command import (
    Host,
    by_hand_command,
    explain_exit,
    explain_spawn,
    host_named,
    ssh_command,
)
from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import open_peer
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer
from dragoman.client.options import ConnectOptions, for_dialect
from dragoman.config import load_config
from dragoman.dialects.discovery import ACP
from dragoman.errors import (
    CallTimeout,
    DragomanError,
    HostUnavailable,
    LineTooLong,
    ProcessExited,
    SpawnError,
    UsageError,
)
from dragoman.paths import find_paths
from dragoman.transports.pipes import KeepAlive
from dragoman.transports.process.stream import ProcessStream, spawn
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.peer import Noise, Stray

STARTED: Final = ("sh", "-c", 'echo; exec env "$@"', "dragoman")
"""The beginning of the remote command. The `echo` ends an unfinished line that the remote shell may
have printed, so that it does not become part of the first message."""

LOGIN_TIMEOUT: Final = 60.0
"""Additional seconds for the login and the start of a broker on the host before the handshake."""


@asynccontextmanager
async def open_on_host(
    peer: str, options: ConnectOptions, *, host: str, workspace: str | os.PathLike[str]
) -> AsyncIterator[Peer]:
    """Context manager: open a peer on a host in the user's settings. `workspace` is a directory on
    the host; ``.`` means the one in the settings. Raises `UsageError` for an unknown host or a
    relative directory, and `HostUnavailable` if the connection to the host fails."""
    there = host_named(host, load_config(Path.cwd(), find_paths()).settings.hosts)
    folder = os.fspath(workspace)
    if folder == ".":
        folder = there.settings.workspace or ""
    if not folder.startswith("/"):
        raise UsageError(
            f"workspace= must be an absolute path on {host}; without it, set hosts.{host}.workspace"
        )
    client = _options(options)
    words = [*STARTED, *_variables(), there.program, "broker", "attach", peer, "--cwd", folder]
    try:
        stream = await spawn(
            ssh_command(there, words),
            inherit=tuple(os.environ),
            on_stderr=options.on_stderr,
            # Empty lines are not messages, and are skipped.
            keep_alive=KeepAlive(attach.PING_INTERVAL, b"\n"),
        )
    except SpawnError as error:
        raise explain_spawn(there, error) from error
    login = _Login(stream)
    try:
        opened = await open_peer(
            stream, Path(folder), structs.replace(client, on_noise=login.heard)
        )
    except DragomanError as error:
        raise _explained(there, TooNoisy() if login.is_noisy else error) from error
    login.is_over = True
    async with opened:
        yield opened


class _Login:
    """Ends a connection whose remote shell prints too much before the broker answers."""

    def __init__(self, stream: ProcessStream) -> None:
        self.is_over = False
        self.is_noisy = False
        self._stream = stream
        self._output = ShellOutput()

    def heard(self, noise: Noise | Stray) -> None:
        if not (self.is_over or self.is_noisy) and self._output.is_too_much(noise):
            self.is_noisy = True
            self._stream.kill()


def _variables() -> list[str]:
    """Return the variables of the command: the limits of nested delegation, which bind the remote
    side too, and when the connection counts as dead."""
    limits = [f"{name}={os.environ[name]}" for name in host_protocol.LIMITS if name in os.environ]
    return [*limits, f"{attach.SILENCE}={attach.SILENCE_TIMEOUT:g}"]


def _options(options: ConnectOptions) -> ClientOptions:
    """Return the options of the client, without file and terminal services: the broker on the host
    provides those of the host."""
    budgets = options.budgets or Budgets()
    return for_dialect(
        ClientOptions,
        structs.replace(options, read_files=False, write_files=False, terminals=False),
        ACP,
        permit=options.permit,
        guard=options.guard,
        budgets=structs.replace(
            budgets,
            initialize=budgets.initialize + LOGIN_TIMEOUT,
            session=budgets.session + LOGIN_TIMEOUT,
        ),
        max_line_size=options.max_line_size or DEFAULT_MAX_LINE_SIZE,
    )


def _explained(host: Host, error: DragomanError) -> DragomanError:
    """Return an error that says why the host could not be used: ssh exited, its shell printed too
    much, or there was no answer in time. Any other error is returned unchanged."""
    if isinstance(error, TooNoisy | LineTooLong):
        return explain(host, error)
    if isinstance(error, CallTimeout):
        by_hand = f"try it manually: {by_hand_command(host)}"
        return HostUnavailable(host.name, str(error), remedy=by_hand, passing=True)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ProcessExited):
            return explain_exit(host, cause)
        cause = cause.__cause__
    return error
