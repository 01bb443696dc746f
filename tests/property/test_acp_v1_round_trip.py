"""Properties of decoding and encoding again: fields and values that this version does not know are
preserved."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.acp import v1
from tests.amounts import SOME
from tests.unit.dialects.acp.v1 import samples

PAIRS = samples.STABLE + samples.UNSTABLE

free_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)
texts = st.text(max_size=8)
# Sampled, because drawing deep values takes longer than all the decoding of a test.
values: st.SearchStrategy[Any] = st.sampled_from(
    [None, False, 0, -1.5, 2**70, "", "é👋", [], {}, [None, {"a": []}], {"type": "text", "": 1}]
)

DISCRIMINATORS = ("sessionUpdate", "type", "outcome", "mode", "action", "state")
"""The fields that distinguish the members of the protocol's unions."""

OPEN_VALUES = (
    "stopReason",
    "kind",
    "status",
    "priority",
    "severity",
    "category",
    "format",
    "currency",
    "archived",
    "apiType",
)
"""Fields with known values in which other values may occur; `state` and `mode` are above."""

LISTS = {
    "authMethods",
    "configOptions",
    "availableModes",
    "availableModels",
    "sessions",
    "entries",
    "availableCommands",
    "locations",
    "audience",
    "accounts",
    "supported",
    "vars",
}
"""Fields whose lists survive invalid items, in any type."""


def round_trip(message: Any, hint: Any) -> Any:
    return json.loads(v1.encode(v1.decode(json.dumps(message).encode(), hint)))


def objects(value: Any, name: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Yield every object of the protocol in a message, with the name of its field."""
    found: list[tuple[str, dict[str, Any]]] = []
    if isinstance(value, dict):
        found.append((name, value))
        for key, item in value.items():
            if key not in ("_meta", "rawInput", "rawOutput", "params", "result", "data"):
                found.extend(objects(item, key))
    elif isinstance(value, list):
        for item in value:
            found.extend(objects(item, name))
    return found


def extensible(message: Any) -> list[dict[str, Any]]:
    """Return the objects that may have unknown fields. A map of the protocol has none: each of its
    entries has a meaning."""
    maps = ("properties", "env", "headers", "content")
    return [item for name, item in objects(message) if name not in maps or "type" in item]


def fields(message: Any, names: Iterable[str]) -> list[tuple[dict[str, Any], str]]:
    """Return the places in the message where one of these fields has a text."""
    return [
        (item, name)
        for _, item in objects(message)
        for name in names
        if isinstance(item.get(name), str)
    ]


def lists(message: Any) -> list[list[Any]]:
    """Return the lists in the message that survive invalid items."""
    return [
        item[name]
        for _, item in objects(message)
        for name in sorted(item.keys() & LISTS)
        if isinstance(item[name], list)
    ]


def with_some(find: Callable[[Any], list[Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Return a type, and a message of it in which `find` finds something."""
    found = [pair for pair in PAIRS if find(pair[1])]
    return st.sampled_from(found).map(copy.deepcopy)


@SOME
@given(with_some(extensible), st.data())
def test_unknown_fields_and_meta_survive_anywhere(
    pair: tuple[Any, Any], data: st.DataObject
) -> None:
    hint, message = pair
    place = data.draw(st.sampled_from(extensible(message)))
    place["x-" + data.draw(texts)] = data.draw(values)
    place["_meta"] = {data.draw(texts): data.draw(values)}
    assert round_trip(message, hint) == message


@SOME
@given(with_some(lambda message: fields(message, DISCRIMINATORS)), st.data())
def test_unknown_members_of_unions_survive_whole(
    pair: tuple[Any, Any], data: st.DataObject
) -> None:
    hint, message = pair
    item, name = data.draw(st.sampled_from(fields(message, DISCRIMINATORS)))
    item[name] = "x-" + data.draw(texts)
    item["x-new"] = data.draw(values)
    assert round_trip(message, hint) == message


@SOME
@given(with_some(lambda message: fields(message, OPEN_VALUES)), st.data())
def test_unknown_values_of_enumerations_survive(pair: tuple[Any, Any], data: st.DataObject) -> None:
    hint, message = pair
    item, name = data.draw(st.sampled_from(fields(message, OPEN_VALUES)))
    item[name] = data.draw(texts)
    assert round_trip(message, hint) == message


@SOME
@given(with_some(lists), st.data())
def test_bad_items_leave_the_rest_of_a_forgiving_list_alone(
    pair: tuple[Any, Any], data: st.DataObject
) -> None:
    hint, message = pair
    expected = copy.deepcopy(message)
    place = data.draw(st.sampled_from(lists(message)))
    bad: st.SearchStrategy[Any] = st.sampled_from([None, 7, True, [], {}])
    for _ in range(data.draw(st.integers(1, 3))):
        place.insert(data.draw(st.integers(0, len(place))), data.draw(bad))
    assert round_trip(message, hint) == expected


@SOME
@given(texts, texts)
def test_any_text_survives_in_a_chunk(session_id: str, value: str) -> None:
    notification = v1.agent_text(session_id, value)
    assert v1.decode(v1.encode(notification), v1.SessionNotification) == notification


@SOME
@given(free_json)
def test_any_json_survives_in_raw_input(value: Any) -> None:
    call = v1.ToolCallUpdate(tool_call_id="c", raw_input=value, meta={"a": value})
    assert v1.decode(v1.encode(call), v1.ToolCallUpdate) == call
