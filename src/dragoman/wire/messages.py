"""Lines become JSON-RPC messages, and messages become lines.

Owns the shape of the four kinds of message and what counts as one. The body of `params` and
`result` stays raw: whoever knows its type decodes it, once. It does not know what a method means,
or which answer belongs to which question (`peer` does).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from dragoman.errors import UsageError
from dragoman.wire import codes

Id: TypeAlias = int | str
"""Strings and integers; ``1`` is not ``"1"``, ``0`` is an id, ``true`` is not."""

NO_PARAMS: Final = Raw(b"")


class Request(Struct, frozen=True, gc=False):
    """Somebody asks and waits for an answer."""

    id: Id
    method: str
    params: Raw
    line: bytes
    """The line it came in, unmodified."""


class Notification(Struct, frozen=True, gc=False):
    """Somebody tells and waits for nothing."""

    method: str
    params: Raw
    line: bytes


class Result(Struct, frozen=True, gc=False):
    """A question was answered. ``null`` is an answer too."""

    id: Id
    result: Raw
    line: bytes


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """What an error says: `code` is `codes.UNKNOWN` where none was usable."""

    code: int
    message: str
    data: Any = None


class Failure(Struct, frozen=True):
    """A question was answered with an error; without an id it is nobody's answer."""

    id: Id | None
    error: ErrorObject
    line: bytes


class Malformed(Struct, frozen=True):
    """A line that is no message. `code` is what a strict end answers, None for "nothing".

    `id` is set when the line is recognisably an answer to that question, only not a valid one.
    """

    line: bytes
    code: int | None
    reason: str
    id: Id | None = None


Message: TypeAlias = Request | Notification | Result | Failure | Malformed


class Envelope(Struct, gc=False):
    """Any message as it stands on the wire, decoded in one pass with its bodies left raw.

    A `jsonrpc` member is neither required nor looked at, and other unknown members are ignored:
    real programs leave the one out and add the others.
    """

    # Bounded to 64 bits because that is what the protocols allow and what can be sent back.
    id: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | str | None | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = NO_PARAMS
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


decode_envelope = msgspec.json.Decoder(Envelope).decode

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Everything the decoder raises for bytes that are not what was asked for."""


def decode(line: bytes) -> Message:
    """What one line says. Never raises."""
    try:
        envelope = decode_envelope(line)
    except UNDECODABLE:
        return explain(line)
    if envelope.method is not UNSET:
        if envelope.id is UNSET:
            return Notification(envelope.method, envelope.params, line)
        if envelope.id is None:
            return Malformed(line, codes.INVALID_REQUEST, "a request must not have the id null")
        return Request(envelope.id, envelope.method, envelope.params, line)
    return answer(envelope, line)


def answer(envelope: Envelope, line: bytes) -> Message:
    """What an envelope without a method says."""
    id = None if envelope.id is UNSET else envelope.id
    # Some programs send `"error": null` beside a result, as an older version of JSON-RPC asks.
    if envelope.error is not UNSET and bytes(envelope.error) != b"null":
        return Failure(id, _error_object(envelope.error), line)
    if id is not None:
        if envelope.result is not UNSET:
            return Result(id, envelope.result, line)
        return Malformed(line, None, "an answer needs a result or an error", id)
    if envelope.result is not UNSET:
        return Malformed(line, None, "an answer needs an id")
    return Malformed(line, codes.INVALID_REQUEST, "neither a method nor an answer")


def explain(line: bytes) -> Malformed:
    """Why a line is no message, and what a strict end says to it."""
    if not line.strip():
        return Malformed(line, None, "blank")
    try:
        value = msgspec.json.decode(line)
    except UNDECODABLE:
        return Malformed(line, codes.PARSE_ERROR, "not JSON")
    if isinstance(value, list):
        return Malformed(line, codes.INVALID_REQUEST, "batches are not supported")
    if not isinstance(value, dict):
        return Malformed(line, codes.INVALID_REQUEST, "not an object")
    if "method" in value:
        return Malformed(line, codes.INVALID_REQUEST, "the id or the method is of the wrong type")
    # An answer to an answer would be the beginning of an endless exchange of complaints.
    return Malformed(line, None, "an answer whose id is of the wrong type")


class _LooseError(Struct):
    code: Any = None
    message: Any = None
    data: Any = None


_decode_loose_error = msgspec.json.Decoder(_LooseError).decode


def _error_object(raw: Raw) -> ErrorObject:
    """Read an error object that may be anything; what cannot be read is kept as its data."""
    try:
        loose = _decode_loose_error(raw)
    except UNDECODABLE:
        return ErrorObject(
            codes.UNKNOWN, "an error without a message", bytes(raw).decode(errors="replace")
        )
    usable = type(loose.code) is int
    return ErrorObject(
        loose.code if usable else codes.UNKNOWN,
        loose.message if isinstance(loose.message, str) else "an error without a message",
        loose.data if usable or loose.code is None else {"code": loose.code, "data": loose.data},
    )


class _Call(Struct):
    id: Id
    method: str
    params: Any = UNSET


class _Tell(Struct):
    method: str
    params: Any = UNSET


class _Answer(Struct):
    id: Id
    result: Any


class _Refusal(Struct):
    id: Id | None
    error: ErrorObject


# The constant member `"jsonrpc": "2.0"` is a struct tag, so that it costs nothing to write.
class _Call2(_Call, tag_field="jsonrpc", tag="2.0"):
    pass


class _Tell2(_Tell, tag_field="jsonrpc", tag="2.0"):
    pass


class _Answer2(_Answer, tag_field="jsonrpc", tag="2.0"):
    pass


class _Refusal2(_Refusal, tag_field="jsonrpc", tag="2.0"):
    pass


_encode = msgspec.json.Encoder().encode


class Writer:
    """Makes the lines of one end, with or without the `jsonrpc` member. Lines have no newline yet.

    `params` and `result` may be anything msgspec can encode, `Raw` included; ``UNSET`` leaves
    `params` out. What cannot be encoded is a `UsageError`.
    """

    __slots__ = ("_answer", "_call", "_refusal", "_tell")

    def __init__(self, *, jsonrpc: bool = True) -> None:
        self._call: type[_Call] = _Call2 if jsonrpc else _Call
        self._tell: type[_Tell] = _Tell2 if jsonrpc else _Tell
        self._answer: type[_Answer] = _Answer2 if jsonrpc else _Answer
        self._refusal: type[_Refusal] = _Refusal2 if jsonrpc else _Refusal

    def request(self, id: Id, method: str, params: Any = UNSET) -> bytes:
        return _line(self._call(id, method, params))

    def notification(self, method: str, params: Any = UNSET) -> bytes:
        return _line(self._tell(method, params))

    def result(self, id: Id, result: Any) -> bytes:
        return _line(self._answer(id, result))

    def failure(self, id: Id | None, error: ErrorObject) -> bytes:
        return _line(self._refusal(id, error))


def _line(message: Struct) -> bytes:
    try:
        line = _encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"the message cannot be written as JSON: {error}") from error
    # A raw body may have been pretty-printed. In JSON a newline is only ever white space: inside
    # a string it is written as an escape.
    return line if b"\n" not in line else line.replace(b"\n", b" ")
