"""JSON of a given shape, for property tests: well formed, with parts left out, or with one part of
another shape.

The shapes are those of the dialects, so a field that is added there is generated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

texts = st.text(max_size=8)
plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=6,
)
# A single byte would not do: it is the same object every time, and lines are compared by identity.
noise = st.binary(min_size=2, max_size=12).filter(
    # A byte order mark at the beginning of a stream is not part of its first line.
    lambda data: not {*b"\r\n"} & {*data} and data.strip() != b"" and data[:1] != b"\xef"
)


def shaped(
    shape: Any, hints: Mapping[str, st.SearchStrategy[Any]], *, wild: bool = True
) -> st.SearchStrategy[Any]:
    """Values that look like `shape` on the wire. `hints` has better values for some fields, by
    their names on the wire; with `wild`, one in ten fields has an arbitrary value."""
    return _of(inspect.type_info(shape), hints, wild)


def _of(
    info: inspect.Type, hints: Mapping[str, st.SearchStrategy[Any]], wild: bool
) -> st.SearchStrategy[Any]:
    match info:
        case inspect.StructType():
            return _struct(info, hints, wild)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return st.lists(_of(item, hints, wild), max_size=2)
        case inspect.DictType(value_type=value):
            return st.dictionaries(texts, _of(value, hints, wild), max_size=2)
        case inspect.UnionType(types=types):
            return st.one_of(*(_of(each, hints, wild) for each in types))
        case inspect.StrType():
            return texts
        case inspect.IntType():
            return st.integers(-3, 3)
        case inspect.FloatType():
            return st.floats(-3, 103) | st.integers(-3, 103)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType() | inspect.RawType():
            return plain
        case _:
            raise NotImplementedError(info)


def _struct(
    info: inspect.StructType, hints: Mapping[str, st.SearchStrategy[Any]], wild: bool
) -> st.SearchStrategy[Any]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in info.fields:
        value = hints.get(field.encode_name)
        if value is None:
            value = _of(field.type, hints, wild)
        if wild:
            value = _sometimes_wild(value)
        (required if field.required else optional)[field.encode_name] = value
    if info.tag_field is not None:
        required[info.tag_field] = st.just(info.tag)
    return st.fixed_dictionaries(required, optional=optional)


def _sometimes_wild(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 9).flatmap(lambda chance: plain if chance == 0 else value)
