"""Connect our stdin and stdout to a broker, for `dragoman broker attach`.

Starts the broker if none runs and sends it the policy; then bytes are copied in both directions
without parsing, with back-pressure: reading pauses while the other side does not read. If the
broker hangs, copying stops.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from typing import Final

import msgspec

from dragoman.broker.client import hello
from dragoman.broker.client.connect import complete, spec_of
from dragoman.broker.client.find_or_start import ensure
from dragoman.broker.client.hello import open_stream
from dragoman.broker.protocol import TERMS
from dragoman.broker.spec import BrokerSpec
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.options import ConnectOptions
from dragoman.errors import BrokerError, ConnectionLost
from dragoman.policy import Policy
from dragoman.policy.rules import PolicyName
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.base import HIGH_WATER_SIZE, Stream
from dragoman.transports.stdio import open_stdio

SILENCE: Final = "DRAGOMAN_HOST_SILENCE"
"""Environment variable that the other side of an ssh connection sets: after this many seconds
without input the connection counts as dead. The other side sends empty lines more often than
that."""

PING_INTERVAL: Final = 10.0
"""Seconds between two of the empty lines that the other side sends."""

SILENCE_TIMEOUT: Final = 180.0
"""The seconds that the other side sets in `SILENCE`. sshd may not notice a dead link for hours, and
a permission request must not wait for a program that is gone. The timeout is long enough for a
laptop that sleeps briefly, or a program stopped in a debugger. A blocked event loop does not
matter: a thread sends the lines."""


async def attach(
    way: LaunchSpec,
    options: ConnectOptions,
    *,
    workspace: str | os.PathLike[str],
    policy: Policy | PolicyName,
    ttl: float | None = None,
    max_idle: int | None = None,
) -> None:
    """Copy between stdio and the broker of a peer until stdin or the broker ends, or stdin is
    silent for the number of seconds in the variable that `SILENCE` names.

    `policy` decides what the peer may do while no caller can answer. Raises what `ensure` does, and
    `BrokerError` if the broker no longer answers.
    """

    async def prepare(spec: BrokerSpec) -> BrokerSpec:
        return await complete(way, spec, inherit=options.inherit)

    spec = spec_of(way, options, workspace=workspace, ttl=ttl, max_idle=max_idle)
    reached = await ensure(spec, prepare=prepare, ttl=ttl)
    endpoint, hung = reached.endpoint, False
    async with AsyncExitStack() as opened:
        try:
            # A separate stream: messages of the attached program are not parsed here.
            stream = await open_stream(endpoint.address)
            opened.push_async_callback(stream.aclose)
        finally:
            await reached.connection.aclose()
        # Sent before any message from the attached program, which does not know about terms.
        terms = {"jsonrpc": "2.0", "method": TERMS, "params": {"policy": policy}}
        stream.write(msgspec.json.encode(terms) + b"\n")

        async def close_if_hung() -> None:
            nonlocal hung
            await hello.wait_hung(endpoint.address)
            hung = True
            await stream.aclose()

        tasks = TaskOwner("broker attach")
        opened.push_async_callback(tasks.aclose)
        tasks.start(close_if_hung(), "watch the broker")
        await join(await open_stdio(), stream, silence=_silence())
    if hung:
        raise BrokerError(hello.unanswered(endpoint.name, hello.PROBE_TIMEOUT))


def _silence() -> float | None:
    try:
        return float(os.environ[SILENCE])
    except (KeyError, ValueError):
        return None


async def join(near: Stream, far: Stream, *, silence: float | None = None) -> None:
    """Copy in both directions until one side ends, or nothing arrives from `near` for `silence`
    seconds; then close both."""
    over = asyncio.Event()
    tasks = TaskOwner("copy between two streams")
    try:
        far.start(_Copy(far, near, tasks, over))
        copy = _Copy(near, far, tasks, over)
        near.start(copy)
        if silence is not None:
            tasks.start(copy.end_if_silent(silence), "end a connection without a sign of life")
        await over.wait()
    finally:
        try:
            await tasks.aclose()
        finally:
            try:
                await near.aclose()
            finally:
                await far.aclose()


class _Copy:
    """Writes to one stream what arrives on another."""

    def __init__(
        self, source: Stream, target: Stream, tasks: TaskOwner, over: asyncio.Event
    ) -> None:
        self._source = source
        self._target = target
        self._tasks = tasks
        self._over = over
        self._waiting = False
        self._loop = asyncio.get_running_loop()
        self._read_at = self._loop.time()

    async def end_if_silent(self, seconds: float) -> None:
        while True:
            # While reading is paused, silence does not mean that the connection is dead.
            left = seconds if self._waiting else self._read_at + seconds - self._loop.time()
            if left <= 0:
                self._over.set()
                return
            await asyncio.sleep(left)

    def data_received(self, data: bytes) -> None:
        self._read_at = self._loop.time()
        try:
            self._target.write(data)
        except ConnectionLost:
            self._over.set()
            return
        if self._target.unsent_size > HIGH_WATER_SIZE and not self._waiting:
            self._waiting = True
            self._source.pause_reading()
            self._tasks.start(self._go_on(), "wait until the other side reads")

    def stream_ended(self, failure: ConnectionLost) -> None:
        self._over.set()

    async def _go_on(self) -> None:
        # No timeout: waiting for the other side is the back-pressure.
        with suppress(ConnectionLost):
            await self._target.drain()
        self._waiting = False
        self._read_at = self._loop.time()
        self._source.resume_reading()
