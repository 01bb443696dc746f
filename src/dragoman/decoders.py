"""Decode JSON to typed values, from any thread.

msgspec analyses a type when it is first used, without a lock (seen in version 0.22). A second
thread that uses the type at the same time, even as part of another type, reads uninitialized
memory, and the process crashes with a segmentation fault. So types are analysed here, one after the
other. `dialects` has no lock, because it does no I/O: there, each module analyses its types when it
is imported (`dialects.analyse`). `wire.messages` lists the errors that decoding raises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Raw

T = TypeVar("T")

Json: TypeAlias = bytes | bytearray | memoryview | str | Raw

_lock: Final = threading.Lock()
_decoders: Final[dict[Any, Callable[[Any], Any]]] = {}
"""Decoders by type. Each type here is completely analysed, with all types that it contains."""

Hook: TypeAlias = Callable[[type, Any], Any]


@overload
def typed_decoder(hint: type[T], *, dec_hook: Hook | None = None) -> Callable[[Json], T]: ...
@overload
def typed_decoder(hint: Any, *, dec_hook: Hook | None = None) -> Callable[[Json], Any]: ...
def typed_decoder(hint: Any, *, dec_hook: Hook | None = None) -> Callable[[Json], Any]:
    """Return a function that decodes JSON to the type `hint`, and raises one of the errors in
    `wire.messages.UNDECODABLE` if it cannot. msgspec calls `dec_hook` for types that it does not
    support."""
    with _lock:
        return msgspec.json.Decoder(hint, dec_hook=dec_hook).decode


def _known(hint: Any) -> Callable[[Any], Any]:
    decode = _decoders.get(hint)
    if decode is None:
        decode = _decoders[hint] = typed_decoder(hint)
    return decode


@overload
def decode_typed(data: Json, hint: type[T]) -> T: ...
@overload
def decode_typed(data: Json, hint: Any) -> Any: ...
def decode_typed(data: Json, hint: Any) -> Any:
    """Decode JSON to the type `hint`. Raises one of the errors in `wire.messages.UNDECODABLE` if
    it cannot."""
    return _known(hint)(data)


@overload
def convert_typed(
    value: Any, hint: type[T], *, strict: bool = True, from_attributes: bool = False
) -> T: ...
@overload
def convert_typed(
    value: Any, hint: Any, *, strict: bool = True, from_attributes: bool = False
) -> Any: ...
def convert_typed(
    value: Any, hint: Any, *, strict: bool = True, from_attributes: bool = False
) -> Any:
    """Convert decoded JSON or TOML (dict, list, str …) to the type `hint`. Raises
    `msgspec.ValidationError` if the value is not of that type."""
    _known(hint)
    return msgspec.convert(value, hint, strict=strict, from_attributes=from_attributes)
