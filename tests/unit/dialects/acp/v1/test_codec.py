"""Tests of the two ways of decoding and of encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1 import codec
from dragoman.dialects.acp.v1.shape import EXTRA, UNKNOWN_TAG
from tests.unit.dialects.acp.v1 import samples

CHUNK = {
    "sessionId": "s1",
    "update": {"sessionUpdate": "agent_message_chunk", "content": samples.TEXT},
}


def to_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def round_trip(value: Any, hint: Any) -> Any:
    return json.loads(v1.encode(v1.decode(to_bytes(value), hint)))


@pytest.mark.parametrize("pair", samples.STABLE + samples.UNSTABLE, ids=samples.name_of)
def test_every_sample_survives_a_round_trip(pair: tuple[Any, Any]) -> None:
    hint, sample = pair
    assert round_trip(sample, hint) == sample


@pytest.mark.parametrize("pair", samples.STABLE, ids=samples.name_of)
def test_the_fast_way_takes_every_stable_sample(
    pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("took the slow way")

    monkeypatch.setattr(codec, "_decode_tolerantly", refuse)
    hint, sample = pair
    v1.decode(to_bytes(sample), hint)


@pytest.mark.parametrize("pair", samples.STABLE + samples.UNSTABLE, ids=samples.name_of)
def test_both_ways_read_a_sample_alike(pair: tuple[Any, Any]) -> None:
    hint, sample = pair
    assert v1.convert(sample, hint) == v1.decode(to_bytes(sample), hint)


@pytest.mark.parametrize("pair", samples.STABLE, ids=samples.name_of)
def test_plain_msgspec_encodes_what_holds_nothing_unknown(pair: tuple[Any, Any]) -> None:
    hint, sample = pair
    value = v1.decode(to_bytes(sample), hint)
    assert msgspec.json.encode(value) == v1.encode(value)


@pytest.mark.parametrize("pair", samples.STABLE + samples.UNSTABLE, ids=samples.name_of)
def test_the_second_pass_leaves_out_the_same_defaults_as_the_first(pair: tuple[Any, Any]) -> None:
    hint, sample = pair
    with_extra = v1.decode(to_bytes(sample | {"x-new": 1}), hint)
    assert json.loads(v1.encode(with_extra)) == sample | {"x-new": 1}


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, msgspec.Raw])
@pytest.mark.parametrize("message", [CHUNK, CHUNK | {"x-new": 1}])
def test_every_kind_of_buffer_is_read(wrap: Callable[[bytes], Any], message: Any) -> None:
    notification = v1.decode(wrap(to_bytes(message)), v1.SessionNotification)
    assert notification.session_id == "s1"


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b" null "])
def test_no_body_and_null_stand_for_the_empty_object(body: bytes) -> None:
    assert v1.decode(body, v1.LogoutRequest) == v1.LogoutRequest()
    assert v1.decode(body, v1.LoadSessionResponse) == v1.LoadSessionResponse()


def test_an_empty_raw_stands_for_the_empty_object() -> None:
    assert v1.decode(msgspec.Raw(b""), v1.ListSessionsRequest) == v1.ListSessionsRequest()


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'"x"', b"1", b"{}"])
def test_what_lacks_a_required_field_is_an_error(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        v1.decode(body, v1.PromptRequest)


def test_unknown_fields_are_kept_at_every_depth() -> None:
    message = {
        "sessionId": "s1",
        "new1": 1,
        "update": {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "title": "t",
            "new2": [2],
            "content": [
                {"type": "content", "new3": {"a": None}, "content": {**samples.TEXT, "new4": 4.5}}
            ],
        },
    }
    notification = v1.decode(to_bytes(message), v1.SessionNotification)
    assert notification.extra == {"new1": 1}
    assert isinstance(notification.update, v1.ToolCall)
    assert notification.update.extra == {"new2": [2]}
    assert json.loads(v1.encode(notification)) == message


def test_an_unknown_field_in_a_map_of_the_protocol_is_kept() -> None:
    form = {"properties": {"a": {"type": "boolean", "x-new": 1}}}
    assert round_trip(form, v1.ElicitationSchema) == {"type": "object", **form}


def test_a_peer_that_sends_the_reserved_names_gets_them_back() -> None:
    reserved = {EXTRA: {"sessionId": "forged"}}
    message = {
        **reserved,
        "sessionId": "s1",
        "update": {"sessionUpdate": UNKNOWN_TAG, EXTRA: {"sessionUpdate": "plan"}},
    }
    notification = v1.decode(to_bytes(message), v1.SessionNotification)
    assert notification.session_id == "s1"
    assert notification.extra == reserved
    assert isinstance(notification.update, v1.UnknownUpdate)
    assert json.loads(v1.encode(notification)) == message


def test_a_null_under_the_reserved_name_is_not_lost() -> None:
    assert round_trip({EXTRA: None}, v1.LogoutRequest) == {EXTRA: None}


def test_the_reserved_name_in_free_data_is_left_alone() -> None:
    message = {
        "toolCallId": "c",
        "rawInput": {EXTRA: {"a": 1}, "b": [{EXTRA: 2}]},
        "_meta": {EXTRA: {"toolCallId": "forged"}},
        "x-new": {EXTRA: 3},
    }
    assert round_trip(message, v1.ToolCallUpdate) == message


def test_a_real_field_wins_over_extra() -> None:
    update = v1.decode(b'{"toolCallId":"c","status":7}', v1.ToolCallUpdate)
    assert update.extra == {"status": 7}
    changed = msgspec.structs.replace(update, status="failed")
    assert json.loads(v1.encode(changed)) == {"toolCallId": "c", "status": "failed"}


def test_several_values_at_once_are_encoded_with_what_is_unknown_in_them() -> None:
    block = v1.decode(b'{"type":"hologram","depth":3}', v1.ContentBlock)
    assert json.loads(v1.encode([block])) == [{"type": "hologram", "depth": 3}]
    assert json.loads(v1.encode({"a": block})) == {"a": {"type": "hologram", "depth": 3}}
    assert json.loads(v1.encode((block, block)))[1] == {"type": "hologram", "depth": 3}


def test_the_error_says_where_it_is() -> None:
    message = {"sessionId": "s1", "prompt": [samples.TEXT, {"type": "text"}]}
    with pytest.raises(msgspec.ValidationError, match=r"field `text` - at `\$\.prompt\[1\]`"):
        v1.decode(to_bytes(message), v1.PromptRequest)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[" * 100_000,
        b'{"sessionId":' * 100_000,
        b'{"sessionId":"s1","_meta":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        b'{"sessionId":"\xff"}',
        b'{"sessionId":NaN}',
        b'{"sessionId":"s1","_meta":{"a":1e999}}',
        b'{"sessionId":"s1","_meta":{"a":' + b"9" * 10_000 + b"}}",
        b'{"sessionId":"s1"} {}',
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda data: repr(data[:40]),
)
def test_what_is_not_readable_json_is_a_validation_error(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        v1.decode(data, v1.CancelNotification)


def test_numbers_beyond_64_bits_are_kept_in_free_data() -> None:
    message = {"sessionId": "s1", "_meta": {"a": 2**80, "b": -(2**70)}}
    assert round_trip(message, v1.CancelNotification) == message


def test_text_that_utf8_cannot_hold_is_an_encode_error() -> None:
    with pytest.raises(msgspec.EncodeError):
        v1.encode(v1.text("\ud800"))


def test_endless_nesting_is_an_encode_error() -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(msgspec.EncodeError):
        v1.encode(v1.CancelNotification(session_id="s1", meta={"a": nested}))


def test_an_object_that_is_not_a_value_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        v1.encode(object())


def test_members_of_an_enumeration_travel_as_their_text() -> None:
    response = v1.PromptResponse(stop_reason=v1.StopReason.END_TURN)
    assert v1.encode(response) == b'{"stopReason":"end_turn"}'
    assert v1.decode(v1.encode(response), v1.PromptResponse) == response


def test_half_a_surrogate_pair_costs_one_character_and_not_the_message() -> None:
    body = rb'{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk",'
    body += rb'"content":{"type":"text","text":"a\ud83d"}}}'
    message = v1.decode(body, v1.SessionNotification)
    assert message == v1.agent_text("s", "a\ufffd")


@pytest.mark.parametrize(
    ("params", "session"),
    [(b'{"sessionId":"a","b":[1]}', "a"), (b"{}", None), (b'{"sessionId":7}', None), (b"7", None)],
)
def test_params_tell_their_session_or_none(params: bytes, session: str | None) -> None:
    assert codec.session_of(msgspec.Raw(params)) == session
