"""One end of a conversation: which answer belongs to which question, in both directions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.errors import LineTooLong, MessageTooLong, PeerBusy, RequestInProgress, UsageError
from dragoman.wire import codes, messages
from dragoman.wire.messages import NO_PARAMS, ErrorObject, Notification, Request
from dragoman.wire.peer import (
    End,
    Event,
    Failed,
    Invalid,
    LinkState,
    Noise,
    Overrun,
    PeerState,
    Repeated,
    ResultReceived,
    Stray,
    Unanswered,
)

REMEMBERED = 1024
"""How many given-up requests a peer remembers at least."""


def client(**settings: Any) -> PeerState[str]:
    return PeerState(End.CLIENT, **settings)


def agent(**settings: Any) -> PeerState[str]:
    return PeerState(End.AGENT, **settings)


def received(peer: PeerState[str], *lines: bytes) -> list[Event[str]]:
    return peer.receive(b"".join(line + b"\n" for line in lines))


def only(peer: PeerState[str], line: bytes) -> Event[str]:
    (event,) = received(peer, line)
    return event


def reply_to(peer: PeerState[str], line: bytes) -> Any:
    event = only(peer, line)
    assert isinstance(event, Noise)
    assert event.line == line
    return None if event.reply is None else json.loads(event.reply)


# -- asking


def test_ids_are_counted_up_from_zero() -> None:
    peer = client()
    assert [peer.request("a", "")[0] for _ in range(4)] == [0, 1, 2, 3]


def test_a_request_is_one_line_with_its_id_and_params() -> None:
    assert client().request("a", "", {"b": 1}) == (
        0,
        b'{"jsonrpc":"2.0","id":0,"method":"a","params":{"b":1}}',
    )
    assert client(jsonrpc=False).request("a", "") == (0, b'{"id":0,"method":"a"}')


def test_a_notification_is_one_line_without_an_id() -> None:
    peer = client()
    assert peer.notification("a", [1]) == b'{"jsonrpc":"2.0","method":"a","params":[1]}'
    assert peer.notification("a") == b'{"jsonrpc":"2.0","method":"a"}'
    assert peer.unanswered == []


def test_an_answer_comes_with_the_slot_of_its_request() -> None:
    peer = client()
    peer.request("a", "first")
    peer.request("a", "second")
    one, two = b'{"id":1,"result":{"x":1}}', b'{"id":0,"result":null}'
    assert received(peer, one, two) == [
        ResultReceived("second", 1, Raw(b'{"x":1}'), one),
        ResultReceived("first", 0, Raw(b"null"), two),
    ]
    assert peer.unanswered == []


def test_an_answer_with_an_error_of_null_is_a_result() -> None:
    peer = client()
    peer.request("a", "slot")
    line = b'{"id":0,"result":1,"error":null}'
    assert only(peer, line) == ResultReceived("slot", 0, Raw(b"1"), line)


def test_an_error_comes_with_the_slot_of_its_request() -> None:
    peer = client()
    peer.request("a", "slot")
    line = b'{"id":0,"error":{"code":-32601,"message":"no"}}'
    assert only(peer, line) == Failed("slot", 0, ErrorObject(codes.METHOD_NOT_FOUND, "no"), line)
    assert peer.unanswered == []


@pytest.mark.parametrize("result", [b"null", b"{}"])
def test_an_error_beside_a_result_is_an_error(result: bytes) -> None:
    peer = client()
    peer.request("a", "slot")
    line = b'{"id":0,"result":' + result + b',"error":{"code":5,"message":"no"}}'
    assert only(peer, line) == Failed("slot", 0, ErrorObject(5, "no"), line)


@pytest.mark.parametrize("line", [b'{"id":0}', b'{"id":0,"error":null}', b'{"id":0,"params":1}'])
def test_an_answer_that_is_none_settles_its_request_as_invalid(line: bytes) -> None:
    peer = agent()
    peer.request("a", "slot")
    assert only(peer, line) == Invalid("slot", 0, "no method, result or error", line)
    assert peer.unanswered == []


def test_an_answer_with_half_of_a_surrogate_pair_settles_its_request() -> None:
    peer = client()
    peer.request("a", "slot")
    line = b'{"id":0,"result":"\\ud83d"}'
    assert only(peer, line) == ResultReceived("slot", 0, Raw(b'"\\ufffd"'), line)


@pytest.mark.parametrize("id", [b'"0"', b"true", b"false", b"0.0", b"null", b"[0]", b"-1", b"1"])
def test_an_answer_with_another_id_does_not_settle_a_request(id: bytes) -> None:
    peer = client()
    peer.request("a", "slot")
    assert isinstance(only(peer, b'{"id":' + id + b',"result":1}'), Stray | Noise)
    assert [request.id for request in peer.unanswered] == [0]


# -- answers that fit nothing


def test_a_second_answer_is_a_duplicate() -> None:
    peer = client()
    peer.request("a", "slot")
    line = b'{"id":0,"result":1}'
    received(peer, line)
    assert only(peer, line) == Stray("duplicate", 0, None, line)


def test_an_error_after_the_answer_is_a_duplicate_that_carries_it() -> None:
    peer = client()
    peer.request("a", "slot")
    received(peer, b'{"id":0,"result":1}')
    line = b'{"id":0,"error":{"code":1,"message":"no"}}'
    assert only(peer, line) == Stray("duplicate", 0, ErrorObject(1, "no"), line)


@pytest.mark.parametrize("id", [1, -1, "0", "x", 2**63 - 1])
def test_an_answer_to_what_was_never_asked_is_unknown(id: int | str) -> None:
    peer = client()
    peer.request("a", "slot")
    line = json.dumps({"id": id, "result": 1}).encode()
    assert only(peer, line) == Stray("unknown", id, None, line)


@pytest.mark.parametrize("end", list(End))
def test_an_error_without_an_id_settles_nothing_and_is_not_answered(end: End) -> None:
    peer: PeerState[str] = PeerState(end)
    peer.request("a", "slot")
    line = b'{"error":{"code":-32700,"message":"Parse error"}}'
    assert only(peer, line) == Stray("no_id", None, ErrorObject(-32700, "Parse error"), line)
    assert len(peer.unanswered) == 1


def test_the_answer_to_a_request_that_was_given_up_is_late_once() -> None:
    peer = client()
    id, _ = peer.request("a", "slot")
    peer.abandon(id)
    assert peer.unanswered == []
    line = b'{"id":0,"result":1}'
    assert only(peer, line) == Stray("late", 0, None, line)
    assert only(peer, line) == Stray("duplicate", 0, None, line)


def test_a_late_error_is_late_too() -> None:
    peer = client()
    peer.abandon(peer.request("a", "slot")[0])
    line = b'{"id":0,"error":{"code":-32800,"message":"cancelled"}}'
    error = ErrorObject(codes.REQUEST_CANCELLED, "cancelled")
    assert only(peer, line) == Stray("late", 0, error, line)


@pytest.mark.parametrize("end", list(End))
def test_an_invalid_answer_to_a_request_that_was_given_up_is_late_too(end: End) -> None:
    peer: PeerState[str] = PeerState(end)
    peer.abandon(peer.request("a", "slot")[0])
    assert only(peer, b'{"id":0}') == Stray("late", 0, None, b'{"id":0}')


def test_giving_up_twice_or_after_the_answer_or_what_was_never_asked_does_nothing() -> None:
    peer = client()
    id, _ = peer.request("a", "slot")
    line = b'{"id":0,"result":1}'
    received(peer, line)
    peer.abandon(id)
    peer.abandon(id)
    peer.abandon(77)
    assert only(peer, line) == Stray("duplicate", 0, None, line)


def test_requests_given_up_long_ago_are_forgotten_and_recent_ones_are_not() -> None:
    peer = client()
    for _ in range(REMEMBERED + 1):
        peer.abandon(peer.request("a", "")[0])
    oldest, kept = b'{"id":0,"result":1}', b'{"id":1,"result":1}'
    assert received(peer, oldest, kept) == [
        Stray("duplicate", 0, None, oldest),
        Stray("late", 1, None, kept),
    ]


def test_a_peer_waits_while_a_request_of_its_own_has_no_answer() -> None:
    peer = client()
    assert not peer.pending
    peer.request("a", "")
    peer.notification("b")
    assert peer.pending
    received(peer, b'{"id":0,"result":1}')
    assert not peer.pending


def test_an_id_is_not_used_again_after_its_request_was_given_up() -> None:
    peer = client()
    peer.abandon(peer.request("a", "")[0])
    assert peer.request("a", "")[0] == 1


# -- answering


def test_a_request_of_theirs_is_open_until_it_is_answered() -> None:
    peer = agent()
    line = b'{"id":"x","method":"a","params":{}}'
    assert only(peer, line) == Request("x", "a", Raw(b"{}"), line)
    assert peer.is_open("x")
    assert peer.result("x", {"y": 1}) == b'{"jsonrpc":"2.0","id":"x","result":{"y":1}}'
    assert not peer.is_open("x")


def test_a_request_of_theirs_may_be_answered_with_an_error() -> None:
    peer = agent(jsonrpc=False)
    received(peer, b'{"id":0,"method":"a"}')
    assert peer.failure(0, -32602, "bad", [1]) == (
        b'{"id":0,"error":{"code":-32602,"message":"bad","data":[1]}}'
    )
    assert not peer.is_open(0)


def test_a_request_is_answered_once_at_most() -> None:
    peer = agent()
    received(peer, b'{"id":0,"method":"a"}')
    peer.result(0, None)
    with pytest.raises(UsageError, match="no open request"):
        peer.result(0, None)
    with pytest.raises(UsageError, match="no open request"):
        peer.failure(0, 1, "no")


@pytest.mark.parametrize("id", ["1", 0, "x"])
def test_only_a_request_that_came_can_be_answered(id: int | str) -> None:
    peer = agent()
    received(peer, b'{"id":1,"method":"a"}')
    with pytest.raises(UsageError):
        peer.result(id, None)
    assert peer.is_open(1)


@pytest.mark.parametrize("end", list(End))
def test_a_request_with_an_id_that_is_still_open_is_refused(end: End) -> None:
    peer: PeerState[str] = PeerState(end)
    line = b'{"id":7,"method":"a"}'
    received(peer, line)
    event = only(peer, line)
    assert isinstance(event, Repeated)
    assert event.request == Request(7, "a", NO_PARAMS, line)
    answer = json.loads(event.reply)
    assert answer["id"] == 7
    assert answer["error"]["code"] == codes.INVALID_REQUEST
    assert peer.is_open(7)
    peer.result(7, None)
    assert isinstance(only(peer, line), Request)


def test_one_and_the_string_one_are_different_requests() -> None:
    peer = agent()
    one, other = b'{"id":1,"method":"a"}', b'{"id":"1","method":"a"}'
    assert [type(event) for event in received(peer, one, other)] == [Request, Request]
    assert peer.result("1", None) == b'{"jsonrpc":"2.0","id":"1","result":null}'
    assert peer.is_open(1)


def test_equal_ids_of_the_two_directions_have_nothing_to_do_with_each_other() -> None:
    peer = client()
    id, _ = peer.request("ours", "slot")
    theirs = b'{"id":0,"method":"theirs"}'
    assert only(peer, theirs) == Request(0, "theirs", NO_PARAMS, theirs)
    assert id == 0
    peer.result(0, "done")
    assert [request.method for request in peer.unanswered] == ["ours"]
    line = b'{"id":0,"result":"ok"}'
    assert only(peer, line) == ResultReceived("slot", 0, Raw(b'"ok"'), line)


def test_an_answer_does_not_close_a_request_of_theirs() -> None:
    peer = client()
    peer.request("ours", "slot")
    received(peer, b'{"id":0,"method":"theirs"}', b'{"id":0,"result":1}')
    assert peer.is_open(0)


# -- half-duplex


def test_half_duplex_allows_one_request_at_a_time() -> None:
    peer = client(half_duplex=True)
    peer.request("a", "first")
    with pytest.raises(RequestInProgress, match="b cannot be sent"):
        peer.request("b", "second")
    assert [request.slot for request in peer.unanswered] == ["first"]
    received(peer, b'{"id":0,"result":1}')
    assert peer.request("b", "second")[0] == 1


@pytest.mark.parametrize(
    "line", [b'{"id":0,"result":1}', b'{"id":0,"error":{"code":1,"message":""}}', b'{"id":0}']
)
def test_half_duplex_waits_for_the_answer_to_a_request_that_was_given_up(line: bytes) -> None:
    peer = client(half_duplex=True)
    peer.abandon(peer.request("a", "first")[0])
    with pytest.raises(PeerBusy, match="b was not sent.*still working on a, which") as busy:
        peer.request("b", "second")
    error = busy.value
    assert (error.blame, error.retryable, error.may_have_run) == ("peer", True, False)
    received(peer, line)
    assert peer.request("b", "second")[0] == 1


def test_half_duplex_does_not_hold_back_notifications_and_answers() -> None:
    peer = client(half_duplex=True)
    peer.request("a", "first")
    received(peer, b'{"id":0,"method":"theirs"}')
    peer.notification("b")
    peer.result(0, None)


# -- bad input


def test_an_agent_answers_what_is_not_json_with_a_parse_error() -> None:
    assert reply_to(agent(), b"hello") == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": codes.PARSE_ERROR, "message": "Parse error"},
    }


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'[{"id":1,"method":"a"}]',
        b"5",
        b"{}",
        b'{"foo":"boo"}',
        b'{"id":3}',
        b'{"id":true}',
        b'{"id":null,"method":"a"}',
        b'{"id":true,"method":"a"}',
        b'{"id":1,"method":5}',
    ],
)
def test_an_agent_answers_json_that_is_not_a_message_as_an_invalid_request(line: bytes) -> None:
    peer = agent(jsonrpc=False)
    assert reply_to(peer, line) == {
        "id": None,
        "error": {"code": codes.INVALID_REQUEST, "message": "Invalid Request"},
    }
    assert isinstance(only(peer, b'{"id":1,"method":"a"}'), Request)


@pytest.mark.parametrize("line", [b'{"result":1}', b'{"id":true,"result":1}'])
def test_a_response_is_never_answered(line: bytes) -> None:
    assert reply_to(agent(), line) is None


@pytest.mark.parametrize(
    "line", [b"hello", b"[]", b"5", b"{}", b'{"id":3}', b'{"id":null,"method":"a"}', b"\xff"]
)
def test_a_client_reports_bad_input_as_noise_and_answers_nothing(line: bytes) -> None:
    peer = client()
    assert reply_to(peer, line) is None
    assert isinstance(only(peer, b'{"method":"a"}'), Notification)


def test_the_answer_to_bad_input_is_never_answered_in_turn() -> None:
    one, other = agent(), agent()
    event = only(one, b"hello")
    assert isinstance(event, Noise)
    assert event.reply is not None
    assert isinstance(only(other, event.reply), Stray)


def test_noise_says_why() -> None:
    event = only(client(), b"[]")
    assert event == Noise(b"[]", "batches are not supported", None)


@pytest.mark.parametrize("end", list(End))
def test_blank_lines_are_nothing(end: End) -> None:
    peer: PeerState[str] = PeerState(end)
    assert peer.receive(b"\n\r\n  \t\n") == []


def test_an_id_that_could_not_be_sent_back_is_refused_at_once() -> None:
    peer = agent()
    line = b'{"id":"' + b"x" * (messages.MAX_ID_LENGTH + 1) + b'","method":"a"}'
    assert reply_to(peer, line)["error"]["code"] == codes.INVALID_REQUEST


def test_events_come_in_the_order_of_the_lines() -> None:
    peer = agent()
    peer.request("a", "slot")
    events = received(
        peer,
        b'{"method":"n"}',
        b"noise",
        b'{"id":0,"result":1}',
        b'{"id":0,"method":"q"}',
        b"",
        b'{"id":0,"method":"q"}',
        b'{"id":0,"error":1}',
        b'{"id":true,"method":"\\ud83d"}',
        b'{"method":"n"}',
    )
    assert [type(event) for event in events] == [
        Notification,
        Noise,
        ResultReceived,
        Request,
        Repeated,
        Stray,
        Noise,
        Notification,
    ]


# -- the end


def test_the_end_of_the_stream_names_every_unanswered_request_oldest_first() -> None:
    peer = client()
    for method in ("a", "b", "c", "d"):
        peer.request(method, method.upper())
    peer.abandon(3)
    received(peer, b'{"id":1,"result":1}')
    assert peer.receive_end() == []
    assert peer.unanswered == [Unanswered(0, "a", "A"), Unanswered(2, "c", "C")]


def test_a_last_line_without_a_newline_counts() -> None:
    peer = client()
    peer.request("a", "slot")
    line = b'{"id":0,"result":1}'
    assert peer.receive(line) == []
    assert peer.receive_end() == [ResultReceived("slot", 0, Raw(b"1"), line)]
    assert peer.receive_end() == []


@pytest.mark.parametrize("end", list(End))
def test_a_line_cut_off_by_the_end_is_noise_without_an_answer(end: End) -> None:
    peer: PeerState[str] = PeerState(end)
    assert peer.receive(b'{"id":0,"resu') == []
    assert peer.receive_end() == [Noise(b'{"id":0,"resu', "not JSON", None)]


def test_a_last_line_loses_one_carriage_return_only() -> None:
    peer = client()
    assert peer.receive(b"x\r\r") == []
    assert peer.receive_end() == [Noise(b"x\r", "not JSON", None)]


@pytest.mark.parametrize("rest", [b"", b"  ", b"\r", b"\xef\xbb\xbf"])
def test_a_blank_rest_at_the_end_is_nothing(rest: bytes) -> None:
    peer = agent()
    assert peer.receive(rest) == []
    assert peer.receive_end() == []


# -- sizes


def overrun(events: list[Event[str]], limit: int) -> bool:
    """Whether the last event, and no other, says that a line was too long."""
    found = [event for event in events if isinstance(event, Overrun)]
    if not found:
        return False
    (last,) = found
    assert events[-1] is last
    assert isinstance(last.error, LineTooLong)
    assert last.error.limit == limit
    return True


def test_a_line_over_the_limit_is_an_overrun_once_and_nothing_comes_after_it() -> None:
    peer = client(max_line_size=20)
    events = received(peer, b'{"method":"a"}', b"x" * 21, b'{"method":"b"}')
    assert [type(event) for event in events] == [Notification, Overrun]
    assert overrun(events, 20)
    assert received(peer, b'{"method":"c"}') == []
    assert peer.receive_end() == []


def test_an_overrun_is_reported_before_the_newline_comes() -> None:
    peer = client(max_line_size=20)
    assert peer.receive(b"x" * 20) == []
    assert overrun(peer.receive(b"x"), 20)


def test_an_overrun_may_be_noticed_at_the_end_only() -> None:
    peer = client(max_line_size=1)
    assert peer.receive(b"\xef\xbb") == []
    assert overrun(peer.receive_end(), 1)
    assert peer.receive_end() == []


def test_a_request_of_exactly_the_limit_is_sent() -> None:
    size = len(client().request("a", "", "x" * 50)[1])
    peer = client(max_line_size=size)
    assert len(peer.request("a", "", "x" * 50)[1]) == size
    with pytest.raises(MessageTooLong):
        peer.request("a", "", "x" * 51)


def test_a_request_over_the_limit_changes_nothing() -> None:
    peer = client(max_line_size=60)
    with pytest.raises(MessageTooLong) as caught:
        peer.request("a", "slot", "x" * 60)
    assert caught.value.limit == 60
    assert caught.value.size > 60
    assert peer.unanswered == []
    assert peer.request("a", "slot")[0] == 0


def test_a_request_over_the_limit_does_not_occupy_a_half_duplex_connection() -> None:
    peer = client(max_line_size=60, half_duplex=True)
    with pytest.raises(MessageTooLong):
        peer.request("a", "slot", "x" * 60)
    peer.request("a", "slot")


def test_a_notification_over_the_limit_is_refused() -> None:
    with pytest.raises(MessageTooLong):
        client(max_line_size=60).notification("a", "x" * 60)


def test_an_answer_over_the_limit_leaves_the_request_open() -> None:
    peer = agent(max_line_size=80)
    received(peer, b'{"id":0,"method":"a"}')
    with pytest.raises(MessageTooLong):
        peer.result(0, "x" * 80)
    with pytest.raises(MessageTooLong):
        peer.failure(0, 1, "x" * 80)
    assert peer.is_open(0)
    peer.failure(0, 1, "too long")
    assert not peer.is_open(0)


def test_what_cannot_be_written_changes_nothing() -> None:
    peer = agent()
    received(peer, b'{"id":0,"method":"a"}')
    with pytest.raises(UsageError):
        peer.request("a", "slot", object())
    with pytest.raises(UsageError):
        peer.result(0, object())
    with pytest.raises(UsageError):
        peer.failure(0, 1, "no", object())
    assert peer.unanswered == []
    assert peer.is_open(0)
    assert peer.request("a", "slot")[0] == 0


# -- two ends in one process


@pytest.mark.parametrize(
    "params", [{"a": "x"}, {"a": 'a "params": \\ within'}, {"a": "x" * 5_000}, []]
)
def test_a_notification_of_a_link_reads_as_its_line_does(params: Any) -> None:
    told = LinkState[str](End.AGENT).told("news", params)
    assert json.loads(told.line) == {"jsonrpc": "2.0", "method": "news", "params": params}
    (read,) = received(client(), told.line + b"\n")
    assert isinstance(read, Notification)
    assert (told.method, json.loads(bytes(told.params))) == (read.method, params)
    assert json.loads(bytes(read.params)) == params


def test_a_notification_of_a_link_without_params_has_none() -> None:
    told = LinkState[str](End.AGENT).told("news")
    assert told.params == NO_PARAMS
    assert json.loads(told.line) == {"jsonrpc": "2.0", "method": "news"}


def test_a_notification_that_is_too_long_does_not_enter_a_link() -> None:
    with pytest.raises(MessageTooLong):
        LinkState[str](End.AGENT, max_line_size=100).told("news", {"a": "x" * 100})


def test_a_link_reads_messages_and_lines_in_their_order() -> None:
    near, far = LinkState[str](End.CLIENT), LinkState[str](End.AGENT)
    id, line = near.request("ask", "slot", {})
    (request,) = far.receive([line.rstrip(b"\n")])
    assert isinstance(request, Request)
    first, last = far.told("first", {}), far.told("last", {})
    answer = far.result(id, {"ok": True}).rstrip(b"\n")
    one, two, three = near.receive([first, answer, last])
    assert (one, three) == (first, last)
    assert isinstance(two, ResultReceived) and two.slot == "slot"


def test_a_request_that_was_given_up_is_owed_until_its_response_comes() -> None:
    peer = client()
    id, _ = peer.request("m", "slot")
    assert not peer.owes_answers
    peer.abandon(id)
    assert peer.owes_answers
    received(peer, b'{"jsonrpc":"2.0","id":0,"result":1}')
    assert not peer.owes_answers
