"""Encode and decode JSON-RPC messages.

Defines the four kinds of message and what is valid. The bodies of `params` and `result` stay raw;
the code that knows their type decodes them, once. This module knows neither the meaning of methods
nor which response belongs to which request (`peer` does).
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
"""The id of a request: a string or an integer. ``1`` is not ``"1"``, ``0`` is an id, ``true`` is
not."""

MAX_ID_LENGTH: Final = 1024
"""Maximum length of an id, in characters. A longer one is invalid: its response might not fit into
a line, and a request that can be neither answered nor refused would stay open forever."""

NO_PARAMS: Final = Raw(b"")
"""The params of a message that has none, compared by identity and omitted when sent."""

BLANK: Final = "blank"
"""The `reason` of a `Malformed` line that is empty or only white space. `PeerState` ignores such
lines rather than reporting them."""


class Request(Struct, frozen=True, gc=False):
    """A request: the sender waits for a response."""

    id: Id
    method: str
    params: Raw
    line: bytes
    """The received line, unmodified."""


class Notification(Struct, frozen=True, gc=False):
    """A notification: no response is expected."""

    method: str
    params: Raw
    line: bytes


class ResultResponse(Struct, frozen=True, gc=False):
    """A successful response. Its result may be ``null``."""

    id: Id
    result: Raw
    line: bytes


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """An error object; `code` is `codes.UNKNOWN` if there was no usable one."""

    code: int
    message: str
    data: Any = None


class ErrorResponse(Struct, frozen=True):
    """An error response. `id` is None if the response does not name its request."""

    id: Id | None
    error: ErrorObject
    line: bytes


class Malformed(Struct, frozen=True):
    """An invalid line. `code` is the error code with which an agent answers it; None if nothing is
    answered.

    `id` is set if the line is recognisably a response, although an invalid one: the id of the
    request that the line responds to.
    """

    line: bytes
    code: int | None
    reason: str
    id: Id | None = None


Message: TypeAlias = Request | Notification | ResultResponse | ErrorResponse | Malformed


class Envelope(Struct, gc=False):
    """Any message on the wire, decoded in one pass with its bodies left raw.

    A `jsonrpc` member is neither required nor checked, and unknown members are ignored: real
    programs leave out the former and add the latter.
    """

    # Limited to 64 bits because that is what the protocols allow and what can be sent back.
    id: (
        Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
        | Annotated[str, Meta(max_length=MAX_ID_LENGTH)]
        | None
        | UnsetType
    ) = UNSET
    # A method of null is treated as absent: some programs write every member into every message.
    method: str | None = None
    params: Raw = NO_PARAMS
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


decode_envelope = msgspec.json.Decoder(Envelope).decode

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Everything the decoder raises for bytes that do not match the type."""

_NULL: Final = Raw(b"null")


def decode(line: bytes) -> Message:
    """Decode one line. Never raises: an invalid line is returned as `Malformed`."""
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
    """Return the response in an envelope without a method, or `Malformed` if it is not a valid
    response."""
    id = None if envelope.id is UNSET else envelope.id
    # Some programs send `"error": null` with a result, as an older version of JSON-RPC requires.
    if envelope.error is not UNSET and envelope.error != _NULL:
        return ErrorResponse(id, _error_object(envelope.error), line)
    if envelope.result is UNSET:
        return Malformed(line, codes.INVALID_REQUEST, "no method, result or error", id)
    if id is None:
        return Malformed(line, None, "a response needs an id")
    return ResultResponse(id, envelope.result, line)


def null_id(line: bytes) -> Malformed:
    """Return `Malformed` for a request with a null id: no response could name such a request."""
    return Malformed(line, codes.INVALID_REQUEST, "a request must not have the id null")


def reread(line: bytes) -> Envelope | Malformed:
    """Return the envelope of a line that `decode_envelope` rejected, if the line can be repaired;
    otherwise `Malformed`, with what is wrong.

    Only one thing is repaired: an unpaired surrogate, which JSON allows and the decoder does not.
    Programs that stream text in UTF-16 units send it when they split an emoji. Such a character
    must not cost the whole message, or a response that a caller waits for. It is not repaired in an
    id (nor is an id accepted that may have contained one), because the response has to carry
    exactly the same id.
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
    """Return `Malformed` with why a line is invalid, and how an agent answers it (`code`)."""
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
        # Responding to a response could start an endless exchange of errors.
        return Malformed(line, None, "a response with an invalid id")
    return Malformed(line, codes.INVALID_REQUEST, "the id or the method is invalid")


_WHOLE_PAIR_SIZE: Final = len(b"\\ud83d\\ude00")
# Every escape is matched whole, so that the second half of an escaped backslash or of a surrogate
# pair is never taken for the beginning of one.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|u[dD][c-fC-F][0-9a-fA-F]{2}|.)"
)


def mend(text: bytes) -> bytes:
    """Return JSON text with the escape of every unpaired surrogate replaced by that of the
    replacement character.

    Returns the same object if the text has no escape that could be a surrogate.
    """
    return _ESCAPE.sub(_mended, text) if b"\\ud" in text or b"\\uD" in text else text


def _mended(escape: re.Match[bytes]) -> bytes:
    text = escape[0]
    return text if len(text) in (2, _WHOLE_PAIR_SIZE) else b"\\ufffd"


_NO_MESSAGE: Final = "an error object without a message"


class _LooseError(Struct):
    code: Raw = _NULL
    message: Raw = _NULL
    data: Raw = _NULL


_decode_loose_error = msgspec.json.Decoder(_LooseError).decode


def _error_object(raw: Raw) -> ErrorObject:
    """Read an error object of any shape. A value that cannot be its code or message is kept in
    `data`."""
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
    """Return the decoded value of an untyped body, or its text if it cannot be decoded."""
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


# The constant member `"jsonrpc": "2.0"` is a struct tag, so writing it costs nothing.
class _Call2(_Call, tag_field="jsonrpc", tag="2.0"):
    pass


class _Tell2(_Tell, tag_field="jsonrpc", tag="2.0"):
    pass


class _Answer2(_Answer, tag_field="jsonrpc", tag="2.0"):
    pass


class _Refusal2(_Refusal, tag_field="jsonrpc", tag="2.0"):
    pass


_encode = msgspec.json.Encoder().encode

# Ints, because searching bytes for an int is ten times as fast as searching for bytes.
_NEWLINE: Final = 0x0A
_RETURN: Final = 0x0D


class Reserved(NamedTuple):
    """A field that must never be sent: a dialect's values use it only in memory. Its name (`text`)
    is searched for in the encoded message, which is nearly free; checking every value before
    encoding would cost more than encoding it."""

    text: bytes
    clear: Callable[[Any], Any]
    """Returns a body with the contents of the field moved to where they belong on the wire. The
    result is encoded again."""


class Writer:
    """Encodes the messages of one end, with or without the `jsonrpc` member. Lines have no newline
    yet.

    `params` and `result` may be anything msgspec can encode, including `Raw`; ``UNSET`` (and
    `NO_PARAMS`, so that a message can be forwarded) leaves `params` out. Raises `UsageError` for
    what cannot be encoded.
    """

    __slots__ = ("_answer", "_call", "_clear", "_first", "_refusal", "_reserved", "_tell")

    def __init__(self, *, jsonrpc: bool = True, reserved: Reserved | None = None) -> None:
        self._reserved = b"" if reserved is None else reserved.text
        # The marker's first byte is searched for first: that takes a fifth of the time.
        self._first = 0 if reserved is None else reserved.text[0]
        self._clear = None if reserved is None else reserved.clear
        self._call: type[_Call] = _Call2 if jsonrpc else _Call
        self._tell: type[_Tell] = _Tell2 if jsonrpc else _Tell
        self._answer: type[_Answer] = _Answer2 if jsonrpc else _Answer
        self._refusal: type[_Refusal] = _Refusal2 if jsonrpc else _Refusal

    # `_line` is inlined in these three: nothing else runs as often.

    def request(self, id: Id, method: str, params: Any = UNSET) -> bytes:
        try:
            line = _encode(self._call(id, method, UNSET if params is NO_PARAMS else params))
        except _UNWRITABLE as error:
            raise _unwritable(error, method) from error
        if _NEWLINE in line or _RETURN in line:
            line = _on_one_line(line)
        if self._clear is not None and self._first in line and self._reserved in line:
            line = _line(self._call(id, method, self._clear(params)))
        return line

    def notification(self, method: str, params: Any = UNSET) -> bytes:
        try:
            line = _encode(self._tell(method, UNSET if params is NO_PARAMS else params))
        except _UNWRITABLE as error:
            raise _unwritable(error, method) from error
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
"""Precedes the params in a notification line of a `Writer`. Only constants and the method come
before it, and quotes in a method are escaped, so the first occurrence is the right one."""

BACKSLASH: Final = 0x5C
"""The first byte of every JSON escape. A line without it need not be passed to `mend`."""


def _line(message: Struct) -> bytes:
    try:
        line = _encode(message)
    except _UNWRITABLE as error:
        raise _unwritable(error) from error
    return _on_one_line(line) if _NEWLINE in line or _RETURN in line else line


_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)


def _unwritable(error: Exception, method: str = "") -> UsageError:
    what = f"the message {method!r}" if method else "the message"
    return UsageError(f"{what} cannot be written as JSON: {error}")


def _on_one_line(line: bytes) -> bytes:
    """Replace line breaks, because a raw body may have been pretty-printed.

    A line break in JSON is always white space, since inside a string it is escaped. Some readers
    take a lone carriage return for the end of a line.
    """
    return line.replace(b"\n", b" ").replace(b"\r", b" ")
