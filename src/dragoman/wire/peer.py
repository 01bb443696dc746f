"""One end of a JSON-RPC connection as a state machine.

Matches requests and responses in both directions: which of our requests have no response yet, which
of the other side's still need one, and what a response is that matches no request. Has no I/O and
no clock: `dragoman.rpc` moves the bytes and decides how long to wait. The ids of the two directions
are independent: the other side's 0 is unrelated to ours.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct

from dragoman.errors import LineTooLong, MessageTooLong, PeerBusy, RequestInProgress, UsageError
from dragoman.wire import codes, messages
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE, Framer
from dragoman.wire.messages import (
    ErrorObject,
    ErrorResponse,
    Id,
    Malformed,
    Notification,
    Request,
    ResultResponse,
)

Slot = TypeVar("Slot")

_REMEMBERED: Final = 1024
"""Number of abandoned requests to remember, to distinguish a late response from a duplicate."""

_SHORT: Final = 512
"""Maximum size of a line whose params are copied; those of a longer line are a view of it."""


class End(enum.Enum):
    """Which end this is. It decides how invalid input is handled."""

    CLIENT = "client"
    """Invalid input is reported as `Noise`; nothing is sent."""
    AGENT = "agent"
    """Invalid input is answered with a JSON-RPC error, as the standard requires of a server."""


class ResultReceived(Struct, Generic[Slot], frozen=True, gc=False):
    """The request with `slot` got its result."""

    slot: Slot
    id: Id
    result: Raw
    line: bytes


class Failed(Struct, Generic[Slot], frozen=True):
    """The request with `slot` got an error response."""

    slot: Slot
    id: Id
    error: ErrorObject
    line: bytes


class Invalid(Struct, Generic[Slot], frozen=True):
    """The request with `slot` got an invalid response, which settles it."""

    slot: Slot
    id: Id
    reason: str
    line: bytes


class Stray(Struct, frozen=True):
    """A response that matches no pending request. `why`: ``late`` (we had given the request up),
    ``duplicate`` (it was answered before, or given up too long ago to be remembered), ``unknown``
    (it was never sent), ``no_id`` (an error without an id)."""

    why: str
    id: Id | None
    error: ErrorObject | None
    line: bytes


class Noise(Struct, frozen=True):
    """A line that is not a valid message, or a message that was not handled. `reply` is the line to
    send back, if any."""

    line: bytes
    reason: str
    reply: bytes | None = None


class Repeated(Struct, frozen=True):
    """A request with the id of an earlier one that still needs its response. It must not be
    handled; send `reply` instead."""

    request: Request
    reply: bytes


class Overrun(Struct, frozen=True):
    """A line exceeded the limit. Nothing more is read: the connection has to end."""

    error: LineTooLong


Event: TypeAlias = (
    Request
    | Notification
    | ResultReceived[Slot]
    | Failed[Slot]
    | Invalid[Slot]
    | Stray
    | Noise
    | Repeated
    | Overrun
)


class Unanswered(Struct, Generic[Slot], frozen=True):
    """A request of ours that has no response yet."""

    id: Id
    method: str
    slot: Slot


class PeerState(Generic[Slot]):
    """The state of one end. `Slot` is any value that the owner wants back with the response.

    Every method that creates a message returns its line, without the newline, and assumes that the
    line will be sent.
    """

    __slots__ = (
        "_abandoned",
        "_framer",
        "_half_duplex",
        "_limit",
        "_next_id",
        "_open",
        "_overrun",
        "_writer",
        "end",
        "pending",
    )

    def __init__(
        self,
        end: End,
        *,
        jsonrpc: bool = True,
        half_duplex: bool = False,
        max_line_size: int = DEFAULT_MAX_LINE_SIZE,
        reserved: messages.Reserved | None = None,
    ) -> None:
        self.end = end
        self._framer = Framer(max_line_size)
        self._writer = messages.Writer(jsonrpc=jsonrpc, reserved=reserved)
        self._limit = max_line_size
        self._half_duplex = half_duplex
        self._next_id = 0
        self.pending: dict[Id, tuple[str, Slot]] = {}
        """Our requests that have no response yet: method and slot by id. Read-only."""
        self._abandoned: OrderedDict[Id, str] = OrderedDict()
        self._open: set[Id] = set()
        self._overrun = False

    # -- sending

    def request(self, method: str, slot: Slot, params: Any = UNSET) -> tuple[Id, bytes]:
        """Create a request. Returns its id and its line.

        Raises `MessageTooLong` if the line exceeds the limit, and `UsageError` if the params cannot
        be encoded. In a half-duplex dialect, also raises `RequestInProgress` if an earlier request
        is pending, and `PeerBusy` if one was given up and its response is still due.
        """
        if self._half_duplex and self.pending:
            raise RequestInProgress(
                f"{method} cannot be sent: this dialect allows one request at a time, "
                "and one is still unanswered"
            )
        if self._half_duplex and self._abandoned:
            raise PeerBusy(method, next(iter(self._abandoned.values())))
        id = self._next_id
        line = self._writer.request(id, method, params)
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        self._next_id = id + 1
        self.pending[id] = (method, slot)
        return id, line

    def notification(self, method: str, params: Any = UNSET) -> bytes:
        """Create a notification. Raises `MessageTooLong` if its line exceeds the limit, and
        `UsageError` if the params cannot be encoded."""
        line = self._writer.notification(method, params)
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        return line

    def result(self, id: Id, result: Any) -> bytes:
        """Create the response to a request from the other side. Raises `UsageError` if that request
        is not open or the result cannot be encoded, and `MessageTooLong` if the line exceeds the
        limit. A request that was open remains open if this raises."""
        if id not in self._open:
            raise _not_open(id)
        line = self._writer.result(id, result)
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        self._open.discard(id)
        return line

    def failure(self, id: Id, code: int, message: str, data: Any = None) -> bytes:
        """Create an error response to a request from the other side. Raises like `result`."""
        if id not in self._open:
            raise _not_open(id)
        line = self._writer.failure(id, ErrorObject(code, message, data))
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        self._open.discard(id)
        return line

    @property
    def owes_answers(self) -> bool:
        """Whether a request of ours that was given up is still unanswered."""
        return bool(self._abandoned)

    def abandon(self, id: Id) -> None:
        """Give up a request of ours: a response that still arrives becomes a late `Stray`."""
        known = self.pending.pop(id, None)
        if known is not None:
            self._abandoned[id] = known[0]
            if len(self._abandoned) > _REMEMBERED:
                self._abandoned.popitem(last=False)

    # -- receiving

    def receive(self, data: bytes) -> list[Event[Slot]]:
        """Feed bytes. Returns the events they contain, in order."""
        return self._read(self._framer.feed(data))

    def receive_end(self) -> list[Event[Slot]]:
        """End the stream. Returns the events of a last line without a newline."""
        line = self._framer.end()
        # A truncated line is hardly ever valid JSON; then it is noise, and no reply can be sent.
        return [
            Noise(event.line, event.reason) if isinstance(event, Noise) else event
            for event in self._read([] if line is None else [line])
        ]

    # -- open requests

    @property
    def unanswered(self) -> list[Unanswered[Slot]]:
        """Our requests that have no response yet, oldest first."""
        return [Unanswered(id, method, slot) for id, (method, slot) in self.pending.items()]

    def is_open(self, id: Id) -> bool:
        """Return whether a request of the other side with this id still needs its response."""
        return id in self._open

    # -- decoding

    def _read(self, lines: list[bytes]) -> list[Event[Slot]]:
        """Decode lines. If a line was too long, the last event says so, once."""
        events: list[Event[Slot]] = []
        append = events.append
        decode = messages.decode_envelope
        pending = self.pending
        for line in lines:
            # The common kinds are distinguished here rather than by `messages.decode`, because the
            # calls and values in between are a fifth of the cost of a message, and a third of a
            # response.
            try:
                envelope = decode(line)
            except messages.UNDECODABLE:
                if not line:
                    # Blank lines get a shortcut: some programs write them endlessly.
                    continue
                second = messages.reread(line)
                if isinstance(second, Malformed):
                    self._malformed(second, append)
                    continue
                envelope = second
            method = envelope.method
            id = envelope.id
            if method is None:
                result = envelope.result
                # Our ids are ints. `type` is faster than isinstance.
                if (
                    result is not UNSET
                    and envelope.error is UNSET
                    and type(id) is int
                    and id in pending
                ):
                    append(ResultReceived(pending.pop(id)[1], id, result, line))
                else:
                    self._answer(messages.answer(envelope, line), append)
            elif id is UNSET:
                append(Notification(method, envelope.params, line))
            elif id is None:
                self._malformed(messages.null_id(line), append)
            elif id not in self._open:
                self._open.add(id)
                append(Request(id, method, envelope.params, line))
            else:
                append(self._repeated(Request(id, method, envelope.params, line)))
        if self._framer.overflowed and not self._overrun:
            self._overrun = True
            append(Overrun(LineTooLong(self._limit)))
        return events

    def _repeated(self, request: Request) -> Repeated:
        error = ErrorObject(codes.INVALID_REQUEST, "a request with this id is still open")
        return Repeated(request, self._writer.failure(request.id, error))

    def _answer(self, message: ResultResponse | ErrorResponse | Malformed, append: Any) -> None:
        id = message.id
        known = None if id is None else self.pending.pop(id, None)
        if isinstance(message, Malformed):
            if id is None or (known is None and id not in self._abandoned):
                self._malformed(message, append)
            elif known is None:
                append(Stray(self._why(id), id, None, message.line))
            else:
                append(Invalid(known[1], id, message.reason, message.line))
        elif isinstance(message, ErrorResponse):
            if id is None:
                append(Stray("no_id", None, message.error, message.line))
            elif known is None:
                append(Stray(self._why(id), id, message.error, message.line))
            else:
                append(Failed(known[1], id, message.error, message.line))
        elif known is None:
            append(Stray(self._why(message.id), id, None, message.line))
        else:
            append(ResultReceived(known[1], message.id, message.result, message.line))

    def _why(self, id: Id) -> str:
        if id in self._abandoned:
            del self._abandoned[id]
            return "late"
        # Our ids count up from zero, so every id below the next one was used.
        return "duplicate" if type(id) is int and 0 <= id < self._next_id else "unknown"

    def _malformed(self, message: Malformed, append: Any) -> None:
        if message.reason == messages.BLANK:
            return
        reply = None
        if self.end is End.AGENT and message.code is not None:
            text = "Parse error" if message.code == codes.PARSE_ERROR else "Invalid Request"
            reply = self._writer.failure(None, ErrorObject(message.code, text))
        append(Noise(message.line, message.reason, reply))


class LinkState(PeerState[Slot]):
    """The state of one end whose other end is in the same process. Notifications, nearly all of
    the traffic, are passed as objects; the rest as lines."""

    __slots__ = ()

    def told(self, method: str, params: Any = UNSET) -> Notification:
        """Create a notification in the form in which the other end receives it. Raises
        `MessageTooLong` if its line exceeds the limit."""
        line = self._writer.notification(method, params)
        if messages.BACKSLASH in line:
            line = messages.mend(line)
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        place = line.find(messages.PARAMS)
        if place < 0:
            return Notification(method, messages.NO_PARAMS, line)
        cut = slice(place + len(messages.PARAMS), -1)
        # A short copy takes less time and memory than a view; a long one would be kept twice.
        short = len(line) <= _SHORT
        return Notification(method, Raw(line[cut] if short else memoryview(line)[cut]), line)

    def receive(self, data: Iterable[Notification | bytes]) -> list[Event[Slot]]:  # type: ignore[override]
        """Receive what the other end sent. Returns the events, in order."""
        events: list[Event[Slot]] = []
        for each in data:
            if type(each) is Notification:
                events.append(each)
            else:
                events += self._read([each])  # type: ignore[list-item]
        return events


def _not_open(id: Id) -> UsageError:
    return UsageError(f"there is no open request with the id {id!r}")
