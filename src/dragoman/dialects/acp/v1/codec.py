"""Decode and encode values of the protocol.

There are two decoders: the fast one is a msgspec decoder per type that accepts exactly what this
version knows; if it refuses, the tolerant one is used (`tolerant`). Methods are in `methods`.
Decoding raises `msgspec.ValidationError` (a `ValueError`) and nothing else, whatever the bytes.
Encoding is msgspec's, with a second pass that puts unknown fields and objects back where they were
found.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, Struct

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1.shape import EXTRA, Kept, Unknown, Wire
from dragoman.wire.messages import UNDECODABLE, Reserved, mend

T = TypeVar("T")


class _SessionRef(Struct, rename="camel"):
    session_id: str | None = None


_about: Final = msgspec.json.Decoder(_SessionRef).decode


def session_of(params: Raw) -> str | None:
    """Return the session id in params, without decoding anything else. None if they have none or
    cannot be decoded."""
    try:
        return _about(params).session_id
    except UNDECODABLE:
        return None


def _hook(hint: type, value: Any) -> Any:
    """Decode a union without tags, which msgspec cannot do. Raises `msgspec.ValidationError` for a
    field with the reserved name of `extra`."""
    if hint is Kept:
        raise msgspec.ValidationError(f"`{EXTRA}` is reserved")
    return convert(value, hint)


class _Decoders(dict[Any, Any]):
    """A decoder per type, created on first use: most programs use few. If two threads create the
    same one, either can be kept."""

    def __missing__(self, hint: Any) -> Any:
        decode = msgspec.json.Decoder(hint, dec_hook=_hook).decode
        self[hint] = decode
        return decode


_decoders = _Decoders()


@overload
def decode(data: bytes | bytearray | memoryview | Raw, hint: type[T]) -> T: ...
@overload
def decode(data: bytes | bytearray | memoryview | Raw, hint: Any) -> Any: ...
def decode(data: bytes | bytearray | memoryview | Raw, hint: Any) -> Any:
    """Decode JSON text to the type `hint`, a type of this package or a union of them.

    Empty input and null stand for the empty object, since both are used for "no parameters" and "no
    result". Raises `msgspec.ValidationError`.
    """
    try:
        return _decoders[hint](data)
    except UNDECODABLE:
        return _decode_tolerantly(data, hint)


def decoder(hint: type[T]) -> Callable[[bytes | Raw], T]:
    """Return `decode` bound to one type, for callers that decode it often."""
    fast: Callable[[bytes | Raw], T] | None = None

    def decode_one(data: bytes | Raw) -> T:
        nonlocal fast
        if fast is None:
            fast = _decoders[hint]
        try:
            return fast(data)
        except UNDECODABLE:
            value: T = _decode_tolerantly(data, hint)
            return value

    return decode_one


def _decode_tolerantly(data: Any, hint: Any) -> Any:
    # Half an emoji in a chunk of streamed text must not lose the chunk.
    text = mend(bytes(data))
    try:
        value = msgspec.json.decode(text) if text else None
    except RecursionError:
        raise msgspec.ValidationError("JSON is nested too deeply") from None
    except UNDECODABLE as error:
        raise msgspec.ValidationError(str(error)) from None
    return convert({} if value is None else value, hint)


@overload
def convert(value: Any, hint: type[T]) -> T: ...
@overload
def convert(value: Any, hint: Any) -> Any: ...
def convert(value: Any, hint: Any) -> Any:
    """Convert decoded JSON (dict, list, str …) to the type `hint`.

    Parts of the given value are kept, not copied. Raises `msgspec.ValidationError`.
    """
    # Not at the top: in many conversations the strict decoder refuses nothing.
    from dragoman.dialects.acp.v1 import tolerant

    try:
        return tolerant.read(value, hint)
    except tolerant.Malformed as malformed:
        raise msgspec.ValidationError(malformed.sentence()) from None


_encode = msgspec.json.Encoder().encode
_EXTRA_BYTES = EXTRA.encode()


def encode(value: Any) -> bytes:
    """Encode a value of the protocol as JSON text.

    Raises `msgspec.EncodeError` for what JSON cannot represent (lone surrogates, endless nesting),
    and `TypeError` for objects that are not values of the protocol.
    """
    try:
        data = _encode(value)
        # Search for the marker's first byte first: that takes a fifth of the time, and usually
        # finds nothing.
        if _EXTRA_BYTES[0] in data and _EXTRA_BYTES in data:
            data = _encode(_flatten(value))
    except (UnicodeEncodeError, RecursionError) as error:
        raise msgspec.EncodeError(str(error)) from None
    return data


def _flatten(value: Any) -> Any:
    """Return the value with the entries of every `extra` next to the other fields of its object.

    Descends into values of the protocol only: `_meta` and similar fields hold plain JSON, which may
    contain the reserved name.
    """
    if isinstance(value, Unknown):
        return value.raw
    if isinstance(value, Wire):
        return _flatten_struct(value)
    if isinstance(value, list | tuple) and any(isinstance(item, Struct) for item in value):
        return [_flatten(item) for item in value]
    if isinstance(value, dict) and any(isinstance(item, Struct) for item in value.values()):
        return {key: _flatten(item) for key, item in value.items()}
    return value


def _flatten_struct(value: Wire) -> dict[str, Any]:
    config = value.__struct_config__
    out: dict[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}
    for name, wire_name, default, factory in _layout(type(value)):
        item = getattr(value, name)
        # These are msgspec's own rules for leaving out a default.
        if item is default or item is UNSET or (type(item) is factory and not item):
            continue
        out[wire_name] = _flatten(item)
    for key, item in (value.extra or {}).items():
        out.setdefault(key, item)
    return out


RESERVED: Final = Reserved(_EXTRA_BYTES, _flatten)
"""For `ConnectionSettings.reserved`: with it, a connection accepts values of the protocol as params
and results, and does the work of `encode` on the whole message in one pass."""


@functools.cache
def _layout(struct: type[Wire]) -> tuple[tuple[str, str, Any, Any], ...]:
    """Return the name, wire name, default and default factory of each field except `extra`. The
    factory is None unless it is `list` or `dict`, whose empty values may be omitted."""
    return tuple(
        (
            info.name,
            info.encode_name,
            info.default,
            info.default_factory if info.default_factory in (list, dict) else None,
        )
        for info in msgspec.structs.fields(struct)
        if info.name != "extra"
    )


analyse(__name__)
