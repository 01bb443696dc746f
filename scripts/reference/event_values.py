"""The events and their components, for docs/reference/events.md: each field with type and meaning.

Everything comes from `dragoman.events`. Types are named for readers of JSON and of Python.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterator
from typing import Any, Final, Literal, Union

import msgspec

from dragoman.events import model, parts
from dragoman.events.words import Outcome
from scripts.reference.members import members, paragraphs
from scripts.reference.toml_keys import either

EVENTS: Final[tuple[type[msgspec.Struct], ...]] = typing.get_args(model.Event)
SHARED: Final = len(msgspec.structs.fields(model.Base))

COMPONENTS: Final[tuple[type[msgspec.Struct], ...]] = (
    *(model.Source, parts.PeerInfo, parts.Capabilities, parts.AuthMethod),
    *(parts.Text, parts.Image, parts.Audio, parts.Link, parts.Resource, parts.OtherBlock),
    *(parts.TerminalRef, parts.FileChange, parts.Location, parts.PlanEntry),
    *(parts.SessionOption, parts.Choice, parts.SlashCommand, parts.PermissionOption),
    *(parts.Usage, parts.Cost, parts.Limit, parts.Failure),
)
"""The structs in fields of events, in the order of the page."""


UNIONS: Final = {"Block": parts.Block, "ToolItem": parts.ToolItem}
"""Unions of components that have a name of their own."""


def lines() -> Iterator[str]:
    """The generated part of the page, line by line."""
    yield from ("", "## Fields of every event")
    yield from _fields(model.Base, 0)
    yield from ("", "## Fields of each event")
    for event in EVENTS:
        yield from _struct(event, SHARED)
    yield from ("", "## Components", "")
    yield "Objects in the fields of events. In Python, their classes are in `dragoman.events` too."
    for name, kind in UNIONS.items():
        members_of = ", ".join(_link(each) for each in typing.get_args(kind))
        yield from ("", f"### {name}", "", f"One of {members_of}. In JSON, `type` says which.")
    for component in COMPONENTS:
        yield from _struct(component, 0)


def index() -> Iterator[str]:
    """The table of all events, line by line."""
    yield from ("| event | when |", "|---|---|")
    for event in EVENTS:
        what = " ".join(paragraphs(event.__doc__))
        yield f"| [`{event.__name__}`](#{event.__name__.lower()}) | {what} |"


def _struct(struct: type[msgspec.Struct], first: int) -> Iterator[str]:
    yield from ("", f"### {struct.__name__}")
    for paragraph in paragraphs(struct.__doc__):
        yield from ("", paragraph)
    yield from _fields(struct, first)


def _fields(struct: type[msgspec.Struct], first: int) -> Iterator[str]:
    told = {member.name: member.what for member in members(struct)}
    rows = []
    for each in msgspec.structs.fields(struct)[first:]:
        is_optional = each.type is Any and each.default is msgspec.UNSET
        rows.append(
            (each.name, type_name(each.type) + ("; may be left out" if is_optional else ""))
        )
    tag = struct.__struct_config__.tag
    if tag and not issubclass(struct, model.Base):
        rows = [("type", f'`"{tag}"`; in JSON only'), *rows]
    yield from ("", "| field | type and meaning |", "|---|---|")
    for name, kind in rows:
        what = told.get(name, "")
        yield f"| `{name}` | {kind}{'<br>' if what else ''}{what} |"


def type_name(kind: Any) -> str:
    """Return the name of a type in JSON."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return "any value"
    if origin is Literal:
        return f"string: {either([f'`{each}`' for each in arguments])}"
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is tuple:
        return f"list of {_plural(arguments[0])}"
    if origin is dict:
        return f"object of {_plural(arguments[1])}"
    if isinstance(kind, type) and issubclass(kind, Outcome):
        return "string: see [the end of a turn](#the-end-of-a-turn)"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"string: {either([f'`{each.value}`' for each in kind])}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _link(kind)
    return {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        bytes: "bytes; only in Python",
    }[kind]


def _union(arguments: tuple[Any, ...]) -> str:
    given = [each for each in arguments if each not in (types.NoneType, msgspec.UnsetType)]
    names = [name for name, kind in UNIONS.items() if set(given) == set(typing.get_args(kind))]
    shown = _named(names[0]) if names else either([type_name(each) for each in given])
    if types.NoneType in arguments:
        shown += "; may be null"
    if msgspec.UnsetType in arguments:
        shown += "; may be left out"
    return shown


def _plural(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return f"lists of {_plural(typing.get_args(kind)[0])}"
    scalars = {str: "strings", float: "numbers", int: "integers"}
    return scalars[kind] if kind in scalars else type_name(kind)


def _link(struct: type[msgspec.Struct]) -> str:
    return _named(struct.__name__)


def _named(name: str) -> str:
    return f"[`{name}`](#{name.lower()})"
