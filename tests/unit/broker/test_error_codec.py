"""Errors that happen in a broker are raised at the caller as if they had happened there."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.broker.error_codec import (
    MAX_TEXT_SIZE,
    VERDICT,
    busy,
    describe,
    notice_in,
    refusal,
    revive,
    with_notice,
)
from dragoman.errors import (
    AuthRequired,
    BrokerBusy,
    BudgetExceeded,
    CallError,
    CallTimeout,
    ConnectionClosed,
    DragomanError,
    HandshakeFailed,
    NotInstalled,
    ProcessExited,
    ProgramNotFound,
    RemoteError,
    UnknownJob,
    UsageError,
)

ERRORS: list[DragomanError] = [
    NotInstalled("kimi", "no kimi on the PATH", remedy="npm install", looked_for=["kimi"]),
    HandshakeFailed("it only said hello", exit_code=2, stderr_tail="usage", noise=["hello"]),
    HandshakeFailed("no answer", timed_out=True),
    ProcessExited(exit_code=None, signal=9, stderr_tail="killed"),
    ProgramNotFound("nonesuch"),
    BudgetExceeded("silence", 30),
    AuthRequired(hint="run: agent login"),
    RemoteError(-32603, "Internal error", {"details": "no"}),
    busy(100),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_its_way_over_the_wire(error: DragomanError) -> None:
    data = msgspec.json.decode(msgspec.json.encode(describe(error)))
    revived = revive(data)
    assert type(revived) is type(error)
    assert revived is not None
    assert str(revived) == str(error)
    assert (revived.blame, revived.retryable) == (error.blame, error.retryable)
    assert vars(revived) == vars(error)


def test_one_request_too_many_is_distinguished_from_a_failure_of_the_peer() -> None:
    revived = revive(describe(busy(100)))
    assert isinstance(revived, BrokerBusy)
    assert revived.retryable and not revived.may_have_run


@pytest.mark.parametrize("data", [None, "x", {}, {"dragoman": 1}, {"dragoman": {"errorClass": 3}}])
def test_what_is_not_ours_stays_what_it_is(data: object) -> None:
    assert revive(data) is None


def test_a_kind_from_the_future_is_taken_for_the_nearest_that_is_known() -> None:
    told = {"errorClass": "spawn_failed", "kind": "OutOfSpawns", "message": "no"}
    revived = revive({"dragoman": told})
    assert type(revived).__name__ == "SpawnError"
    unheard_of = revive({"dragoman": {"errorClass": "unheard_of", "message": "why"}})
    assert type(unheard_of) is CallError and str(unheard_of) == "why"
    assert str(revive({"dragoman": {"errorClass": "unheard_of"}}, "the message")) == "the message"


def test_an_unknown_class_keeps_blame_and_whether_it_may_be_retried_or_have_run() -> None:
    told = describe(NotInstalled("kimi", "no kimi on the PATH"))
    told["dragoman"] |= {"errorClass": "unheard_of", "kind": "UnheardOf"}
    revived = revive(told)
    assert type(revived) is CallError
    expected = [NotInstalled.blame, NotInstalled.retryable, NotInstalled.may_have_run]
    assert [getattr(revived, name) for name in VERDICT] == expected


def test_details_cannot_overwrite_what_is_not_theirs() -> None:
    details = {"__class__": "x", "_a": 1, "fresh": "x", "add_note": 1, "b": 2}
    revived = revive({"dragoman": {"errorClass": "broken", "message": "m", "details": details}})
    assert revived is not None and vars(revived) == {"b": 2}
    assert str(revived.fresh()) == "m"


def test_a_verdict_of_the_wrong_type_does_not_count() -> None:
    details = {"blame": 1, "retryable": 0, "may_have_run": "no"}
    revived = revive({"dragoman": {"errorClass": "timeout", "message": "m", "details": details}})
    assert [getattr(revived, name) for name in VERDICT] == ["peer", True, True]


def test_what_json_has_not_is_left_out_and_long_texts_keep_their_end() -> None:
    error = HandshakeFailed("no", stderr_tail="x" * MAX_TEXT_SIZE + "the end")
    error.odd = object()  # type: ignore[attr-defined]
    details = describe(error)["dragoman"]["details"]
    assert "odd" not in details
    assert len(details["stderr_tail"]) == MAX_TEXT_SIZE
    assert details["stderr_tail"].endswith("the end")


def test_errors_travel_with_their_class_and_those_of_the_peer_as_they_are() -> None:
    found = {
        type(error).__name__: refusal(error)
        for error in (BrokerBusy("b"), UnknownJob("j"), UsageError("u"), ConnectionClosed())
    }
    assert {name: each.code for name, each in found.items()} == {
        "BrokerBusy": -32050,
        "UnknownJob": -32002,
        "UsageError": -32602,
        "ConnectionClosed": -32603,
    }
    assert found["BrokerBusy"].data["dragoman"]["errorClass"] == "broker_busy"
    theirs = refusal(RemoteError(-1, "no", {"x": 1}))
    assert (theirs.code, theirs.message, theirs.data) == (-1, "no", {"x": 1})


@pytest.mark.parametrize(
    "error", [UnknownJob("j"), RemoteError(-1, "no"), RemoteError(-1, "no", {})]
)
def test_a_notice_travels_with_an_error_and_does_not_change_it(error: DragomanError) -> None:
    plain = refusal(error)
    sent = with_notice(plain, "a question was declined")
    assert str(sent) == str(plain)
    received = revive(sent.data, sent.message) or sent
    if received is not sent:
        received.__cause__ = sent
    assert (type(received), str(received)) == (type(error), str(error))
    assert notice_in(received) == "a question was declined"
    assert with_notice(plain, "") is plain and notice_in(error) is None


def test_a_notice_is_left_out_where_the_data_of_an_error_has_no_room() -> None:
    theirs = RemoteError(-1, "no", "disk full")
    assert with_notice(theirs, "a question was declined") is theirs


@pytest.mark.parametrize("data", [None, "disk full", {"details": "disk full"}])
def test_an_error_of_the_peer_keeps_that_nothing_ran(data: object) -> None:
    error = RemoteError(-32603, "no", data)
    error.may_have_run = False
    error.stderr_tail = "Traceback"
    told = refusal(error)
    assert (told.code, told.message) == (-32603, "no")
    if isinstance(data, dict):
        assert told.data.items() >= data.items()
    revived = revive(told.data, told.message)
    assert type(revived) is RemoteError
    assert (str(revived), vars(revived)) == (str(error), vars(error))


def test_an_error_described_by_a_gateway_keeps_that_nothing_ran() -> None:
    error = refusal(CallTimeout("thread/start", 5.0))
    error.may_have_run = False
    revived = revive(refusal(error).data)
    assert type(revived) is CallTimeout
    assert not revived.may_have_run
