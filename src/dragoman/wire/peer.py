"""One end of a JSON-RPC conversation as a state machine.

Owns correlation in both directions: which answers are awaited, which questions are still to be
answered, and what to make of an answer that fits nothing. It does no I/O and does not know time;
`dragoman.rpc` moves its bytes and decides how long to wait. Ids of the two directions are separate
worlds: the other side's 0 has nothing to do with ours.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct

from dragoman.errors import LineTooLong, MessageTooLong, RequestInProgress, UsageError
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
"""How many given-up requests are remembered, to tell a late answer from one never asked for."""

_SHORT: Final = 512
"""Bytes of a line up to which its params are copied."""


class End(enum.Enum):
    """Which end we are. It decides what bad input gets."""

    CLIENT = "client"
    """Bad input is noise: it is reported here and nothing is sent."""
    AGENT = "agent"
    """Bad input is answered with a JSON-RPC error, as the standard asks of a server."""


class ResultReceived(Struct, Generic[Slot], frozen=True, gc=False):
    """The request behind `slot` has its result."""

    slot: Slot
    id: Id
    result: Raw
    line: bytes


class Failed(Struct, Generic[Slot], frozen=True):
    """The request behind `slot` was answered with an error."""

    slot: Slot
    id: Id
    error: ErrorObject
    line: bytes


class Invalid(Struct, Generic[Slot], frozen=True):
    """The request behind `slot` was answered with something that is no answer. It is settled."""

    slot: Slot
    id: Id
    reason: str
    line: bytes


class Stray(Struct, frozen=True):
    """An answer that settles nothing. `why`: ``late`` (we had given up), ``duplicate`` (or so old
    that we forgot), ``unknown`` (never asked), ``no_id`` (an error that names no request)."""

    why: str
    id: Id | None
    error: ErrorObject | None
    line: bytes


class Noise(Struct, frozen=True):
    """A line that is no message. `reply` is what has to be sent back, if anything."""

    line: bytes
    reason: str
    reply: bytes | None = None


class Repeated(Struct, frozen=True):
    """A request with an id that is still open. It is not to be handled; `reply` says so."""

    request: Request
    reply: bytes


class Overrun(Struct, frozen=True):
    """A line was over the limit. Nothing more will be read: the connection has to end."""

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
    """A request of ours that has no answer."""

    id: Id
    method: str
    slot: Slot


class PeerState(Generic[Slot]):
    """The state of one end. `Slot` is whatever the owner wants back with an answer.

    Every method that makes something to send returns the line, without its newline, and has
    already counted on its being sent.
    """

    __slots__ = (
        "_abandoned",
        "_framer",
        "_half_duplex",
        "_limit",
        "_next_id",
        "_open",
        "_overrun",
        "_pending",
        "_writer",
        "end",
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
        self._pending: dict[Id, tuple[str, Slot]] = {}
        self._abandoned: OrderedDict[Id, None] = OrderedDict()
        self._open: set[Id] = set()
        self._overrun = False

    # -- what we send

    def request(self, method: str, slot: Slot, params: Any = UNSET) -> tuple[Id, bytes]:
        """Ask. Returns the request's id and its line."""
        if self._half_duplex and (self._pending or self._abandoned):
            # A request that we gave up is still being worked on over there.
            raise RequestInProgress(
                f"{method} cannot be sent: this dialect allows one request at a time, "
                "and one is still unanswered"
            )
        id = self._next_id
        line = self._writer.request(id, method, params)
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        self._next_id = id + 1
        self._pending[id] = (method, slot)
        return id, line

    def notification(self, method: str, params: Any = UNSET) -> bytes:
        """Tell."""
        line = self._writer.notification(method, params)
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        return line

    def result(self, id: Id, result: Any) -> bytes:
        """Answer a request of theirs."""
        if id not in self._open:
            raise _not_open(id)
        line = self._writer.result(id, result)
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        self._open.discard(id)
        return line

    def failure(self, id: Id, code: int, message: str, data: Any = None) -> bytes:
        """Answer a request of theirs with an error."""
        if id not in self._open:
            raise _not_open(id)
        line = self._writer.failure(id, ErrorObject(code, message, data))
        if len(line) > self._limit:
            raise MessageTooLong(len(line), self._limit)
        self._open.discard(id)
        return line

    def abandon(self, id: Id) -> None:
        """Give up a request of ours: its answer, should it come, will be a late `Stray`."""
        if self._pending.pop(id, None) is not None:
            self._abandoned[id] = None
            if len(self._abandoned) > _REMEMBERED:
                self._abandoned.popitem(last=False)

    # -- what we receive

    def receive(self, data: bytes) -> list[Event[Slot]]:
        """Take bytes; return what they say, in order."""
        return self._read(self._framer.feed(data))

    def receive_end(self) -> list[Event[Slot]]:
        """The stream has ended: return what a last line without a newline says."""
        line = self._framer.end()
        # A line that was cut off in the middle is hardly ever JSON; then it is noise like any
        # other, and there is nobody left to answer to.
        return [
            Noise(event.line, event.reason) if isinstance(event, Noise) else event
            for event in self._read([] if line is None else [line])
        ]

    # -- what is open

    @property
    def unanswered(self) -> list[Unanswered[Slot]]:
        """Our requests that have no answer yet, oldest first."""
        return [Unanswered(id, method, slot) for id, (method, slot) in self._pending.items()]

    @property
    def waits(self) -> bool:
        """Whether a request of ours has no answer yet."""
        return bool(self._pending)

    def is_open(self, id: Id) -> bool:
        """Whether a request of theirs with this id still needs its answer."""
        return id in self._open

    # -- inside

    def _read(self, lines: list[bytes]) -> list[Event[Slot]]:
        """What the lines say, and after them, once, that one was too long."""
        events: list[Event[Slot]] = []
        append = events.append
        decode = messages.decode_envelope
        pending = self._pending
        for line in lines:
            # The common kinds are told apart here rather than by `messages.decode`, because calls
            # and values in between are a fifth of the cost of a message, and a third of an answer.
            try:
                envelope = decode(line)
            except messages.UNDECODABLE:
                if not line:
                    # Blank, and worth a short cut: some programs write them without end.
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
                # An id of ours is a number. `type` rather than isinstance: it is the faster one.
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
        known = None if id is None else self._pending.pop(id, None)
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
        # Our ids are counted up from zero, so one below the next was ours once.
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
    """The state of one end whose other end is in the same process. Notifications, which are nearly
    everything that is sent, are handed over as what they are; the rest as lines."""

    __slots__ = ()

    def told(self, method: str, params: Any = UNSET) -> Notification:
        """Tell, as the other end will read it."""
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
        """Take what the other end sent; return what it says, in order."""
        events: list[Event[Slot]] = []
        for each in data:
            if type(each) is Notification:
                events.append(each)
            else:
                events += self._read([each])  # type: ignore[list-item]
        return events


def _not_open(id: Id) -> UsageError:
    return UsageError(f"there is no open request with the id {id!r}")
