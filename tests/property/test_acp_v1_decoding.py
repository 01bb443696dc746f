"""Properties of decoding: for any input, the result is a value or the documented error.

Messages start as samples of real shapes and are then damaged: fields are dropped, renamed, retyped
and moved, tags exchanged, values nested deeply, and the text is cut or gets random bytes.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1 import codec
from dragoman.wire.messages import UNDECODABLE
from tests.amounts import SOME
from tests.unit.dialects.acp.v1 import samples

PAIRS = samples.STABLE + samples.UNSTABLE

TAGS = [
    "text",
    "diff",
    "terminal",
    "select",
    "boolean",
    "array",
    "object",
    "string",
    "http",
    "env_var",
    "form",
    "url",
    "accept",
    "selected",
    "plan",
    "tool_call",
    "usage_update",
    "agent_message_chunk",
    "session_info_update",
    "brand_new",
]

ODDITIES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**53,
    2**63,
    2**64,
    10**400,
    1.5,
    1e308,
    "",
    "\x00",
    "é👋",
    [],
    {},
    [[[[]]]],
    {"type": "text"},
    {"type": "text", "text": "x"},
    [None, 1, "x", {"type": "diff"}],
]

# Sampled rather than built: drawing deep values costs more than decoding them.
json_values: st.SearchStrategy[Any] = (
    st.sampled_from(ODDITIES).map(copy.deepcopy)
    | st.sampled_from(TAGS)
    | st.integers()
    | st.text(max_size=5)
)
json_objects = st.dictionaries(
    st.text(max_size=3) | st.sampled_from(["sessionId", "update", "type", "_meta"]),
    json_values,
    max_size=3,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Yield every container in the value with each of its keys or positions."""
    found: list[tuple[Any, Any]] = []
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    for key in keys:
        found.append((value, key))
        found.extend(places(value[key]))
    return found


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Any, Any]:
    """A type, and a message that started as one of its samples."""
    hint, sample = draw(st.sampled_from(PAIRS))
    message: Any = {"": copy.deepcopy(sample)}
    for _ in range(draw(st.integers(0, 4))):
        container, key = draw(st.sampled_from(places(message)))
        match draw(st.sampled_from(["drop", "rename", "retype", "retag", "wrap", "copy", "deep"])):
            case "drop":
                if container is not message:
                    del container[key]
            case "rename" if isinstance(container, dict) and container is not message:
                names = ["x-new", "type", "_meta", "modeId", "group", "blob", key.lower()]
                container[draw(st.sampled_from(names))] = container.pop(key)
            case "retype":
                container[key] = draw(json_values)
            case "retag":
                container[key] = draw(st.sampled_from(TAGS))
            case "wrap":
                container[key] = draw(st.sampled_from([[container[key]], {"a": container[key]}]))
            case "copy":
                other, place = draw(st.sampled_from(places(message)))
                container[key] = copy.deepcopy(other[place])
            case "deep":
                container[key] = nested(draw(st.integers(1, 300)))
    return hint, message[""]


@SOME
@given(damaged())
@example((v1.CurrentModeUpdate, {"modeId": {"a": 1}}))
def test_a_damaged_message_is_a_value_or_a_validation_error(pair: tuple[Any, Any]) -> None:
    hint, message = pair
    try:
        value = v1.decode(json.dumps(message).encode(), hint)
    except msgspec.ValidationError:
        return
    again = v1.encode(value)
    # A decoded value can be encoded, and decodes to the same value from then on.
    assert v1.encode(v1.decode(again, hint)) == again


@SOME
@given(damaged())
def test_the_tolerant_way_agrees_with_the_fast_one(pair: tuple[Any, Any]) -> None:
    hint, message = pair
    data = json.dumps(message).encode()
    try:
        fast = codec._decoders[hint](data)
    except UNDECODABLE:
        return
    # The stable types have no null at the top level, and the callers turn it into an empty object.
    assert v1.convert(msgspec.json.decode(data), hint) == fast


PEPPER = [
    b"\xff",
    b"\xed\xa0\x80",
    b"\x00",
    b"\\ud800",
    b"\\u12",
    b"\\",
    b"NaN",
    b"Infinity",
    b"-",
    b"1e999",
    b"0" * 400,
    b"9" * 5000,
    b'"',
    b"{",
    b"]",
    b"," * 3,
    b"[" * 3000,
    b'{"a":' * 3000,
    b'"type":"text",',
    b'"sessionId":1,',
    b"null",
    b"\xef\xbb\xbf",
]


@st.composite
def mangled(draw: st.DrawFn) -> tuple[Any, bytes]:
    """A type, and bytes that started as one of its samples."""
    hint, message = draw(damaged())
    data = json.dumps(message, ensure_ascii=draw(st.booleans())).encode()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        if draw(st.booleans()):
            data = data[:at] + draw(st.sampled_from(PEPPER)) + data[at:]
        else:
            data = data[:at] + data[draw(st.integers(at, len(data))) :]
    return hint, data


@SOME
@given(mangled())
def test_mangled_bytes_are_a_value_or_a_validation_error(pair: tuple[Any, bytes]) -> None:
    hint, data = pair
    try:
        value = v1.decode(data, hint)
    except msgspec.ValidationError:
        return
    v1.encode(value)


@SOME
@given(st.sampled_from([hint for hint, _ in PAIRS]), st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_validation_error(hint: Any, data: bytes) -> None:
    try:
        v1.decode(data, hint)
    except msgspec.ValidationError:
        return


@SOME
@given(st.sampled_from([hint for hint, _ in PAIRS]), json_values | json_objects)
def test_any_json_is_a_value_or_a_validation_error(hint: Any, message: Any) -> None:
    try:
        v1.decode(json.dumps(message).encode(), hint)
    except msgspec.ValidationError:
        return


@SOME
@given(st.data())
def test_a_field_that_comes_twice_never_breaks_the_decoder(data: st.DataObject) -> None:
    hint, sample = data.draw(st.sampled_from([pair for pair in PAIRS if pair[1]]))
    key = data.draw(st.sampled_from(sorted(sample)))
    text = json.dumps(sample)
    double = f"{text[:-1]}, {json.dumps(key)}: {json.dumps(data.draw(json_values))}}}"
    try:
        value = v1.decode(double.encode(), hint)
    except msgspec.ValidationError:
        return
    v1.encode(value)
