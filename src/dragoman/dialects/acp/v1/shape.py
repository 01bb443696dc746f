"""What every value of the protocol has in common.

Owns the base class `Wire`, the base class `Unknown` for members of a union that this version does
not know, and the marks that say how forgiving a field is. It knows no particular type, and does
not decode or encode: `codec` does, and `tolerant` reads the marks.

Every field with a default is forgiving: a value that is malformed there becomes the default and
is kept in `extra`, and bad items of a list are left out. `STRICT`, `FORGIVING` and `NULL_IS_EMPTY`
mark the exceptions. Null in a field with a default always means that the field is absent.

Modules that define types do without `from __future__ import annotations`: of an annotation that is
text, msgspec compiles every word when a decoder is made, and that was two thirds of what the first
message took.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

EXTRA: Final = "$dragoman.extra"
"""The name under which `extra` would stand on the wire. It never gets there: `codec.encode` puts
the entries of `extra` beside the other fields instead."""

UNKNOWN_TAG: Final = "$dragoman.unknown"
"""Stands where a tagged union needs a tag for its `Unknown` member. It never gets on the wire."""

META: Final = "dragoman"
"""Where in a `_meta` our own words stand."""

DIALECT: Final = "dialect"
"""Under `META` of the agent's `agentInfo`: what the agent behind a gateway speaks."""

KIND: Final = "kind"
"""Under `META` of a login method: what it takes, `password` or `oauth`."""

STOP: Final = "stopReason"
"""Under `META`: the agent's own stop reason, where the protocol's had to be sent in its place."""

OUTCOME: Final = "outcome"
"""Under `META`, beside `STOP`: what that word means, if only its dialect knows."""

SUMMED: Final = "summed"
"""Under `META` of a turn's usage: its total is a sum that the agent did not tell."""

METADATA: Final = "metadata"
"""Under `META` of `session/new`: the metadata of the session, for an agent of another dialect."""

if TYPE_CHECKING:
    Kept: TypeAlias = dict[str, Any]
    Extra: TypeAlias = dict[str, Any] | None
else:

    class Kept:
        """A dict that no decoder fills: only the tolerant path does, so a peer that sends the
        reserved name gets it treated like any other unknown field."""

    Extra = Kept


class Mark:
    """A note on a field's annotation for the tolerant path."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


STRICT: Final = Mark("STRICT")
"""On a field with a default: a malformed value fails the message, a bad item fails the list."""

FORGIVING: Final = Mark("FORGIVING")
"""On a required list: it must be there, but if malformed it is empty, and bad items are left
out."""

NULL_IS_EMPTY: Final = Mark("NULL_IS_EMPTY")
"""On a required list: it must be there, but null stands for the empty list."""


class Alias(Mark):
    """On a required field: another wire name that is read when the proper one is missing."""


class Wire(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
    rename="camel",
    gc=False,
):
    """The base of every object of the protocol.

    `meta` is `_meta`, the place the protocol gives to extensions. `extra` holds what else was in
    the object: fields this version does not know, and malformed values of forgiving fields.
    """

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    extra: Extra = msgspec.field(default=None, name=EXTRA)


class Unknown(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A member of a union that this version does not know, kept whole in `raw`."""

    raw: Kept = msgspec.field(name=EXTRA)


class Family:
    """The base of the types of a union whose members no tag tells apart.

    msgspec cannot decode such a union, so the annotation is this class at run time, and `member`
    chooses by looking at the object.
    """

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire] | type[Unknown]:
        """The type to read the object as."""
        raise NotImplementedError


class Supported(Wire, frozen=True, kw_only=True):
    """The mark of a supported feature: an empty object. Absent means not supported."""


def ours_in(meta: Any) -> Mapping[str, Any]:
    """Our own words in a `_meta`; empty if there are none."""
    if meta is None:
        # Most messages have none, and asking an abstract class takes longer than the rest.
        return {}
    ours = meta.get(META) if isinstance(meta, Mapping) else None
    return ours if isinstance(ours, Mapping) else {}
