"""What counts as a message, what does not, and what is written."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from dragoman.errors import UsageError
from dragoman.wire import codes
from dragoman.wire.messages import (
    BLANK,
    MAX_ID_LENGTH,
    NO_PARAMS,
    ErrorObject,
    ErrorResponse,
    Id,
    Malformed,
    Notification,
    Request,
    Reserved,
    ResultResponse,
    Writer,
    decode,
    mend,
)

NO_MESSAGE = "an error object without a message"


def malformed(line: bytes) -> Malformed:
    message = decode(line)
    assert isinstance(message, Malformed), message
    assert message.line is line
    return message


def failure(error: bytes) -> ErrorObject:
    message = decode(b'{"id":1,"error":' + error + b"}")
    assert isinstance(message, ErrorResponse), message
    assert message.id == 1
    return message.error


# -- the four kinds


@pytest.mark.parametrize("mark", [b"", b'"jsonrpc":"2.0",', b'"jsonrpc":null,', b'"jsonrpc":[1],'])
def test_the_jsonrpc_member_is_optional_and_not_looked_at(mark: bytes) -> None:
    line = b"{" + mark + b'"id":1,"method":"a","params":{"b":2}}'
    assert decode(line) == Request(1, "a", Raw(b'{"b":2}'), line)
    line = b"{" + mark + b'"method":"a","params":[]}'
    assert decode(line) == Notification("a", Raw(b"[]"), line)
    line = b"{" + mark + b'"id":1,"result":{}}'
    assert decode(line) == ResultResponse(1, Raw(b"{}"), line)
    line = b"{" + mark + b'"id":1,"error":{"code":-1,"message":"no"}}'
    assert decode(line) == ErrorResponse(1, ErrorObject(-1, "no"), line)


def test_bodies_stay_as_they_were_written() -> None:
    line = b' { "method" : "a" , "params" : { "b" : 1.50, "b": "\\u0041" } } '
    message = decode(line)
    assert isinstance(message, Notification)
    assert bytes(message.params) == b'{ "b" : 1.50, "b": "\\u0041" }'
    assert message.line is line


def test_params_may_be_missing() -> None:
    for line in (b'{"id":1,"method":"a"}', b'{"method":"a"}'):
        message = decode(line)
        assert isinstance(message, Request | Notification)
        assert message.params is NO_PARAMS


def test_unknown_members_are_ignored() -> None:
    line = b'{"emittedAtMs":5,"id":0,"trace":{"a":[]},"method":"a","x":null}'
    assert decode(line) == Request(0, "a", NO_PARAMS, line)


def test_members_may_come_in_any_order() -> None:
    line = b'{"result":{"id":7,"method":"b"},"id":3}'
    assert decode(line) == ResultResponse(3, Raw(b'{"id":7,"method":"b"}'), line)


# -- ids


@pytest.mark.parametrize(
    ("written", "id"),
    [
        (b"0", 0),
        (b"1", 1),
        (b'"1"', "1"),
        (b'""', ""),
        (b"-7", -7),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        ('"ä\U0001f600"'.encode(), "ä\U0001f600"),
        (b'"' + b"x" * MAX_ID_LENGTH + b'"', "x" * MAX_ID_LENGTH),
    ],
)
def test_an_id_is_a_string_or_a_whole_number_of_64_bits(written: bytes, id: Id) -> None:
    request = decode(b'{"id":' + written + b',"method":"a"}')
    answer = decode(b'{"id":' + written + b',"result":null}')
    assert isinstance(request, Request)
    assert isinstance(answer, ResultResponse)
    for found in (request.id, answer.id):
        assert type(found) is type(id)
        assert found == id


NO_IDS = [
    b"true",
    b"false",
    b"1.0",
    b"1.5",
    b"1e2",
    b"[]",
    b"{}",
    b"[1]",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b'"' + b"x" * (MAX_ID_LENGTH + 1) + b'"',
    b'"\\ud83d"',
]


@pytest.mark.parametrize("written", NO_IDS)
def test_a_request_with_anything_else_for_an_id_is_invalid(written: bytes) -> None:
    message = malformed(b'{"id":' + written + b',"method":"a"}')
    assert message.code == codes.INVALID_REQUEST
    assert message.id is None


@pytest.mark.parametrize("written", NO_IDS)
@pytest.mark.parametrize("body", [b'"result":1', b'"error":{"code":1,"message":""}'])
def test_an_answer_with_anything_else_for_an_id_is_not_answered(
    written: bytes, body: bytes
) -> None:
    message = malformed(b'{"id":' + written + b"," + body + b"}")
    assert message.code is None
    assert message.id is None


def test_a_request_with_the_id_null_is_invalid() -> None:
    message = malformed(b'{"id":null,"method":"a"}')
    assert message.code == codes.INVALID_REQUEST
    assert message.reason == "a request must not have the id null"


# -- answers


def test_a_result_of_null_is_a_success() -> None:
    line = b'{"id":1,"result":null}'
    assert decode(line) == ResultResponse(1, Raw(b"null"), line)


@pytest.mark.parametrize("null", [b"null", b" null "])
def test_an_error_of_null_beside_a_result_is_a_success(null: bytes) -> None:
    line = b'{"id":1,"result":3,"error":' + null + b"}"
    assert decode(line) == ResultResponse(1, Raw(b"3"), line)


def test_a_result_of_null_beside_an_error_is_a_failure() -> None:
    line = b'{"id":1,"result":null,"error":{"code":5,"message":"no"}}'
    assert decode(line) == ErrorResponse(1, ErrorObject(5, "no"), line)


def test_a_method_of_null_beside_a_result_is_a_success() -> None:
    line = b'{"id":1,"method":null,"params":null,"result":3,"error":null}'
    assert decode(line) == ResultResponse(1, Raw(b"3"), line)


@pytest.mark.parametrize("id", [b"", b'"id":null,'])
def test_an_error_without_an_id_fails_no_request(id: bytes) -> None:
    line = b"{" + id + b'"error":{"code":-32700,"message":"Parse error"}}'
    assert decode(line) == ErrorResponse(None, ErrorObject(codes.PARSE_ERROR, "Parse error"), line)


@pytest.mark.parametrize("id", [b"", b'"id":null,'])
def test_a_result_without_an_id_is_not_an_answer_and_gets_none(id: bytes) -> None:
    message = malformed(b"{" + id + b'"result":1}')
    assert message.code is None
    assert message.reason == "a response needs an id"


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b"{}", None),
        (b'{"foo":"boo"}', None),
        (b'{"id":null}', None),
        (b'{"id":4}', 4),
        (b'{"id":"four","error":null}', "four"),
        (b'{"id":4,"method":null}', 4),
        (b'{"id":4,"params":{}}', 4),
    ],
)
def test_an_object_with_neither_a_method_nor_an_answer_is_invalid_and_keeps_its_id(
    line: bytes, id: Id | None
) -> None:
    message = malformed(line)
    assert message.code == codes.INVALID_REQUEST
    assert message.reason == "no method, result or error"
    assert message.id == id


# -- error objects


def test_an_error_keeps_its_data() -> None:
    assert failure(b'{"code":-5,"message":"m","data":{"a":[1]}}') == ErrorObject(
        -5, "m", {"a": [1]}
    )


@pytest.mark.parametrize(
    ("written", "error"),
    [
        (b"{}", ErrorObject(codes.UNKNOWN, NO_MESSAGE)),
        (b'"no such model"', ErrorObject(codes.UNKNOWN, "no such model")),
        (b"7", ErrorObject(codes.UNKNOWN, NO_MESSAGE, 7)),
        (b"true", ErrorObject(codes.UNKNOWN, NO_MESSAGE, True)),
        (b"[1,2]", ErrorObject(codes.UNKNOWN, NO_MESSAGE, [1, 2])),
        (b'{"code":3}', ErrorObject(3, NO_MESSAGE)),
        (b'{"message":"m"}', ErrorObject(codes.UNKNOWN, "m")),
        (b'{"code":null,"message":"m","data":1}', ErrorObject(codes.UNKNOWN, "m", 1)),
        (
            b'{"code":"rate_limit","message":"m"}',
            ErrorObject(codes.UNKNOWN, "m", {"code": "rate_limit", "data": None}),
        ),
        (
            b'{"code":true,"message":"m","data":[1]}',
            ErrorObject(codes.UNKNOWN, "m", {"code": True, "data": [1]}),
        ),
        (
            b'{"code":1.5,"message":["m"],"data":2}',
            ErrorObject(codes.UNKNOWN, NO_MESSAGE, {"code": 1.5, "message": ["m"], "data": 2}),
        ),
        (b'{"code":1,"message":2}', ErrorObject(1, NO_MESSAGE, {"message": 2, "data": None})),
        (b'{"code":400,"message":"m","x":[]}', ErrorObject(400, "m")),
    ],
)
def test_a_malformed_error_object_survives_with_all_it_says(
    written: bytes, error: ErrorObject
) -> None:
    assert failure(written) == error


def test_data_that_cannot_be_decoded_costs_neither_the_code_nor_the_message() -> None:
    error = failure(b'{"code":-1,"message":"m","data":"\xff"}')
    assert error == ErrorObject(-1, "m", '"\N{REPLACEMENT CHARACTER}"')
    error = failure(b'{"code":-1,"message":"m","data":' + b"9" * 5000 + b"}")
    assert error == ErrorObject(-1, "m", "9" * 5000)


def test_an_error_that_cannot_be_decoded_survives_as_text() -> None:
    error = failure(b'"\xff"')
    assert error == ErrorObject(codes.UNKNOWN, '"\N{REPLACEMENT CHARACTER}"')


# -- lines that are no message


@pytest.mark.parametrize("line", [b"", b" ", b"\t \r", b"\x0b\x0c"])
def test_a_blank_line_is_not_worth_an_answer(line: bytes) -> None:
    message = malformed(line)
    assert message.reason == BLANK
    assert message.code is None


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"{",
        b'{"id":1,"method":"a"',
        b'{"id":1,"method":"a"}}',
        b'{"id":1,"method":"a"} {"id":2,"method":"a"}',
        b"\x00",
        b"\xff\xfe{\x00}\x00",
        b'\xef\xbb\xbf{"method":"a"}',
        b'{"method":"a\xff"}',
        b'{"id":"\xc3\x28","method":"a"}',
        b'{"method":"a","params":NaN}',
        b'{"method":"a","params":[Infinity]}',
        b'{"method":"a","params":-}',
        b'{"method":"a","params":01}',
        b'{"method":"a","params":"\x01"}',
        b'{"method":"a","params":"\\x"}',
        b'{"method":"a","params":"\\ud83"}',
        b"{'method':'a'}",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b'{"method":"a","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda line: repr(line[:40]),
)
def test_a_line_that_is_not_json_is_a_parse_error(line: bytes) -> None:
    assert malformed(line).code == codes.PARSE_ERROR


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[]", "batches are not supported"),
        (b'[{"id":1,"method":"a"}]', "batches are not supported"),
        (b"1", "not an object"),
        (b"null", "not an object"),
        (b'"method"', "not an object"),
        (b'{"method":5}', "the id or the method is invalid"),
        (b'{"id":1,"method":{}}', "the id or the method is invalid"),
        (b'{"id":true}', "the id or the method is invalid"),
        (b'{"id":true,"method":"\\ud83d"}', "the id or the method is invalid"),
    ],
)
def test_json_that_is_not_a_message_is_an_invalid_request(line: bytes, reason: str) -> None:
    message = malformed(line)
    assert message.code == codes.INVALID_REQUEST
    assert message.reason == reason


def test_invalid_utf8_in_a_body_is_left_to_its_decoder() -> None:
    line = b'{"id":1,"result":"\xff"}'
    assert decode(line) == ResultResponse(1, Raw(b'"\xff"'), line)


@pytest.mark.parametrize("nested", [500, 900, 990, 1000, 1100])
def test_nesting_near_the_limit_of_the_decoder_is_never_an_exception(nested: int) -> None:
    body = b"[" * nested + b"]" * nested
    for line in (
        b'{"id":1,"error":' + body + b"}",
        b'{"id":1,"error":{"data":' + body + b"}}",
        b'{"id":true,"method":' + body + b"}",
    ):
        assert isinstance(decode(line), ErrorResponse | Malformed)


# -- half of a surrogate pair


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"\\ud83d", b"\\ufffd"),
        (b"a\\uDE00b", b"a\\ufffdb"),
        (b"\\ude00\\ud83d", b"\\ufffd\\ufffd"),
        (b"\\ud83d\\ud83d\\ude00", b"\\ufffd\\ud83d\\ude00"),
        (b"\\ud83d\\ude00\\uDBFF", b"\\ud83d\\ude00\\ufffd"),
        (b"\\uD800\\\\ude00", b"\\ufffd\\\\ude00"),
        (b"\\\\\\udfff\\\\ud83d\\n\\u0041", b"\\\\\\ufffd\\\\ud83d\\n\\u0041"),
    ],
)
def test_half_of_a_surrogate_pair_costs_one_character_and_not_the_message(
    sent: bytes, read: bytes
) -> None:
    line = b'{"id":1,"result":{"text":"' + sent + b'"}}'
    assert decode(line) == ResultResponse(1, Raw(b'{"text":"' + read + b'"}'), line)
    line = b'{"method":"a","params":["' + sent + b'"]}'
    assert decode(line) == Notification("a", Raw(b'["' + read + b'"]'), line)


def test_mending_leaves_alone_what_needs_none() -> None:
    text = b'{"text":"\\u00e4 \\n"}'
    assert mend(text) is text
    assert mend(b'"\\ud83d\\ude00 \\\\ud83d"') == b'"\\ud83d\\ude00 \\\\ud83d"'
    assert mend(b'"\\uD83Dx"') == b'"\\ufffdx"'


def test_whole_surrogate_pairs_are_left_as_they_were_written() -> None:
    line = b'{"id":1,"result":"\\ud83d\\ude00 \\\\ud83d"}'
    assert decode(line) == ResultResponse(1, Raw(b'"\\ud83d\\ude00 \\\\ud83d"'), line)


def test_an_id_with_half_of_a_surrogate_pair_is_not_changed_into_another() -> None:
    message = malformed(b'{"id":"a\\ud83d","method":"a","params":{}}')
    assert message.code == codes.INVALID_REQUEST


# -- what is written


def test_lines_carry_the_jsonrpc_member_by_default() -> None:
    writer = Writer()
    assert writer.request(0, "a", {"b": 1}) == (
        b'{"jsonrpc":"2.0","id":0,"method":"a","params":{"b":1}}'
    )
    assert writer.notification("a", [1]) == b'{"jsonrpc":"2.0","method":"a","params":[1]}'
    assert writer.result("x", None) == b'{"jsonrpc":"2.0","id":"x","result":null}'
    assert writer.failure(2, ErrorObject(5, "no", {"c": 1})) == (
        b'{"jsonrpc":"2.0","id":2,"error":{"code":5,"message":"no","data":{"c":1}}}'
    )


def test_lines_leave_the_jsonrpc_member_out_on_demand() -> None:
    writer = Writer(jsonrpc=False)
    assert writer.request(0, "a", {"b": 1}) == b'{"id":0,"method":"a","params":{"b":1}}'
    assert writer.notification("a", [1]) == b'{"method":"a","params":[1]}'
    assert writer.result("x", {}) == b'{"id":"x","result":{}}'
    assert writer.failure(None, ErrorObject(5, "no")) == (
        b'{"id":null,"error":{"code":5,"message":"no"}}'
    )


@pytest.mark.parametrize("missing", [UNSET, NO_PARAMS], ids=["UNSET", "NO_PARAMS"])
def test_params_that_are_missing_are_left_out(missing: Any) -> None:
    writer = Writer()
    assert writer.request(1, "a", missing) == b'{"jsonrpc":"2.0","id":1,"method":"a"}'
    assert writer.notification("a", missing) == b'{"jsonrpc":"2.0","method":"a"}'


def test_a_message_that_came_can_be_passed_on() -> None:
    for line in (
        b'{"id":5,"method":"a"}',
        b'{"id":5,"method":"a","params":null}',
        b'{"id":5,"method":"a","params":{ "b" : 1 }}',
    ):
        request = decode(line)
        assert isinstance(request, Request)
        assert Writer(jsonrpc=False).request(5, request.method, request.params) == line


def test_no_params_and_params_of_null_are_different_messages() -> None:
    assert Writer(jsonrpc=False).request(1, "a", None) == b'{"id":1,"method":"a","params":null}'


@pytest.mark.parametrize("line_break", [b"\n", b"\r\n", b"\r"])
def test_a_pretty_printed_body_puts_no_line_break_into_a_line(line_break: bytes) -> None:
    pretty = json.dumps({"a": ["line\nbreak\r", {}]}, indent=2).encode().replace(b"\n", line_break)
    writer = Writer()
    for line in (
        writer.request(1, "a", Raw(pretty)),
        writer.notification("a", {"nested": [Raw(pretty)]}),
        writer.result(1, Raw(pretty)),
        writer.failure(1, ErrorObject(1, "m", Raw(pretty))),
    ):
        assert b"\n" not in line
        assert b"\r" not in line
        assert b"line\\nbreak\\r" in line
        json.loads(line)


def test_line_breaks_in_text_are_written_as_escapes() -> None:
    line = Writer(jsonrpc=False).notification("a\nb", {"text": "x\r\ny\u2028"})
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line) == {"method": "a\nb", "params": {"text": "x\r\ny\u2028"}}


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "body",
    [object(), "\ud83d", {"a": {1, object()}}, {(1, 2): 3}, ENDLESS, 10**5000],
    ids=["object", "surrogate", "nested", "key", "endless", "huge"],
)
def test_what_cannot_be_written_as_json_is_an_error_of_the_caller(body: Any) -> None:
    writer = Writer()
    writes: list[Callable[[], bytes]] = [
        lambda: writer.request(1, "a", body),
        lambda: writer.notification("a", body),
        lambda: writer.result(1, body),
        lambda: writer.failure(1, ErrorObject(1, "m", body)),
    ]
    for write in writes:
        with pytest.raises(UsageError, match="cannot be written as JSON") as caught:
            write()
        assert caught.value.__cause__ is not None


def test_the_error_of_a_message_that_cannot_be_written_names_its_method() -> None:
    writer = Writer()
    for write in (functools.partial(writer.request, 1), writer.notification):
        with pytest.raises(UsageError, match="the message 'a/b' cannot be written as JSON"):
            write("a/b", object())


def test_a_method_that_cannot_be_written_is_an_error_of_the_caller() -> None:
    with pytest.raises(UsageError):
        Writer().notification("\udc00")


def test_every_line_is_one_object_and_never_a_batch() -> None:
    writer = Writer()
    for line in (
        writer.request(1, "a", [1, 2]),
        writer.notification("a", []),
        writer.result(1, [{}, {}]),
        writer.failure(None, ErrorObject(1, "m")),
    ):
        assert isinstance(msgspec.json.decode(line), dict)


@pytest.mark.parametrize("jsonrpc", [True, False])
def test_what_is_written_reads_back_as_it_was(jsonrpc: bool) -> None:
    writer = Writer(jsonrpc=jsonrpc)
    line = writer.request("x", "a", {"b": 1})
    assert decode(line) == Request("x", "a", Raw(b'{"b":1}'), line)
    line = writer.notification("a")
    assert decode(line) == Notification("a", NO_PARAMS, line)
    line = writer.result(-(2**63), None)
    assert decode(line) == ResultResponse(-(2**63), Raw(b"null"), line)
    line = writer.failure(2**63 - 1, ErrorObject(1, "m", [None]))
    assert decode(line) == ErrorResponse(2**63 - 1, ErrorObject(1, "m", [None]), line)


def test_a_reserved_text_is_cleared_out_of_every_body_and_nothing_else_is_touched() -> None:
    def clear(body: Any) -> Any:
        return {"cleared": sorted(body)}

    writer = Writer(jsonrpc=False, reserved=Reserved(b"$mark", clear))
    assert writer.notification("a", {"$mark": 1}) == (
        b'{"method":"a","params":{"cleared":["$mark"]}}'
    )
    assert writer.request(1, "a", {"$mark": 1}) == (
        b'{"id":1,"method":"a","params":{"cleared":["$mark"]}}'
    )
    assert writer.result(1, {"$mark": 1}) == b'{"id":1,"result":{"cleared":["$mark"]}}'
    assert writer.notification("a", {"mark": 1}) == b'{"method":"a","params":{"mark":1}}'
    assert writer.request(1, "a", {"mark": 1}) == b'{"id":1,"method":"a","params":{"mark":1}}'
    assert writer.result(1, {"mark": 1}) == b'{"id":1,"result":{"mark":1}}'
