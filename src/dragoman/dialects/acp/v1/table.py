"""What a method is: its name, direction, kind, types and gate.

Owns the shape of the table of methods and the rule by which a gate is open. It knows no method by
name: those are in `methods` and `unstable.methods`. It calls nothing; clients and agents are built
on it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects.acp.v1 import codec
from dragoman.dialects.acp.v1.shape import Wire

P = TypeVar("P")
R = TypeVar("R")

Side: TypeAlias = Literal["client", "agent"]
Direction: TypeAlias = Literal["client_to_agent", "agent_to_client", "both"]
Kind: TypeAlias = Literal["request", "notification"]
Stability: TypeAlias = Literal["stable", "unstable", "legacy"]
Body: TypeAlias = bytes | bytearray | memoryview | Raw


class Gate(Struct, frozen=True):
    """The capability a method needs: announced by `side`, at any one of `paths`.

    A path is dotted and in wire spelling, within `agentCapabilities` or `clientCapabilities`.
    """

    side: Side
    paths: tuple[str, ...]

    def is_open(self, capabilities: Wire) -> bool:
        """Whether the capabilities (of `side`) announce it: with true, or with an object."""
        return any(_announced(capabilities, path) for path in self.paths)


def _announced(capabilities: Wire, path: str) -> bool:
    value: Any = capabilities
    for name in path.split("."):
        if isinstance(value, Wire):
            attribute = _wire_names(type(value)).get(name)
            if attribute is not None:
                value = getattr(value, attribute)
            else:
                # A capability that only the unstable types have is still there, unread.
                value = (value.extra or {}).get(name)
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value is True or isinstance(value, Wire | dict)


@functools.cache
def _wire_names(struct: type[Wire]) -> dict[str, str]:
    return {info.encode_name: info.name for info in msgspec.structs.fields(struct)}


class Method(Struct, Generic[P, R], frozen=True):
    """One method. A notification has no result."""

    name: str
    direction: Direction
    kind: Kind
    params: Any
    result: Any = None
    gate: Gate | None = None
    stability: Stability = "stable"

    def decode_params(self, data: Body) -> P:
        """The parameters; none at all count as an empty object. Raises msgspec.ValidationError."""
        params: P = codec.decode(data, self.params)
        return params

    def decode_result(self, data: Body) -> R:
        """The result; null counts as an empty object. Raises msgspec.ValidationError."""
        result: R = codec.decode(data, self.result)
        return result


class MethodTable:
    """Methods by name. One name may stand for a request and for a notification."""

    def __init__(self, methods: Iterable[Method[Any, Any]]) -> None:
        self._methods = {(method.kind, method.name): method for method in methods}

    def __iter__(self) -> Iterator[Method[Any, Any]]:
        return iter(self._methods.values())

    def __len__(self) -> int:
        return len(self._methods)

    def request(self, name: str) -> Method[Any, Any] | None:
        """The request of this name, or None."""
        return self._methods.get(("request", name))

    def notification(self, name: str) -> Method[Any, Any] | None:
        """The notification of this name, or None."""
        return self._methods.get(("notification", name))
