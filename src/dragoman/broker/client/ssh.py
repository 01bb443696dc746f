"""Connect to the dragoman on another machine over SSH, and explain failures.

Starts one OpenSSH client with the user's own settings, skips the output of the remote shell before
the greeting, and exchanges the protocol number. Handles no passwords and opens no ports.
`host_protocol` has the messages, `ssh_command` the command line.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from dragoman.broker import host_protocol as protocol
from dragoman.broker.client.ssh_command import (
    QUIET_REMEDY,
    Host,
    by_hand_command,
    explain_exit,
    explain_remote,
    explain_spawn,
    ssh_command,
)
from dragoman.broker.error_codec import revive
from dragoman.broker.protocol import decode_as
from dragoman.errors import (
    CallError,
    CallTimeout,
    ConnectionBroken,
    ConnectionLost,
    DragomanError,
    HostUnavailable,
    InvalidAnswer,
    LineTooLong,
    ProcessExited,
    RemoteError,
    SpawnError,
)
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.rpc.responder import Ignore
from dragoman.transports.base import Stream
from dragoman.transports.process.stream import spawn
from dragoman.version import __version__
from dragoman.wire.messages import Notification
from dragoman.wire.peer import Noise, Stray

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.broker")

GREETING_TIMEOUT: Final = 60.0
"""Seconds to wait for the remote dragoman's greeting. ssh has its own timeout for the connection,
and a login on a slow machine takes seconds."""

MAX_NOISE_LINES: Final = 500
MAX_NOISE_SIZE: Final = 256 * 1024
"""Maximum number of lines and bytes that the remote shell may print before the greeting. A message
of the day is shorter; a program that never stops printing is not dragoman."""

NO_LIMITS: Final[Mapping[str, str]] = {}


class ShellOutput:
    """Counts what the remote shell prints before the program that was started there answers."""

    def __init__(self) -> None:
        self._lines = 0
        self._size = 0

    def is_too_much(self, noise: Noise | Stray) -> bool:
        """Count a line. Returns whether there are now too many lines or bytes."""
        self._lines += 1
        self._size += len(noise.line)
        return self._lines > MAX_NOISE_LINES or self._size > MAX_NOISE_SIZE


class _HostMessages(Ignore):
    """Passes on notifications from the remote side, and counts the output before its greeting."""

    def __init__(self) -> None:
        self.listener: Callable[[Notification], None] | None = None
        self.greeted = False
        self._output = ShellOutput()

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def notification(self, notification: Notification) -> None:
        if self.listener is not None:
            self.listener(notification)

    def noise(self, noise: Noise | Stray) -> None:
        if self.greeted:
            log.warning("the host sent an invalid message: %.200r", noise.line)
        elif self._output.is_too_much(noise):
            self._connection.fail(TooNoisy())


class TooNoisy(ConnectionLost):
    """The remote shell printed too much before the greeting."""

    def __init__(self) -> None:
        super().__init__("too much output before the greeting")


class HostConnection:
    """A connection to the dragoman on a host. Must be closed with `aclose`."""

    def __init__(self, host: Host, connection: Connection, messages: _HostMessages) -> None:
        self.host = host
        self.connection = connection
        self.greeting = protocol.Greeting(protocol=0, version="")
        self._messages = messages

    def listen(self, listener: Callable[[Notification], None]) -> None:
        """Call the callback `listener` with every notification from the remote side from now on."""
        self._messages.listener = listener

    async def call(self, method: str, params: Any, *, timeout: float | None) -> msgspec.Raw:
        """Send a request and return the response. An error on the remote side is raised like one on
        this machine, except that it names the host where that matters (`explain_remote`)."""
        try:
            return await self.connection.call(method, params, timeout=timeout)
        except RemoteError as error:
            told = revive(error.data, error.message) or error
            raise explain_remote(self.host, told) from error

    async def ask(self, method: str, params: Any, shape: type[T], *, timeout: float | None) -> T:
        """Send a request and decode its response. Raises what `call` does, or `InvalidAnswer`."""
        answer = await self.call(method, params, timeout=timeout)
        return self.decoded(answer, shape, f"response to {method}")

    def decoded(self, body: msgspec.Raw, shape: type[T], what: str) -> T:
        """Decode a message from the remote side. Raises `InvalidAnswer` with a remedy: the two
        sides may have different versions."""
        try:
            return decode_as(body, shape, what)
        except InvalidAnswer as error:
            error.remedy = install_remedy(self.host)
            raise

    async def greet(self, limits: Mapping[str, str]) -> None:
        """Exchange the protocol number, and send the limits of nested delegation: those of this
        process, overridden by `limits`. Raises `HostUnavailable` if the numbers differ, or what
        `ask` raises."""
        environment = {name: os.environ[name] for name in protocol.LIMITS if name in os.environ}
        environment |= {name: value for name, value in limits.items() if name in protocol.LIMITS}
        hello = protocol.HostHello(
            protocol=protocol.PROTOCOL, version=__version__, environment=environment
        )
        self.greeting = await self.ask(
            protocol.HELLO, hello, protocol.Greeting, timeout=GREETING_TIMEOUT
        )
        self._messages.greeted = True
        if self.greeting.protocol != protocol.PROTOCOL:
            raise other_protocol(self.host, self.greeting.protocol, self.greeting.version)
        self.connection.tasks.start(self._ping(), "ping the host")

    async def _ping(self) -> None:
        """Fail the connection when the remote dragoman no longer answers."""
        connection, flow = self.connection, self.connection.flow
        while connection.failure is None:
            await asyncio.sleep(protocol.PING_INTERVAL)
            received, paused = connection.received, flow.paused
            try:
                await connection.call(protocol.PING, {}, timeout=protocol.PING_TIMEOUT)
            except CallTimeout:
                # While this side is slow to read, the response waits behind other messages.
                if connection.received == received and not (paused or flow.paused):
                    connection.fail(
                        ConnectionBroken(
                            f"dragoman on {self.host.name} does not answer "
                            f"within {protocol.PING_TIMEOUT:g} s"
                        )
                    )
            except (CallError, ConnectionLost):
                # An error is also a response, and a lost connection is noticed elsewhere.
                pass

    async def aclose(self) -> None:
        await self.connection.aclose()


def connected(host: Host, stream: Stream) -> HostConnection:
    """Return a started connection to a host over a stream. The caller has to call `greet` next."""
    messages = _HostMessages()
    connection = Connection(
        stream,
        End.CLIENT,
        messages,
        settings=ConnectionSettings(max_line_size=protocol.MAX_LINE_SIZE),
        trace=False,
        name=host.name,
    )
    connection.start()
    return HostConnection(host, connection, messages)


async def open_host(
    host: Host,
    *,
    on_stderr: Callable[[bytes], None] | None = None,
    limits: Mapping[str, str] = NO_LIMITS,
) -> HostConnection:
    """Connect to a host. Raises `HostUnavailable` with the reason and a remedy, and `UsageError` if
    the host's destination is not allowed.

    `limits` are variables of nested delegation that bind the remote side; they override those of
    this process.
    """
    argv = ssh_command(host, [host.program, "broker", "stdio"])
    # ssh is the user's own program and gets the user's complete environment, as from a shell.
    try:
        stream = await spawn(argv, inherit=tuple(os.environ), on_stderr=on_stderr)
    except SpawnError as error:
        raise explain_spawn(host, error) from error
    opened = connected(host, stream)
    try:
        await opened.greet(limits)
    except HostUnavailable:
        await opened.aclose()
        raise
    except DragomanError as error:
        await opened.aclose()
        raise explain(host, error) from error
    except BaseException:
        await opened.aclose()
        raise
    return opened


# -- explaining failures


def install_remedy(host: Host) -> str:
    """Return the remedy for a remote dragoman that does not match this one."""
    return f"install this version there with `dragoman hosts bootstrap {host.name}`"


def other_protocol(host: Host, number: int, version: str) -> HostUnavailable:
    """Return the error for a remote dragoman with another protocol number."""
    return HostUnavailable(
        host.name,
        f"dragoman {version} there speaks protocol {number}, but dragoman {__version__} here "
        f"speaks {protocol.PROTOCOL}",
        remedy=install_remedy(host),
    )


def explain(host: Host, error: DragomanError) -> HostUnavailable:
    """Return the error for a host that could not be reached, with a remedy."""
    if isinstance(error, ProcessExited):
        return explain_exit(host, error)
    name = host.name
    by_hand = f"try it manually: {by_hand_command(host)}"
    if isinstance(error, TooNoisy | LineTooLong):
        return HostUnavailable(
            name,
            "the login shell prints too much before dragoman starts",
            remedy=QUIET_REMEDY,
        )
    if isinstance(error, CallTimeout):
        return HostUnavailable(
            name,
            f"dragoman there did not answer within {GREETING_TIMEOUT:g} s",
            remedy=by_hand,
            passing=True,
        )
    if isinstance(error, RemoteError | InvalidAnswer):
        return HostUnavailable(
            name,
            f"unexpected answer from dragoman there: {error}",
            remedy=install_remedy(host),
        )
    return HostUnavailable(name, str(error), remedy=by_hand, passing=True)
