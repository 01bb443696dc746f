"""Connection to the fleet's server: TLS, credentials, stored messages, and our error types.

Wraps nats-py: `store` publishes to a stream and waits for the acknowledgement; `last` and `after`
read stored messages. The connection reconnects automatically. It closes when the credential is
revoked or expires, and when the server has another certificate.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from msgspec import Struct
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import (
    AuthorizationError,
    BadSubjectError,
    ConnectionClosedError,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferLimitError,
    SlowConsumerError,
)
from nats.errors import Error as NatsError

from dragoman.errors import FleetConflict, FleetError, FleetFull, FleetRefused, FleetUnreachable
from dragoman.fleet import subjects
from dragoman.fleet.credentials import JoinCode, MemberCredential
from dragoman.fleet.nkeys import read_seed
from dragoman.fleet.records import decode
from dragoman.fleet.team import Access
from dragoman.rpc.tasks import cancellable, finish
from dragoman.transports.tls import rejected, trusting

log = logging.getLogger(__name__)

CONNECT_TIMEOUT: Final = 5.0
"""Seconds for one attempt to connect."""

REQUEST_TIMEOUT: Final = 5.0
"""Seconds to wait for a reply from the server or the coordinator."""

RETRY_INTERVAL: Final = 0.2
"""Seconds between retries while the server restarts."""

CLOSE_TIMEOUT: Final = 2.0

MAX_REFUSALS: Final = 10
"""Number of refused reconnections after which the connection is closed. Either the server refuses
the credentials, or TLS rejects the server's certificate."""

PENDING_MESSAGES: Final = 16 * 1024
PENDING_SIZE: Final = 64 * 1024 * 1024
"""Maximum number of messages and bytes that wait for the handler of a subscription. Further
messages are dropped and logged, and `on_dropped` is called. Nothing is lost permanently: a worker
repeats its heartbeat, a lost assignment is assigned again when its lease expires, a request without
a reply fails or is repeated, and all other messages only notify about stored data."""

_FULL: Final = frozenset({10002, 10023, 10047, 10077, 10122})
"""JetStream error codes for a full stream, account or disk."""

_REFUSED: Final = ("violation", "revoked", "expired")
"""Words in the server's error messages about rejected credentials and missing rights."""

_NOT_SENT: Final = (ConnectionClosedError, NoRespondersError, OutboundBufferLimitError)
"""Failures after which a message certainly had no effect. After any other failure it may have had
one: nats-py sends pending messages as soon as it is reconnected."""

_INVALID: Final = (BadSubjectError, MaxPayloadError)
"""Failures of messages that the server would never accept."""

HEADERS_SIZE: Final = 128
"""Bytes for the headers of a message, which the server counts too."""

MAX_DENIALS: Final = 100
"""Number of the server's latest messages about missing rights that are remembered: more than there
are concurrent requests."""

_WRONG_REVISION: Final = frozenset({10071, 10164})
"""JetStream error codes for a last sequence number that is not the expected one."""


class StoredMessage(Struct, frozen=True):
    """A message in a stream."""

    subject: str
    sequence: int
    data: bytes


class _Ack(Struct):
    seq: int = 0
    duplicate: bool = False
    error: dict[str, Any] | None = None


class _FoundMessage(Struct):
    subject: str
    seq: int
    data: bytes = b""


class _Found(Struct):
    message: _FoundMessage | None = None
    error: dict[str, Any] | None = None


class _FleetClient(Client):
    """A nats-py client with our limits on every subscription, including the one for replies. Its
    connection survives a `flush` without an answer, and messages that are too large. Failed
    reconnects leave no open sockets."""

    async def _connect_to_server(self, s: Srv) -> None:
        # nats-py keeps no reference to the socket of an earlier attempt, and does not close it.
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)

    async def subscribe(
        self,
        subject: str,
        queue: str = "",
        cb: Callable[[Msg], Awaitable[None]] | None = None,
        future: asyncio.Future[Msg] | None = None,
        max_msgs: int = 0,
        pending_msgs_limit: int = PENDING_MESSAGES,
        pending_bytes_limit: int = PENDING_SIZE,
    ) -> Subscription:
        return await super().subscribe(
            subject, queue, cb, future, max_msgs, pending_msgs_limit, pending_bytes_limit
        )

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        # nats-py does not count the headers. The server does, and closes the connection.
        if headers and len(payload) + HEADERS_SIZE > self.max_payload:
            raise MaxPayloadError
        await super().publish(subject, payload, reply, headers)

    async def _process_pong(self) -> None:
        """Process the answer to a ping, even if the `flush` that sent the ping was cancelled or
        timed out. nats-py would set the result of a future that is already done. That raises an
        exception, which ends its read loop for this connection."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.Future()
        await super()._process_pong()


class FleetConnection:
    """The connection of one member or coordinator. Use it with `async with`."""

    def __init__(
        self,
        access: Access | MemberCredential | JoinCode,
        *,
        on_connected: Callable[[bool], None] = lambda connected: None,
    ) -> None:
        """`on_connected` is called with False when the connection is lost, and with True when it
        is restored."""
        self._access = access
        self._on_connected = on_connected
        self._name = access.id if isinstance(access, JoinCode) else access.name
        self._key = read_seed(access.seed)
        self._closed = asyncio.Event()
        self._refusals = 0
        self._on_dropped: dict[Subscription, Callable[[], None]] = {}
        self._dropped = 0
        self.refused = ""
        """The server's last message about a refused or expired credential or a missing right, or
        why TLS rejected the server's certificate; empty if there was none since the last
        reconnection."""
        self._denials: deque[str] = deque(maxlen=MAX_DENIALS)
        """The server's last messages about missing rights, in lower case."""
        self._client: Client = _FleetClient()

    @property
    def client(self) -> Client:
        return self._client

    @property
    def name(self) -> str:
        return self._name

    async def __aenter__(self) -> Self:
        access = self._access
        options: dict[str, Any] = {
            "dont_randomize": True,
            "name": self._name,
            "user_jwt_cb": lambda: bytearray(access.token.encode()),
            "signature_cb": self._sign,
            "inbox_prefix": subjects.inbox_prefix(self._name).encode(),
            "connect_timeout": CONNECT_TIMEOUT,
            "reconnect_time_wait": RETRY_INTERVAL,
            "max_reconnect_attempts": -1,
            "allow_reconnect": True,
            "ping_interval": 10,
            "error_cb": self._failed,
            "closed_cb": self._was_closed,
            "disconnected_cb": self._was_disconnected,
            "reconnected_cb": self._was_reconnected,
        }
        if not isinstance(access, Access):
            # Buffer nothing while disconnected: a worker's message must not be sent after its lease
            # has expired.
            options["pending_size"] = 0
        if access.authority:
            options["tls"] = trusting(access.authority)
            logging.getLogger("asyncio").addFilter(_is_of_interest)
            # Otherwise the server's first message is not encrypted, and a man in the middle could
            # replace it with one that does not require encryption.
            options["tls_handshake_first"] = True
        # Try every server once, in random order. Later reconnects may use any of them.
        urls = random.sample(access.urls, len(access.urls))
        for number in range(len(urls)):
            options["servers"] = [*urls[number:], *urls[:number]]
            try:
                await self._connect(options)
                return self
            # An error of TLS is an `OSError`.
            except (NatsError, OSError, TimeoutError) as error:
                await self._close()
                failure = _connect_failed(error, access.urls, self.refused)
                # All servers know the same credentials, but each has its own certificate.
                refused = isinstance(failure, FleetRefused) and not rejected(error)
                if number == len(urls) - 1 or refused:
                    raise failure from error
                self._client = _FleetClient()
                self._closed.clear()
                self.refused, self._refusals = "", 0
            except BaseException:
                await self._close()
                raise
        raise FleetUnreachable("the fleet credentials contain no server address")

    async def _connect(self, options: dict[str, Any]) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            # Without reconnects, so that a failure is raised at once.
            await cancellable(self._client.connect(**options | {"allow_reconnect": False}))
        self._client.options["allow_reconnect"] = True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        # A second cancellation must not leave the socket open.
        await finish(self._close_client())

    async def _close_client(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await cancellable(self._client.close())
        except (NatsError, OSError, TimeoutError):
            log.debug("could not close the connection to the fleet", exc_info=True)
        # nats-py cancels its reconnect task, but does not wait until the task has ended.
        reconnecting: asyncio.Task[None] | None = self._client._reconnection_task
        if reconnecting is not None and not reconnecting.done():
            await asyncio.wait({reconnecting}, timeout=CLOSE_TIMEOUT)

    def _sign(self, nonce: str) -> bytes:
        return base64.b64encode(self._key.sign(nonce.encode()))

    async def _failed(self, error: Exception) -> None:
        """Called by nats-py with errors from the server, and with failed connection attempts."""
        if isinstance(error, SlowConsumerError):
            self._message_dropped(error)
            return
        text = str(error)
        refused = isinstance(error, AuthorizationError) or (
            # nats-py has no separate class for these errors from the server.
            type(error) is NatsError and any(word in text.casefold() for word in _REFUSED)
        )
        if refused:
            self._denials.append(text.casefold())
        if refused or rejected(error):
            self.refused = _words(text) if refused else _untrusted(error)
            if not self._client.is_connected:
                # A reconnect was refused; nats-py will try again.
                self._refusals += 1
                if self._refusals >= MAX_REFUSALS:
                    self._closed.set()
        log.debug("fleet connection: %s", text)

    def _message_dropped(self, error: SlowConsumerError) -> None:
        self._dropped += 1
        if self._dropped.bit_count() == 1:
            # Log only the first, second, fourth, eighth and so on, because logging takes time.
            log.warning(
                "a message on %s was dropped, because too many wait to be processed (%d so far)",
                error.subject,
                self._dropped,
            )
        if (on_dropped := self._on_dropped.get(error.sub)) is not None:
            on_dropped()

    async def _was_closed(self) -> None:
        self._closed.set()

    async def _was_disconnected(self) -> None:
        self._on_connected(False)

    async def _was_reconnected(self) -> None:
        self.refused, self._refusals = "", 0
        self._on_connected(True)

    @property
    def closed(self) -> bool:
        """Whether the connection is permanently closed: the credential was refused, the server's
        certificate was rejected, or it was closed here."""
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        """Wait until the connection is permanently closed."""
        await self._closed.wait()

    def _require_open(self) -> None:
        if self.closed and self.refused:
            raise self.refusal() from ConnectionClosedError()

    def refusal(self, *, may_have_run: bool = False) -> FleetRefused:
        """Return the error for a connection that was closed permanently."""
        why = self.refused or "the credentials were revoked or have expired"
        return FleetRefused(
            f"the connection to the fleet was closed: {why}", may_have_run=may_have_run
        )

    def _require_right(self, action: str) -> None:
        """Raise `FleetRefused` if the server has said that the right to do `action` is missing."""
        for text in self._denials:
            if action.casefold() in text:
                raise FleetRefused(f"these fleet credentials lack a right: {_words(text)}")

    # -- messages

    async def subscribe(
        self,
        subject: str,
        handler: Callable[[Msg], Awaitable[None]],
        *,
        on_failure: Callable[[Exception], None] = lambda error: None,
        on_dropped: Callable[[], None] = lambda: None,
    ) -> Callable[[], Awaitable[None]]:
        """Call `handler` with each message of a subject, one after the other. Returns a function
        that ends the subscription; closing the connection ends it too.

        Exceptions from the handler are logged with their traceback and passed to `on_failure`;
        handling then continues with the next message. `on_dropped` is called for each message
        that was dropped because the handler is too slow.
        """

        async def handle(message: Msg) -> None:
            try:
                await handler(message)
            except Exception as error:
                # nats-py would report the exception as a connection error.
                log.error("processing a message on %s failed", message.subject, exc_info=error)
                on_failure(error)

        self._require_open()
        subscription = await self._do(self._client.subscribe(subject, cb=handle))
        self._on_dropped[subscription] = on_dropped
        try:
            await self.flush()
            self._require_right(f'subscription to "{subject}"')
        except BaseException:
            await self._unsubscribe(subscription)
            raise
        return partial(self._unsubscribe, subscription)

    async def _unsubscribe(self, subscription: Subscription) -> None:
        self._on_dropped.pop(subscription, None)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                # During a reconnect nats-py sends nothing and drops the subscription.
                await cancellable(subscription.unsubscribe())
        except (NatsError, OSError, TimeoutError):
            log.debug("could not unsubscribe", exc_info=True)

    async def flush(self) -> None:
        await self._do(self._client.flush(timeout=int(REQUEST_TIMEOUT)))

    async def publish(self, subject: str, data: bytes) -> None:
        """Publish a message without waiting for an acknowledgement."""
        self._require_open()
        await self._do(self._client.publish(subject, data), subject)

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout: float = REQUEST_TIMEOUT,
        headers: dict[str, str] | None = None,
        changes: bool = False,
    ) -> Msg:
        """Send a request and wait for one reply. Raises `FleetUnreachable` if there is none,
        `FleetRefused` if the right is missing or the connection was closed because of a refusal,
        and `FleetError` for a message that is too large. Set `changes` for a request that changes
        something: `may_have_run` of the error says whether it may have had its effect."""
        self._require_open()
        reply: Msg = await self._do(
            self._client.request(subject, data, timeout=timeout, headers=headers),
            subject,
            changes=changes,
        )
        return reply

    async def store(
        self,
        subject: str,
        data: bytes,
        *,
        revision: int | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> int:
        """Publish to a stream, wait until the message is stored, and return its sequence number.

        The message is resent while the server does not answer, and is stored only once. `revision`
        is the expected sequence number of the subject's last message, 0 if there must be none; a
        message with a revision is sent only once. Raises `FleetConflict`, `FleetFull`,
        `FleetRefused` and `FleetUnreachable`, and `FleetError` for a message that is too large;
        `may_have_run` of the error says whether it may have been stored.
        """
        again = revision is None
        headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        if again:
            # Random: the server drops a message whose id it knows, even from another member. If
            # others could guess the id, they could have this message dropped.
            headers = {"Nats-Msg-Id": secrets.token_hex(16)}
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout
        in_doubt = False
        while True:
            try:
                left = max(give_up_at - loop.time(), 0.1)
                reply = await self.request(
                    subject,
                    data,
                    timeout=min(left, REQUEST_TIMEOUT) if again else left,
                    headers=headers,
                    changes=True,
                )
                break
            except (FleetUnreachable, FleetRefused) as error:
                in_doubt = in_doubt or error.may_have_run
                refused = isinstance(error, FleetRefused) or self.closed
                if not again or refused or loop.time() >= give_up_at:
                    error.may_have_run = in_doubt
                    raise
                await asyncio.sleep(RETRY_INTERVAL)
        try:
            ack = decode(reply.data, _Ack)
        except FleetError as error:
            error.may_have_run = True
            raise
        if ack.error is not None:
            raise _store_failed(ack.error, subject)
        return ack.seq

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message of a subject; None if there is none.

        In a cluster, a member may read from a server that does not have the latest messages yet.
        The coordinator always reads from the stream's leader.
        """
        if isinstance(self._access, Access):
            return await self._from_leader(stream, {"last_by_subj": subject})
        return _stored(await self.request(subjects.direct_get(stream, subject)))

    async def after(self, stream: str, sequence: int, subject: str) -> StoredMessage | None:
        """Return the first message on a subject, which may have wildcards, whose sequence number is
        at least `sequence`; None if there is none."""
        wanted = {"seq": max(sequence, 1), "next_by_subj": subject}
        if isinstance(self._access, Access):
            return await self._from_leader(stream, wanted)
        data = msgspec.json.encode(wanted)
        return _stored(await self.request(subjects.direct_get(stream), data))

    async def _from_leader(self, stream: str, wanted: dict[str, Any]) -> StoredMessage | None:
        reply = await self.request(subjects.leader_get(stream), msgspec.json.encode(wanted))
        found = decode(reply.data, _Found)
        if found.message is not None:
            return StoredMessage(found.message.subject, found.message.seq, found.message.data)
        if found.error is not None and found.error.get("code") == 404:
            return None
        raise FleetUnreachable(f"cannot read from the fleet's server: {found.error}")

    async def _do(self, work: Awaitable[Any], subject: str = "", *, changes: bool = False) -> Any:
        """Await a call of nats-py and convert its errors. `subject` is the subject of the message
        that it publishes, if any."""
        doing = f" ({subject})" if subject else ""
        try:
            return await cancellable(work)
        except _INVALID as error:
            raise FleetError(
                f"cannot send a message to the fleet{doing}: {_words(error)}"
            ) from error
        except (NatsError, OSError, TimeoutError) as error:
            in_doubt = changes and not isinstance(error, _NOT_SENT)
            if self.closed and self.refused:
                raise self.refusal(may_have_run=in_doubt) from error
            if subject:
                # If the right is missing, the server does not reply but reports an error.
                self._require_right(f'publish to "{subject}"')
            raise FleetUnreachable(
                f"the fleet's server does not answer{doing}: {_words(error)}",
                may_have_run=in_doubt,
            ) from error


def _is_of_interest(record: logging.LogRecord) -> bool:
    """Return whether to keep a log record. False for a warning that asyncio logs at the end of
    every connection on which nats-py started TLS after connecting."""
    return "eof_received() has no effect when using ssl" not in record.getMessage()


def _stored(reply: Msg) -> StoredMessage | None:
    headers = reply.headers or {}
    subject, sequence = headers.get("Nats-Subject", ""), headers.get("Nats-Sequence", "")
    if subject and sequence.isdecimal():
        # First, because the sender of a stored message may have added a status to its headers.
        return StoredMessage(subject, int(sequence), reply.data)
    status = headers.get("Status", "")
    if status == "404":
        return None
    if status:
        raise FleetUnreachable(f"cannot read from the fleet's server: {status}")
    raise FleetError("the fleet's server sent a message without a subject or a sequence number")


def _store_failed(error: dict[str, Any], subject: str) -> FleetError:
    code = error.get("err_code", 0)
    text = str(error.get("description", error))
    if code in _WRONG_REVISION:
        return FleetConflict(f"{subject} was changed by another process: {text}")
    if code in _FULL:
        return FleetFull(f"the fleet's server is full: {text}")
    return FleetError(f"the fleet's server could not store {subject}: {text}")


def _connect_failed(error: BaseException, urls: tuple[str, ...], refused: str) -> FleetError:
    where = ", ".join(urls)
    if rejected(error):
        return FleetRefused(f"{_untrusted(error)} ({where})")
    text = refused or _words(error)
    if isinstance(error, AuthorizationError) or "uthorization" in text or refused:
        return FleetRefused(
            f"the fleet's server does not accept these credentials: they have expired or were "
            f"revoked ({text})"
        )
    return FleetUnreachable(f"cannot connect to the fleet at {where}: {text}")


def _untrusted(error: BaseException) -> str:
    return (
        "the fleet's server does not have the certificate that these credentials expect: "
        f"{_words(error)}"
    )


def _words(error: BaseException | str) -> str:
    return str(error).removeprefix("nats: ").strip("'") or type(error).__name__
