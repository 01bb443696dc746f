"""Lines become JSON-RPC messages, and messages become lines.

Owns the shape of the four kinds of message and what counts as one. The body of `params` and
`result` stays raw: whoever knows its type decodes it, once. It does not know what a method means,
or which answer belongs to which question (`peer` does).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from dragoman.errors import UsageError
from dragoman.wire import codes

Id: TypeAlias = int | str
"""Strings and integers; ``1`` is not ``"1"``, ``0`` is an id, ``true`` is not."""

MAX_ID_LENGTH: Final = 1024
"""Characters in an id. A longer one is none: its answer might not fit into a line, and a question
that can neither be answered nor refused would stay open for ever."""

NO_PARAMS: Final = Raw(b"")
"""What a message without params has for them, to be known by identity; sent, it is left out."""

BLANK: Final = "blank"
"""The reason why an empty line is no message. It is nothing to complain about either."""


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


class ResultResponse(Struct, frozen=True, gc=False):
    """A question was answered. ``null`` is an answer too."""

    id: Id
    result: Raw
    line: bytes


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """What an error says: `code` is `codes.UNKNOWN` where none was usable."""

    code: int
    message: str
    data: Any = None


class ErrorResponse(Struct, frozen=True):
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


Message: TypeAlias = Request | Notification | ResultResponse | ErrorResponse | Malformed


class Envelope(Struct, gc=False):
    """Any message as it stands on the wire, decoded in one pass with its bodies left raw.

    A `jsonrpc` member is neither required nor looked at, and other unknown members are ignored:
    real programs leave the one out and add the others.
    """

    # Bounded to 64 bits because that is what the protocols allow and what can be sent back.
    id: (
        Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
        | Annotated[str, Meta(max_length=MAX_ID_LENGTH)]
        | None
        | UnsetType
    ) = UNSET
    # A method of null is no method: some programs write every member into every message.
    method: str | None = None
    params: Raw = NO_PARAMS
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


decode_envelope = msgspec.json.Decoder(Envelope).decode

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Everything the decoder raises for bytes that are not what was asked for."""

_NULL: Final = Raw(b"null")


def decode(line: bytes) -> Message:
    """What one line says. Never raises."""
    try:
        envelope = decode_envelope(line)
    except UNDECODABLE:
        second = reread(line)
        if isinstance(second, Malformed):
            return second
        envelope = second
    if envelope.method is None:
        return answer(envelope, line)
    if envelope.id is UNSET:
        return Notification(envelope.method, envelope.params, line)
    if envelope.id is None:
        return null_id(line)
    return Request(envelope.id, envelope.method, envelope.params, line)


def answer(envelope: Envelope, line: bytes) -> ResultResponse | ErrorResponse | Malformed:
    """What an envelope without a method says."""
    id = None if envelope.id is UNSET else envelope.id
    # Some programs send `"error": null` beside a result, as an older version of JSON-RPC asks.
    if envelope.error is not UNSET and envelope.error != _NULL:
        return ErrorResponse(id, _error_object(envelope.error), line)
    if envelope.result is UNSET:
        return Malformed(line, codes.INVALID_REQUEST, "neither a method nor an answer", id)
    if id is None:
        return Malformed(line, None, "an answer needs an id")
    return ResultResponse(id, envelope.result, line)


def null_id(line: bytes) -> Malformed:
    """A question that nobody could answer: the answer would name no question."""
    return Malformed(line, codes.INVALID_REQUEST, "a request must not have the id null")


def reread(line: bytes) -> Envelope | Malformed:
    """Look again at a line that `decode_envelope` refused: mend it, or say what is wrong.

    The one thing that is mended is half of a surrogate pair, which JSON allows and the decoder
    does not: programs that stream text in UTF-16 units send it when they cut an emoji in two. One
    such character must not cost the whole message, or the answer that somebody waits for. In an id
    it is not mended (nor is an id believed that may have been), because the answer has to carry
    the very same one.
    """
    mended = mend(line)
    if mended is not line:
        try:
            envelope = decode_envelope(mended)
        except UNDECODABLE:
            pass
        else:
            if not isinstance(envelope.id, str) or "\ufffd" not in envelope.id:
                return envelope
    return _explain(line, mended)


def _explain(line: bytes, mended: bytes) -> Malformed:
    """Why a line is no message, and what a strict end says to it."""
    if not line.strip():
        return Malformed(line, None, BLANK)
    try:
        value = msgspec.json.decode(mended)
    except UNDECODABLE:
        return Malformed(line, codes.PARSE_ERROR, "not JSON")
    if isinstance(value, list):
        return Malformed(line, codes.INVALID_REQUEST, "batches are not supported")
    if not isinstance(value, dict):
        return Malformed(line, codes.INVALID_REQUEST, "not an object")
    if value.get("method") is None and ("result" in value or "error" in value):
        # An answer to an answer would be the beginning of an endless exchange of complaints.
        return Malformed(line, None, "an answer whose id is not valid")
    return Malformed(line, codes.INVALID_REQUEST, "the id or the method is not valid")


_WHOLE_PAIR_SIZE: Final = len(b"\\ud83d\\ude00")
# Every escape is matched, whole, so that the second half of an escaped backslash or of a pair is
# never taken for the beginning of one.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|u[dD][c-fC-F][0-9a-fA-F]{2}|.)"
)


def mend(text: bytes) -> bytes:
    """JSON text with every half of a surrogate pair replaced by the replacement character.

    The same object if there is none that could be one.
    """
    return _ESCAPE.sub(_mended, text) if b"\\ud" in text or b"\\uD" in text else text


def _mended(escape: re.Match[bytes]) -> bytes:
    text = escape[0]
    return text if len(text) in (2, _WHOLE_PAIR_SIZE) else b"\\ufffd"


_NO_MESSAGE: Final = "an error without a message"


class _LooseError(Struct):
    code: Raw = _NULL
    message: Raw = _NULL
    data: Raw = _NULL


_decode_loose_error = msgspec.json.Decoder(_LooseError).decode


def _error_object(raw: Raw) -> ErrorObject:
    """Read an error object that may be anything; what has no other place is kept as its data."""
    try:
        loose = _decode_loose_error(raw)
    except UNDECODABLE:
        value = _value(raw)
        if isinstance(value, str):
            return ErrorObject(codes.UNKNOWN, value)
        return ErrorObject(codes.UNKNOWN, _NO_MESSAGE, value)
    code, message, data = _value(loose.code), _value(loose.message), _value(loose.data)
    odd: dict[str, Any] = {}
    if type(code) is not int:
        odd |= {} if code is None else {"code": code}
        code = codes.UNKNOWN
    if not isinstance(message, str):
        odd |= {} if message is None else {"message": message}
        message = _NO_MESSAGE
    return ErrorObject(code, message, odd | {"data": data} if odd else data)


def _value(raw: Raw) -> Any:
    """The value of a body of which nothing is known, or its text if it cannot be decoded."""
    try:
        return msgspec.json.decode(raw)
    except UNDECODABLE:
        return bytes(raw).decode(errors="replace")


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

# Numbers, because looking for a byte in bytes is ten times as fast as looking for bytes.
_NEWLINE: Final = 0x0A
_RETURN: Final = 0x0D


class Reserved(NamedTuple):
    """A text that never gets on the wire, for a dialect whose values write it where they hold what
    has to be put elsewhere first. Looking for it afterwards costs next to nothing, and looking at
    every value before would cost more than writing it."""

    text: bytes
    clear: Callable[[Any], Any]
    """Makes a body that does not write it of one that did."""


class Writer:
    """Makes the lines of one end, with or without the `jsonrpc` member. Lines have no newline yet.

    `params` and `result` may be anything msgspec can encode, `Raw` included; ``UNSET`` (and
    `NO_PARAMS`, so that a message can be passed on) leaves `params` out. What
    cannot be encoded is a `UsageError`.
    """

    __slots__ = ("_answer", "_call", "_clear", "_first", "_refusal", "_reserved", "_tell")

    def __init__(self, *, jsonrpc: bool = True, reserved: Reserved | None = None) -> None:
        self._reserved = b"" if reserved is None else reserved.text
        # Its first byte is looked for first: that takes a fifth of the time.
        self._first = 0 if reserved is None else reserved.text[0]
        self._clear = None if reserved is None else reserved.clear
        self._call: type[_Call] = _Call2 if jsonrpc else _Call
        self._tell: type[_Tell] = _Tell2 if jsonrpc else _Tell
        self._answer: type[_Answer] = _Answer2 if jsonrpc else _Answer
        self._refusal: type[_Refusal] = _Refusal2 if jsonrpc else _Refusal

    # `_line` is written out in these three: nothing else is done as often.

    def request(self, id: Id, method: str, params: Any = UNSET) -> bytes:
        try:
            line = _encode(self._call(id, method, UNSET if params is NO_PARAMS else params))
        except _UNWRITABLE as error:
            raise _unwritable(error) from error
        if _NEWLINE in line or _RETURN in line:
            line = _on_one_line(line)
        if self._clear is not None and self._first in line and self._reserved in line:
            line = _line(self._call(id, method, self._clear(params)))
        return line

    def notification(self, method: str, params: Any = UNSET) -> bytes:
        try:
            line = _encode(self._tell(method, UNSET if params is NO_PARAMS else params))
        except _UNWRITABLE as error:
            raise _unwritable(error) from error
        if _NEWLINE in line or _RETURN in line:
            line = _on_one_line(line)
        if self._clear is not None and self._first in line and self._reserved in line:
            line = _line(self._tell(method, self._clear(params)))
        return line

    def result(self, id: Id, result: Any) -> bytes:
        try:
            line = _encode(self._answer(id, result))
        except _UNWRITABLE as error:
            raise _unwritable(error) from error
        if _NEWLINE in line or _RETURN in line:
            line = _on_one_line(line)
        if self._clear is not None and self._first in line and self._reserved in line:
            line = _line(self._answer(id, self._clear(result)))
        return line

    def failure(self, id: Id | None, error: ErrorObject) -> bytes:
        return _line(self._refusal(id, error))


PARAMS: Final = b'"params":'
"""What stands before the params in a line of a `Writer`. Before that stands the method, and a quote
within it is escaped: the first place is the right one."""

BACKSLASH: Final = 0x5C
"""What every escape begins with, to be looked for before `mend`."""


def _line(message: Struct) -> bytes:
    try:
        line = _encode(message)
    except _UNWRITABLE as error:
        raise _unwritable(error) from error
    return _on_one_line(line) if _NEWLINE in line or _RETURN in line else line


_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)


def _unwritable(error: Exception) -> UsageError:
    return UsageError(f"the message cannot be written as JSON: {error}")


def _on_one_line(line: bytes) -> bytes:
    """A raw body may have been pretty-printed. In JSON a line break is only ever white space:
    inside a string it is an escape. A carriage return alone ends a line for some readers."""
    return line.replace(b"\n", b" ").replace(b"\r", b" ")
