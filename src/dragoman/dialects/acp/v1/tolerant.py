"""Tolerant decoder for what the strict decoder refused.

Implements the protocol's leniency rules: unknown fields are kept, unknown union members are kept
whole, malformed values of forgiving fields become the default, bad items of forgiving lists are
omitted, and null means absent. A required field that is missing or malformed is still an error. The
decoder is driven by the types and their marks (`shape`); `codec` calls it. A type is compiled once
into a `Table`: a reader for each type of JSON value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeGuard, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UnsetType

from dragoman.dialects.acp.v1.shape import (
    FORGIVING,
    NULL_IS_EMPTY,
    STRICT,
    Alias,
    Family,
    Unknown,
    Wire,
)

Read: TypeAlias = Callable[[Any], Any]
Table: TypeAlias = dict[type, Read]
Object: TypeAlias = type[Wire] | type[Unknown]

JSON_NAMES = {
    NoneType: "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "array",
    dict: "object",
}


class Malformed(Exception):
    """Raised for a value that does not fit; `path` leads to it, innermost step first. Never leaves
    `codec`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def sentence(self) -> str:
        """Format the reason and the path like msgspec does."""
        return f"{self.reason} - at `${''.join(reversed(self.path))}`" if self.path else self.reason


def read(value: Any, hint: Any) -> Any:
    """Convert the value to the type `hint`. Raises `Malformed`."""
    return apply(compile_table(hint), value)


def apply(table: Table, value: Any) -> Any:
    """Convert a value with the reader that the table has for its JSON type. Raises `Malformed` if
    there is none, or the reader refuses the value."""
    reader = table.get(type(value))
    if reader is None:
        expected = " | ".join(JSON_NAMES[kind] for kind in table)
        found = JSON_NAMES.get(type(value), type(value).__name__)
        raise Malformed(f"Expected `{expected}`, got `{found}`")
    return reader(value)


@functools.cache
def compile_table(hint: Any) -> Table:
    """Compile the table for `apply` that reads values of this type."""
    if hint is Any:
        return dict.fromkeys(JSON_NAMES, _same)
    if hint is float:
        return {float: _same, int: _to_float}
    if hint is UnsetType:
        return {}
    if hint in (str, int, bool, NoneType):
        return {hint: _same}
    origin = get_origin(hint)
    if origin is Annotated:
        return compile_table(get_args(hint)[0])
    if origin in (Union, UnionType):
        return _union_table(get_args(hint))
    if origin is Sequence:
        return {list: functools.partial(_read_list, compile_table(get_args(hint)[0]))}
    if origin in (dict, Mapping):
        return {dict: functools.partial(_read_dict, compile_table(get_args(hint)[1]))}
    if _is_object(hint):
        return {dict: functools.partial(_read_tagged, _tag_field(hint), *_members([hint]))}
    if isinstance(hint, type) and issubclass(hint, Family):
        return {dict: functools.partial(_read_family, hint)}
    raise TypeError(f"cannot read values of {hint!r}")


def _union_table(hints: tuple[Any, ...]) -> Table:
    structs = [hint for hint in hints if _is_object(hint)]
    table: Table = {}
    for hint in hints:
        if hint not in structs:
            for kind, reader in compile_table(hint).items():
                # An integer that fits both `int` and `float` stays an integer.
                if kind not in table or hint is int:
                    table[kind] = reader
    if structs:
        table[dict] = functools.partial(_read_tagged, _tag_field(structs[0]), *_members(structs))
    return table


def _is_object(hint: Any) -> TypeGuard[Object]:
    return isinstance(hint, type) and issubclass(hint, Wire | Unknown)


def _tag_field(struct: Object) -> str | None:
    return struct.__struct_config__.tag_field


def _members(structs: Sequence[Object]) -> tuple[dict[Any, type[Wire]], type[Unknown] | None]:
    """Return the known members by tag, and the type for the unknown ones."""
    known: dict[Any, type[Wire]] = {}
    unknown: type[Unknown] | None = None
    for struct in structs:
        if issubclass(struct, Unknown):
            unknown = struct
        else:
            known[struct.__struct_config__.tag] = struct
    return known, unknown


def _same(value: Any) -> Any:
    return value


def _to_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Malformed("Number out of range") from None


def _read_list(table: Table, value: list[Any]) -> list[Any]:
    items = []
    for index, item in enumerate(value):
        try:
            items.append(apply(table, item))
        except Malformed as malformed:
            malformed.path.append(f"[{index}]")
            raise
    return items


def _read_good_items(table: Table, value: list[Any]) -> list[Any]:
    items = []
    for item in value:
        try:
            items.append(apply(table, item))
        except Malformed:
            continue
    return items


def _read_dict(table: Table, value: dict[str, Any]) -> dict[str, Any]:
    entries = {}
    for key, item in value.items():
        try:
            entries[key] = apply(table, item)
        except Malformed as malformed:
            malformed.path.append("[...]")
            raise
    return entries


def _read_tagged(
    tag_field: str | None,
    known: dict[Any, type[Wire]],
    unknown: type[Unknown] | None,
    value: dict[str, Any],
) -> Any:
    """Read an object as the member of a union that its tag names.

    If only one tagged type is possible, the tag may be missing, but a different tag is an error.
    """
    if tag_field is None:
        return _read_struct(known[None], value)
    if len(known) == 1 and unknown is None and tag_field not in value:
        return _read_struct(next(iter(known.values())), value)
    if tag_field not in value:
        raise Malformed(f"Object missing required field `{tag_field}`")
    tag = value[tag_field]
    if not isinstance(tag, str):
        malformed = Malformed(f"Expected `str`, got `{JSON_NAMES[type(tag)]}`")
        malformed.path.append(f".{tag_field}")
        raise malformed
    struct = known.get(tag)
    if struct is not None:
        return _read_struct(struct, value)
    if unknown is not None:
        return unknown(raw=value)
    malformed = Malformed(f"Invalid value {tag!r}")
    malformed.path.append(f".{tag_field}")
    raise malformed


def _read_family(family: type[Family], value: dict[str, Any]) -> Any:
    member = family.member(value)
    return member(raw=value) if issubclass(member, Unknown) else _read_struct(member, value)


class _Field:
    """How to read one field of a type."""

    def __init__(self, info: msgspec.structs.FieldInfo) -> None:
        marks = get_args(info.type)[1:] if get_origin(info.type) is Annotated else ()
        self.name = info.name
        self.wire_name = info.encode_name
        self.required = info.default is NODEFAULT and info.default_factory is NODEFAULT
        self.forgiving = FORGIVING in marks if self.required else STRICT not in marks
        self.null_is_empty = NULL_IS_EMPTY in marks
        self.aliases = tuple(mark.text for mark in marks if isinstance(mark, Alias))
        self.table = compile_table(info.type)
        if self.forgiving and list in self.table:
            # Only lists of the protocol's own types are read item by item; `Any` accepts lists as
            # well.
            reader = self.table[list]
            if isinstance(reader, functools.partial) and reader.func is _read_list:
                good_items = functools.partial(_read_good_items, *reader.args)
                self.table = {**self.table, list: good_items}


@functools.cache
def _fields(struct: type[Wire]) -> dict[str, _Field]:
    """Return the fields of a type by wire name, without `extra`, which is not on the wire."""
    infos = (info for info in msgspec.structs.fields(struct) if info.name != "extra")
    return {info.encode_name: _Field(info) for info in infos}


def _read_struct(struct: type[Wire], value: dict[str, Any]) -> Wire:
    fields = _fields(struct)
    tag_field = struct.__struct_config__.tag_field
    arguments: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, item in value.items():
        field = fields.get(key)
        if field is not None:
            _read_field(field, key, item, arguments, extra)
        elif key != tag_field:
            extra[key] = item
    for field in fields.values():
        if field.required and field.name not in arguments:
            _read_alias(field, arguments, extra)
    try:
        return struct(**arguments, extra=extra or None)
    except ValueError as error:
        raise Malformed(str(error)) from None


def _read_field(
    field: _Field, key: str, item: Any, arguments: dict[str, Any], extra: dict[str, Any]
) -> None:
    """Read one field into `arguments`. An unreadable value is kept in `extra` if the field is
    forgiving; otherwise raises `Malformed`."""
    if item is None and NoneType not in field.table:
        if not field.required:
            return
        if field.null_is_empty:
            arguments[field.name] = []
            return
    try:
        arguments[field.name] = apply(field.table, item)
    except Malformed as malformed:
        if not field.forgiving:
            malformed.path.append(f".{key}")
            raise
        extra[key] = item
        if field.required:
            arguments[field.name] = []


def _read_alias(field: _Field, arguments: dict[str, Any], extra: dict[str, Any]) -> None:
    for alias in field.aliases:
        if alias in extra:
            _read_field(field, alias, extra.pop(alias), arguments, extra)
            return
    raise Malformed(f"Object missing required field `{field.wire_name}`")
