"""How a turn ended, and what an error says about it."""

from __future__ import annotations

import pytest

from dragoman.client.results import (
    MAX_STDERR_SIZE,
    PeerEnd,
    Result,
    add_stderr,
    error_kind,
    explain,
    failure_record,
    outcome_with,
    own_error,
    peer_end,
    split_stderr,
    stderr_of,
    with_end,
    with_stderr,
)
from dragoman.errors import (
    AdapterFailed,
    AuthRequired,
    BrokerBusy,
    BudgetExceeded,
    CallCancelled,
    ConnectionClosed,
    DragomanError,
    InvalidAnswer,
    LineTooLong,
    PeerBusy,
    PolicyNotEnforced,
    ProcessExited,
    ProtocolMismatch,
    RemoteError,
    TurnFailed,
    UsageError,
)
from dragoman.events.parts import Failure
from dragoman.events.words import ErrorKind, Outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (AuthRequired(), Outcome.AUTH_REQUIRED),
        (CallCancelled(-32800, "x"), Outcome.CANCELLED),
        (RemoteError(-32603, "broken"), Outcome.FAILED),
        (RemoteError(-32601, "what?"), Outcome.UNSUPPORTED),
        (RemoteError(429, "slow down"), Outcome.QUOTA),
        (BudgetExceeded("total", 1), Outcome.TIMED_OUT),
        (InvalidAnswer("x"), Outcome.PROTOCOL_ERROR),
        (ProtocolMismatch("x"), Outcome.PROTOCOL_ERROR),
        (ConnectionClosed(), Outcome.CANCELLED),
        (ProcessExited(exit_code=1), Outcome.CRASHED),
        (LineTooLong(1), Outcome.PROTOCOL_ERROR),
        (BrokerBusy("x"), Outcome.FAILED),
        (PeerBusy("x", "y"), Outcome.FAILED),
        (UsageError("x"), Outcome.FAILED),
        (AdapterFailed("x", "x.py", "x"), Outcome.FAILED),
        (TurnFailed("refused"), Outcome.REFUSED),
        (PolicyNotEnforced("x", "x"), Outcome.FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_an_outcome_and_none_is_good(
    error: DragomanError, outcome: Outcome
) -> None:
    found, failure = explain(error)
    assert found is outcome
    assert not found.good
    assert failure.message == str(error)
    passing = failure.kind.retryable if isinstance(error, RemoteError) else error.retryable
    assert failure.retryable is passing


@pytest.mark.parametrize(
    ("result", "blame", "retryable", "said"),
    [
        (
            Result(Outcome.REFUSED, "no", "refusal"),
            "peer",
            False,
            "the turn ended as refused: refusal",
        ),
        (
            Result(Outcome.QUOTA, "", failure=Failure("429", ErrorKind.RATE_LIMITED, None, True)),
            "peer",
            True,
            "the turn ended as quota: 429",
        ),
        (Result(Outcome.EMPTY, ""), "peer", False, "the turn ended as empty"),
        (Result(Outcome.DENIED, ""), "us", False, "the turn ended as denied"),
        (Result(Outcome.CANCELLED, ""), "us", False, "the turn ended as cancelled"),
    ],
    ids=lambda value: value.outcome if isinstance(value, Result) else None,
)
def test_a_turn_without_success_and_without_an_error_raises_an_error_of_its_own(
    result: Result, blame: str, retryable: bool, said: str
) -> None:
    with pytest.raises(TurnFailed) as caught:
        result.require_ok()
    error = caught.value
    assert (str(error), error.outcome) == (said, result.outcome)
    assert (error.blame, error.retryable, error.may_have_run) == (blame, retryable, True)


def test_the_code_and_the_data_of_a_refusal_are_kept() -> None:
    _, failure = explain(RemoteError(-32603, "broken", {"details": "x"}))
    assert (failure.code, failure.data) == (-32603, {"details": "x"})


@pytest.mark.parametrize(
    ("code", "message", "data", "kind"),
    [
        (-32000, "login", None, ErrorKind.AUTH_REQUIRED),
        (-32002, "x", None, ErrorKind.NOT_FOUND),
        (-32603, "Session abc not found", None, ErrorKind.NOT_FOUND),
        (-32603, "x", {"details": "quota exceeded"}, ErrorKind.RATE_LIMITED),
        (-32603, "x", {"details": "401 bad key"}, ErrorKind.AUTH_REQUIRED),
        (-32603, "x", {"details": "400 of 401 are gone"}, ErrorKind.INTERNAL),
        (-32603, "x", {"details": 'Invalid session identifier "a"'}, ErrorKind.NOT_FOUND),
        (-32603, "x", {"details": "No previous sessions found"}, ErrorKind.NOT_FOUND),
        (-32603, "x", [{"path": ["a"]}], ErrorKind.INVALID_PARAMS),
        (-32603, "x", None, ErrorKind.INTERNAL),
        (
            -32603,
            "Internal error",
            {"message": "unexpected status 401 Unauthorized: no key"},
            ErrorKind.AUTH_REQUIRED,
        ),
        (-32603, "x", {"message": "unexpected status 403 Forbidden"}, ErrorKind.AUTH_REQUIRED),
        (-32603, "x", {"message": "unexpected status 429: slow"}, ErrorKind.RATE_LIMITED),
        (-32603, "x", {"error": {"statusCode": 429}}, ErrorKind.RATE_LIMITED),
        (-32603, "x", {"error": {"status": 401}}, ErrorKind.AUTH_REQUIRED),
        (-32603, "Invalid API key", None, ErrorKind.AUTH_REQUIRED),
        (-32603, "x", "insufficient_quota", ErrorKind.RATE_LIMITED),
        (-32603, "x", {"status": True}, ErrorKind.INTERNAL),
        (400, '{"error":{"message":"API key not valid"}}', None, ErrorKind.AUTH_REQUIRED),
        (400, '{"error":{"message":"fake http error"}}', None, ErrorKind.PEER),
        (-32603, "wrote 401 lines", None, ErrorKind.INTERNAL),
        (-32600, "no rollout found for thread id x", None, ErrorKind.NOT_FOUND),
        (-32600, "Invalid request: unknown variant `session/x`", None, ErrorKind.METHOD_NOT_FOUND),
        (-32600, "x", None, ErrorKind.INVALID_PARAMS),
        (4711, "Session abc not found", None, ErrorKind.PEER),
    ],
)
def test_the_words_of_an_error_refine_its_code(
    code: int, message: str, data: object, kind: ErrorKind
) -> None:
    assert error_kind(code, message, data) is kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"error": {"message": "no", "code": "401"}}, ErrorKind.AUTH_REQUIRED),
        ({"errors": [{"statusCode": 429}]}, ErrorKind.RATE_LIMITED),
        ({"error": {"message": "no", "code": "insufficient_quota"}}, ErrorKind.RATE_LIMITED),
        ({"error": {"message": "no", "status": "RESOURCE_EXHAUSTED"}}, ErrorKind.RATE_LIMITED),
        ({"error": {"message": "no", "type": "authentication_error"}}, ErrorKind.AUTH_REQUIRED),
        ({"message": "the server sent 429 errors"}, ErrorKind.RATE_LIMITED),
        ({"message": "it found 429 files"}, ErrorKind.INTERNAL),
        ({"message": "write failed: Disk quota exceeded"}, ErrorKind.INTERNAL),
        ({"code": "ENOENT", "status": True}, ErrorKind.INTERNAL),
    ],
)
def test_a_limit_or_a_login_is_known_by_the_status_or_the_name_in_the_data(
    data: object, kind: ErrorKind
) -> None:
    assert error_kind(-32603, "Internal error", data) is kind


def test_a_good_result_is_given_back_and_a_bad_one_raises_what_it_knows() -> None:
    good = Result(Outcome.OK, "text")
    assert good.require_ok() is good
    error = RemoteError(1, "broken")
    with pytest.raises(RemoteError, match="broken"):
        Result(Outcome.FAILED, "", error=error).require_ok()
    with pytest.raises(DragomanError, match="ended as refused: refusal"):
        Result(Outcome.REFUSED, "", "refusal").require_ok()
    with pytest.raises(DragomanError, match="ended as failed: why"):
        Result(Outcome.FAILED, "", failure=Failure("why")).require_ok()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_turn_is_denied_if_something_was_denied_and_nothing_approved(outcome: Outcome) -> None:
    words = {"ok", "empty", "refused", "truncated", "failed", "unknown", "cancelled"}
    expected = Outcome.DENIED if outcome.value in words else outcome
    assert outcome_with(outcome, denials=1, approvals=0, cancelled=False) is expected
    assert outcome_with(outcome, denials=0, approvals=0, cancelled=False) is outcome
    assert outcome_with(outcome, denials=2, approvals=1, cancelled=False) is outcome


def test_a_turn_that_we_cancelled_is_cancelled() -> None:
    told = outcome_with(Outcome.CANCELLED, denials=1, approvals=0, cancelled=True)
    assert told is Outcome.CANCELLED


def failed(tail: str, *, code: int = -32603, data: object = None) -> RemoteError:
    error = RemoteError(code, "Internal error", data)
    error.stderr_tail = tail
    return error


def test_the_end_of_stderr_is_cut_where_a_line_or_a_word_begins() -> None:
    assert stderr_of(failed("a\nb\n")) == "a\nb\n"
    assert stderr_of(failed("half\n" + "x" * MAX_STDERR_SIZE + "\nthe end")) == "the end"
    assert stderr_of(failed("x" * MAX_STDERR_SIZE + " the end")) == "the end"
    assert stderr_of(failed("x" * (MAX_STDERR_SIZE + 1))) == ""
    assert stderr_of(None) == stderr_of(ProcessExited(exit_code=1, stderr_tail="x")) == ""


def test_stderr_travels_beside_the_data_of_the_agent() -> None:
    for data in (None, {"incident": "1"}):
        told = with_stderr(data, "traceback")
        assert told["dragoman"] == {"stderrTail": "traceback"}
        assert split_stderr(told) == ("traceback", data)
    assert with_stderr({"x": 1}, "") == {"x": 1}
    assert with_stderr("text", "traceback") == "text"
    for other in (None, "text", {"dragoman": 1}, {"dragoman": {"stderrTail": 1}}):
        assert split_stderr(other) == ("", other)


def test_an_internal_error_gets_the_stderr_of_who_is_nearest_to_the_agent() -> None:
    near = add_stderr(failed("", data=with_stderr({"incident": "1"}, "theirs")), lambda: "ours")
    assert (near.stderr_tail, near.data, near.incident) == ("theirs", {"incident": "1"}, "1")
    assert add_stderr(failed(""), lambda: "ours").stderr_tail == "ours"
    assert add_stderr(failed("known"), lambda: "ours").stderr_tail == "known"
    assert add_stderr(failed("", code=429), lambda: "ours").stderr_tail == ""


def test_an_error_that_an_agent_prints_besides_sending_it_is_not_repeated() -> None:
    printed = (
        "before\nError handling request {\n  id: 3,\n  params: {\n    prompt: [ [Object] ]\n  }\n"
        "} {\n  code: -32603,\n  data: { details: '401' }\n}\nafter\n"
    )
    assert add_stderr(failed(""), lambda: printed).stderr_tail == "before\nafter\n"
    cut = printed.partition("} {")[0]
    assert add_stderr(failed(""), lambda: cut).stderr_tail == cut


def test_a_job_stores_the_stderr_with_the_failure() -> None:
    failure = Failure("broken", ErrorKind.PEER, -32603)
    assert failure_record(failure, failed("why"))["stderr_tail"] == "why"
    assert "stderr_tail" not in failure_record(failure, None)
    assert failure_record(failure, None)["message"] == "broken"


FAILURE = Failure("slow down", ErrorKind.RATE_LIMITED, "rate_limit", True, {"after": 3})


def test_how_a_peer_ended_a_turn_travels_in_the_data_of_an_error() -> None:
    reported = Result(Outcome.QUOTA, "", "error", FAILURE)
    error = RemoteError(-32603, "slow down", with_end({"outcome": "quota"}, reported))
    end = peer_end(error)
    assert end == PeerEnd(Outcome.QUOTA, "error", FAILURE)
    assert own_error(error, end) is None
    assert explain(error) == (Outcome.QUOTA, FAILURE)


def test_an_error_of_the_peer_is_restored_with_its_own_data() -> None:
    theirs = RemoteError(-32000, "slow down", {"after": 3})
    result = Result(Outcome.QUOTA, "", "remote_error", FAILURE, error=theirs)
    error = RemoteError(-32000, "slow down", with_end({"outcome": "quota"}, result))
    error.stderr_tail = "429"
    end = peer_end(error)
    assert end is not None
    own = own_error(error, end)
    assert isinstance(own, RemoteError)
    assert (own.code, own.message, own.data, own.stderr_tail) == (
        *(-32000, "slow down", {"after": 3}),
        "429",
    )


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"dragoman": 3},
        {"dragoman": {}},
        {"dragoman": {"ended": {"outcome": "new word"}}},
        {"dragoman": {"ended": {"outcome": "ok"}}},
    ],
)
def test_an_error_without_a_bad_end_of_the_peer_is_an_error(data: object) -> None:
    assert peer_end(RemoteError(-32603, "no", data)) is None
    assert peer_end(UsageError("no")) is None


def test_stderr_and_the_end_of_a_turn_travel_together() -> None:
    data = with_end(None, Result(Outcome.FAILED, "", "error"))
    tail, rest = split_stderr(with_stderr(data, "traceback"))
    assert (tail, rest) == ("traceback", data)
    assert with_end(["x"], Result(Outcome.FAILED, "")) == ["x"]
