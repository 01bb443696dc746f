"""Describe the keys of TOML files: type, default and meaning, as read from the source.

A file is described by msgspec Structs, one for each table.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Union

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo

from scripts.reference.members import members, paragraphs

MAX_CHOICES: Final = 5
"""Maximum number of values that the type of a key lists; the meaning lists more of them."""

REQUIRED: Final = "**required**"
NOT_SET: Final = "not set"
EMPTY: Final = "empty"

SIMPLE: Final = {REQUIRED: REQUIRED, NOT_SET: "optional", EMPTY: "optional"}
"""Defaults that a table shows in one word."""

Key = tuple[str, str, str, str]
"""Name, type, default and meaning of a key."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a TOML file."""

    name: str
    """The name, as in ``quirks``, or empty for the keys outside of any table."""
    struct: type[msgspec.Struct]
    array: bool = False
    """Whether a file may have several: ``[[name]]``."""
    intro: str = ""
    """Text in place of the docstring of the struct."""
    defaults: dict[str, str] = field(default_factory=dict)
    """What applies if a key is not set, where the struct does not say."""
    example: str = ""

    @property
    def heading(self) -> str:
        if not self.name:
            return "Top level"
        return f"`[[{self.name}]]`" if self.array else f"`[{self.name}]`"


def tables(described: Sequence[Table]) -> Iterator[str]:
    """Yield the lines about some tables, each with a heading, its keys and an example."""
    headings = {table.struct: table for table in reversed(described)}
    for table in described:
        yield from ("", f"### {table.heading}", "")
        yield table.intro or "\n\n".join(paragraphs(table.struct.__doc__))
        # Two columns, because a phone has no room for more.
        yield from ("", "| key | type, default and meaning |", "|---|---|")
        for name, kind, default, what in keys(table, headings):
            value = SIMPLE.get(default, f"default: {default}")
            yield f"| `{name}` | {kind}; {value}<br>{what.replace('|', '&#124;')} |"
        if table.example:
            yield from ("", "```toml", *table.example.strip().splitlines(), "```")


def keys(
    table: Table,
    headings: dict[Any, Table] | None = None,
    *,
    exclude: Callable[[Any], bool] = lambda kind: False,
) -> Iterator[Key]:
    """Yield each key of a table, in the order of the source, except those of some types."""
    told = {member.name: member.what for member in members(table.struct)}
    for each in msgspec.structs.fields(table.struct):
        if exclude(each.type):
            continue
        default = table.defaults.get(each.name) or default_of(each)
        yield each.name, type_name(each.type, headings), default, told[each.name]


def type_name(kind: Any, headings: dict[Any, Table] | None = None) -> str:
    """Return the name of a type, in TOML terms."""
    headings = headings or {}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if _is_struct(kind):
        return f"table {_link(headings[kind])}" if kind in headings else "table"
    if origin is Literal:
        return _words(arguments) or "string"
    if origin in (Union, types.UnionType):
        given = [each for each in arguments if each is not types.NoneType]
        return either([type_name(each, headings) for each in given])
    if origin is tuple:
        if arguments[0] in headings:
            return f"tables {_link(headings[arguments[0]])}"
        return "tables" if _is_struct(arguments[0]) else f"list of {_plural(arguments[0])}"
    if origin is dict:
        return "tables" if _is_struct(arguments[1]) else f"table of {_plural(arguments[1])}"
    return {bool: "boolean", int: "integer", float: "number", str: "string"}[kind]


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _link(table: Table) -> str:
    anchor = "".join(each for each in table.name.lower() if each.isalnum() or each in "_-")
    return f"[{table.heading}](#{anchor})"


def _plural(kind: Any) -> str:
    """Return the name of a type of several values: strings, or strings from a list."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _words(arguments) or "strings"
    if origin in (Union, types.UnionType):
        return either([_plural(each) for each in arguments])
    return {bool: "booleans", int: "integers", str: "strings"}[kind]


def _words(choices: Sequence[str]) -> str:
    """Return the possible values of a string; empty if there are too many for a type."""
    return either([f'`"{each}"`' for each in choices]) if len(choices) <= MAX_CHOICES else ""


def either(choices: Sequence[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def default_of(each: FieldInfo) -> str:
    """Return the default of a key as a reader of the page sees it."""
    if each.required:
        return REQUIRED
    return EMPTY if each.default is NODEFAULT else shown(each.default)


def shown(default: Any) -> str:
    if default is None or isinstance(default, msgspec.Struct):
        return NOT_SET
    if default in ((), ""):
        return EMPTY
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return f"`{json.dumps(default)}`"  # these values look the same in TOML
