"""Find the running broker for a spec or start one, and replace an outdated broker.

`broker.client.launch` starts a broker if none answers, and is loaded only then.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from dragoman.broker.client import hello
from dragoman.broker.client.hello import (
    ANSWER_TIMEOUT,
    BrokerHello,
    ask,
    open_stream,
    say_hello,
)
from dragoman.broker.endpoint import Endpoint, endpoint_of
from dragoman.broker.protocol import STOP
from dragoman.broker.spec import PROTOCOL, BrokerSpec, endpoint_name
from dragoman.errors import (
    BrokerUnavailable,
    CallError,
    CallTimeout,
    ConnectError,
    ConnectionLost,
)
from dragoman.rpc import Connection, ConnectionSettings

Prepare: TypeAlias = Callable[[BrokerSpec], Awaitable[BrokerSpec]]

log = logging.getLogger(__name__)


class StartTimes(Struct, frozen=True, kw_only=True):
    """Timeouts of finding or starting a broker, in seconds."""

    answer: float = ANSWER_TIMEOUT
    """For the response to hello, before a broker counts as hung."""
    name: float = 10.0
    """For a name that is held while nothing listens. A broker that is starting, or releasing the
    name, needs less than a second."""
    start: float = 30.0
    """From the start of a broker's program until it listens, with Python on a cold disk."""
    death: float = 5.0
    """From a kill until the name is free."""
    total: float = 60.0
    """For everything together, including replacements."""


TIMES: Final = StartTimes()


class FoundBroker(Struct, frozen=True, kw_only=True):
    """An open connection to a usable broker."""

    connection: Connection
    greeting: BrokerHello
    endpoint: Endpoint
    started: bool
    """Whether it was started for this call."""


async def ensure(
    spec: BrokerSpec,
    *,
    prepare: Prepare | None = None,
    ttl: float | None = None,
    times: StartTimes = TIMES,
    program: Sequence[str] | None = None,
    settings: ConnectionSettings | None = None,
) -> FoundBroker:
    """Connect to the broker of this spec, and start one if none runs.

    `prepare` is awaited before a start, to add what is not needed to find a broker; its exceptions
    propagate. A running broker takes `ttl`, if given, as its idle timeout. Raises
    `BrokerUnavailable` if no broker is available, or the error that a new broker reports; no prompt
    was sent in either case.
    """
    endpoint = endpoint_of(endpoint_name(spec), spec.paths)
    endpoint.make_safe()
    search = BrokerSearch(spec, endpoint, times, ttl, settings)
    try:
        async with asyncio.timeout(times.total):
            found = await search.call(started=False)
            if found is None:
                # Imported here: most calls find a running broker.
                from dragoman.broker.client import launch

                found = await launch.start_until_found(search, prepare, program or launch.PROGRAM)
            return found
    except TimeoutError:
        raise BrokerUnavailable(
            f"could not start or reach a broker for {spec.peer} within {times.total:g} s; its log: "
            f"{endpoint.log}"
        ) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise BrokerUnavailable(
            f"cannot start a broker for {spec.peer}: {where}{error.strerror or error}"
        ) from error


class BrokerSearch:
    """One caller's search for a usable broker."""

    def __init__(
        self,
        spec: BrokerSpec,
        endpoint: Endpoint,
        times: StartTimes,
        ttl: float | None,
        settings: ConnectionSettings | None,
    ) -> None:
        self.spec = spec
        self._settings = settings
        self._ttl = ttl
        self.endpoint = endpoint
        self.times = times
        self.hung: bytes | None = None
        """The text in the lock of a broker that did not answer; None if there was none."""

    async def call(self, *, started: bool) -> FoundBroker | None:
        """Connect and send hello. Returns None if there is no usable broker; an outdated one is
        first asked to end. Raises `BrokerUnavailable` if another program listens at the address, or
        the broker's protocol is not understood."""
        try:
            stream = await open_stream(self.endpoint.address, timeout=self.times.answer)
        except ConnectError:
            return None
        connection = hello.started(stream, settings=self._settings)
        keep = False
        try:
            greeting = await say_hello(
                connection,
                version=self.spec.version,
                identity=self.spec.identity_digest,
                ttl=self._ttl,
                timeout=self.times.answer,
            )
            keep = await self._is_of_use(connection, greeting)
            if not keep:
                return None
            return FoundBroker(
                connection=connection, greeting=greeting, endpoint=self.endpoint, started=started
            )
        except CallTimeout:
            from dragoman.broker.lock import read_text

            self.hung = read_text(self.endpoint.lock)
            return None
        except ConnectionLost:
            # The broker is just ending.
            return None
        except CallError as error:
            raise BrokerUnavailable(
                f"the program listening at {self.endpoint.address} is not a broker: {error}"
            ) from error
        finally:
            if not keep:
                await connection.aclose()

    async def _is_of_use(self, connection: Connection, greeting: BrokerHello) -> bool:
        if greeting.draining:
            return False
        reason = outdated(greeting, self.spec)
        if reason is None:
            return True
        log.info("replacing the broker %s: %s", self.endpoint.name, reason)
        await ask(connection, STOP, {"drain": True, "ifIdle": False}, timeout=self.times.answer)
        return False


def outdated(greeting: BrokerHello, spec: BrokerSpec) -> str | None:
    """Return why a broker has to be replaced, or None if it can be used.

    An older dragoman uses a newer broker if both have the same protocol number: two installations
    must not keep replacing each other's brokers. Raises `BrokerUnavailable` if the numbers differ.
    """
    if greeting.identity and greeting.identity != spec.identity_digest:
        return "the peer's files have changed"
    if _version(greeting.version) < _version(spec.version):
        return f"it runs dragoman {greeting.version}, and this is {spec.version}"
    if greeting.protocol != PROTOCOL:
        raise BrokerUnavailable(
            f"the broker runs dragoman {greeting.version}, which this dragoman {spec.version} does "
            "not understand; upgrade this one, or stop the broker"
        )
    return None


def _version(text: str) -> list[tuple[int, int, str]]:
    """Return a version as a sort key: numbers are compared as numbers, and pre-releases are before
    their release."""
    places = {"dev": -1, "post": 2}
    words = re.findall("[0-9]+|[a-z]+", text.split("+")[0])
    parts = [(3, int(w), "") if w.isdecimal() else (places.get(w, 0), 0, w) for w in words]
    return [*parts, (1, 0, "")]
