"""Any input is read or is the one documented error; nothing raises and nothing is lost.

The profile decides how many inputs are tried, see tests/conftest.py.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import event as label
from hypothesis import given
from hypothesis import strategies as st

from dragoman.wire import codes
from dragoman.wire.messages import (
    BLANK,
    MAX_ID_LENGTH,
    NO_PARAMS,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    ResultResponse,
    decode,
)
from dragoman.wire.peer import (
    End,
    Event,
    Failed,
    Invalid,
    Noise,
    Overrun,
    PeerState,
    Repeated,
    ResultReceived,
    Stray,
)

LIMIT = 200

# -- any bytes

SEEDS = [
    b'{"jsonrpc":"2.0","id":0,"method":"a","params":{"b":[1,-2.5e3,null,true,"\\ud83d\\ude00"]}}',
    b'{"id":"x","method":"a"}',
    b'{"method":"a","params":["\\n\\"\\\\\\ud83d"]}',
    b'{"id":0,"result":{"c":"\xc3\xa4\xf0\x9f\x98\x80"}}',
    b'{"id":1,"error":{"code":-32601,"message":"no","data":{}}}',
    b'{"id":2,"result":null,"error":null}',
    b'{"id":2,"result":{},"error":{"code":1,"message":"no"}}',
    b'[{"id":1,"method":"a"}]',
]
FRAGMENTS = [
    *(
        b"\n",
        b"\r\n",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\x00",
        b"\\u",
        b"\\ud800",
        b"\\udc00",
        b"\\",
        b'"',
    ),
    *(b"{", b"}", b"[", b"]", b":", b",", b"-", b"1e999", b"9" * 20, b"NaN", b"null", b"true"),
    *(b'"id":', b'"method":', b'"result":', b'"error":', b'"params":', b"[" * 60, b"x" * 210),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A few messages from which something was removed, or to which something was added."""
    data = b"\n".join(draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=3))) + b"\n"
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        stop = start + draw(st.integers(0, 3))
        data = data[:start] + draw(st.sampled_from([b"", *FRAGMENTS])) + data[stop:]
    return data


streams = st.one_of(mutated(), mutated(), st.binary(max_size=300))


def fits(event: Event[str], message: Message) -> bool:
    """Return whether an event is a valid interpretation of a message."""
    match message:
        case Notification():
            return event == message
        case Request():
            return event == message or (isinstance(event, Repeated) and event.request == message)
        case ResultResponse():
            return isinstance(event, ResultReceived | Stray) and event.id == message.id
        case ErrorResponse():
            return isinstance(event, Failed | Stray) and event.error == message.error
        case Malformed():
            return isinstance(event, Noise | Invalid | Stray) and event.line == message.line


@pytest.mark.timeout(300)
@given(chunks=st.lists(streams, min_size=1, max_size=3), end=st.sampled_from(End))
def test_any_bytes_are_read_or_end_in_an_overrun(chunks: list[bytes], end: End) -> None:
    peer: PeerState[str] = PeerState(end, max_line_size=LIMIT)
    for slot in ("zero", "one", "two"):
        peer.request("m", slot)
    peer.abandon(1)

    events: list[Event[str]] = []
    for chunk in chunks:
        events += peer.receive(chunk)
    events += peer.receive_end()

    ends = [event for event in events if isinstance(event, Overrun)]
    if ends:
        assert ends == [events.pop()]
        assert peer.receive(b'{"method":"a"}\n') == []
        label("overrun")
    lines = b"".join(chunks).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    read = [decode(line.removesuffix(b"\r")) for line in lines]
    said = [m for m in read if not (isinstance(m, Malformed) and m.reason == BLANK)]
    # Every line is one event, in order; with an overrun, every line before the one that is too
    # long.
    assert len(events) <= len(said) if ends else len(events) == len(said)
    assert all(map(fits, events, said))
    for event in events:
        label(type(event).__name__)
        if isinstance(event, Noise | Repeated) and event.reply is not None:
            assert isinstance(json.loads(event.reply), dict)
            assert b"\n" not in event.reply
            assert end is End.AGENT or isinstance(event, Repeated)


# -- any JSON

# `json` writes lone surrogates as escapes, as JavaScript does.
texts = st.text(st.characters(), max_size=6) | st.sampled_from(["\ud83d", "\ude00x", "x\ud83d"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
ids = st.one_of(
    st.integers(-3, 3),
    st.integers(2**63 - 2, 2**63 + 1),
    st.integers(-(2**63) - 1, -(2**63) + 1),
    texts,
    st.sampled_from([None, True, False, 0.0, 1.0, "x" * MAX_ID_LENGTH, "x" * (MAX_ID_LENGTH + 1)]),
    values,
)
good_ids = st.integers(-3, 3) | st.text(max_size=3)
errors = st.one_of(
    st.fixed_dictionaries(
        {}, optional={"code": st.integers() | values, "message": texts, "data": values}
    ),
    values,
)
extras = {"jsonrpc": st.just("2.0") | values, "params": values, "extra": values}
objects = st.one_of(
    st.fixed_dictionaries({"method": texts}, optional=extras),
    st.fixed_dictionaries({"id": good_ids, "method": texts}, optional=extras),
    st.fixed_dictionaries({"result": values, "id": good_ids}, optional=extras),
    st.fixed_dictionaries({"id": good_ids, "error": errors}, optional=extras),
    st.fixed_dictionaries(
        {},
        optional={
            **extras,
            "id": ids,
            "method": texts | st.none() | values,
            "result": st.none() | values,
            "error": errors,
        },
    ),
)

HALF = re.compile("[\ud800-\udfff]")


def mended(value: Any) -> Any:
    """Return the value with every lone surrogate replaced."""
    if isinstance(value, str):
        return HALF.sub("\ufffd", value)
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {mended(key): mended(item) for key, item in value.items()}
    return value


def is_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_ID_LENGTH and not HALF.search(value)
    return type(value) is int and -(2**63) <= value < 2**63


def kind(message: dict[str, Any]) -> tuple[type[Message], int | None]:
    """Return what a message is, by the rules and not by the code: its kind, and the error code if
    it is invalid."""
    id = message.get("id")
    bad_id = id is not None and not is_id(id)
    if isinstance(id, str) and "\ufffd" in id and message != mended(message):
        bad_id = True  # It may have been something else before it was repaired.
    method = message.get("method")
    if bad_id or not (method is None or isinstance(method, str)):
        unanswerable = method is None and ("result" in message or "error" in message)
        return Malformed, None if unanswerable else codes.INVALID_REQUEST
    if method is not None:
        if "id" not in message:
            return Notification, None
        return (Malformed, codes.INVALID_REQUEST) if message["id"] is None else (Request, None)
    if message.get("error") is not None:
        return ErrorResponse, None
    if "result" not in message:
        return Malformed, codes.INVALID_REQUEST
    return (Malformed if message.get("id") is None else ResultResponse), None


@pytest.mark.timeout(300)
@given(message=objects, ascii=st.booleans(), indent=st.sampled_from([None, 0, 1]))
def test_json_is_understood_as_the_rules_say(
    message: dict[str, Any], ascii: bool, indent: int | None
) -> None:
    text = json.dumps(message, ensure_ascii=ascii, indent=indent)
    if not ascii and HALF.search(text):
        text = json.dumps(message, indent=indent)  # UTF-8 has no place for half a pair
    line = text.replace("\n", " ").encode()
    # Two halves that met are one character from here on.
    message = json.loads(line)

    found = decode(line)

    wanted, code = kind(message)
    assert type(found) is wanted
    label(wanted.__name__)
    match found:
        case Request(id=id):
            assert type(id) is type(message["id"])
            assert id == message["id"]
        case ResultResponse(id=id, result=result):
            assert id == message["id"]
            assert json.loads(bytes(result)) == mended(message["result"])
        case ErrorResponse(id=id, error=error):
            assert id == message.get("id")
            sent = message["error"]
            if isinstance(sent, dict) and type(sent.get("code")) is int:
                assert error.code == sent["code"]
            if isinstance(sent, dict) and isinstance(sent.get("message"), str):
                assert error.message == mended(sent["message"])
        case Malformed():
            assert found.code == code
    if isinstance(found, Request | Notification):
        assert found.method == mended(message["method"])
        if "params" in message:
            assert json.loads(bytes(found.params)) == mended(message["params"])
        else:
            assert found.params is NO_PARAMS
