"""Base classes of all protocol values.

Defines the base class `Wire`, the base class `Unknown` for union members that this version does not
know, and the marks that say how forgiving a field is. Decoding and encoding are in `codec`;
`tolerant` uses the marks.

Every field with a default is forgiving: a malformed value becomes the default and is kept in
`extra`, and bad items of a list are omitted. `STRICT`, `FORGIVING` and `NULL_IS_EMPTY` mark the
exceptions. Null in a field with a default always means that the field is absent.

Modules that define types do not use `from __future__ import annotations`: msgspec compiles every
word of a text annotation when a decoder is created, which took two thirds of the time for the first
message.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.dialects import analyse

EXTRA: Final = "$dragoman.extra"
"""The wire name of `extra`. It is never sent: `codec.encode` puts the entries of `extra` next to
the other fields instead."""

UNKNOWN_TAG: Final = "$dragoman.unknown"
"""The tag that a tagged union needs for its `Unknown` member. It is never sent."""

META: Final = "dragoman"
"""The key of dragoman's own entries in a `_meta`."""

DIALECT: Final = "dialect"
"""Under `META` of the agent's `agentInfo`: the dialect of the agent behind a gateway."""

KIND: Final = "kind"
"""Under `META` of a login method: the secret it takes, `password` or `oauth`."""

STOP: Final = "stopReason"
"""Under `META`: the agent's own stop reason, if one of the protocol's had to be sent instead."""

OUTCOME: Final = "outcome"
"""Under `META`, next to `STOP`: the meaning of that stop reason, if only its dialect knows it."""

SUMMED: Final = "summed"
"""Under `META` of a turn's usage: its total is a sum that the agent did not report."""

METADATA: Final = "metadata"
"""Under `META` of `session/new`: the metadata of the session, for an agent of another dialect."""

if TYPE_CHECKING:
    Kept: TypeAlias = dict[str, Any]
    Extra: TypeAlias = dict[str, Any] | None
else:

    class Kept:
        """A dict that only the tolerant decoder fills: if a peer sends the reserved name, it is
        treated like any other unknown field."""

    Extra = Kept


class Mark:
    """A mark in the annotation of a field, for the tolerant decoder."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


STRICT: Final = Mark("STRICT")
"""On a field with a default: a malformed value, or list item, makes the whole object malformed."""

FORGIVING: Final = Mark("FORGIVING")
"""On a required list: it must be present, but a malformed list counts as empty and bad items are
omitted."""

NULL_IS_EMPTY: Final = Mark("NULL_IS_EMPTY")
"""On a required list: it must be present, but null means the empty list."""


class Alias(Mark):
    """The mark of a required field that has another wire name, which is read if the proper one is
    missing."""


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
    """Base class of every object of the protocol.

    `meta` is `_meta`, which the protocol reserves for extensions. `extra` holds everything else
    that was in the object: fields this version does not know, and malformed values of forgiving
    fields.
    """

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    extra: Extra = msgspec.field(default=None, name=EXTRA)


class Unknown(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A union member that this version does not know, kept whole in `raw`."""

    raw: Kept = msgspec.field(name=EXTRA)


class Family:
    """Base class of the types of a union without a tag. msgspec cannot decode such a union, so at
    run time the annotation is this class, and `member` chooses the type by looking at the object.
    """

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire] | type[Unknown]:
        """Return the type to decode the object as."""
        raise NotImplementedError


class Supported(Wire, frozen=True, kw_only=True):
    """Marks a supported feature: an empty object. Absent means not supported."""


def ours_in(meta: Any) -> Mapping[str, Any]:
    """Return dragoman's own entries in a `_meta`; empty if there are none."""
    if meta is None:
        # Most messages have none, and an isinstance check against an abstract class takes longer
        # than the rest.
        return {}
    ours = meta.get(META) if isinstance(meta, Mapping) else None
    return ours if isinstance(ours, Mapping) else {}


analyse(__name__)
