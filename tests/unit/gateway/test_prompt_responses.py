"""Results and errors as a client of ACP gets them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from dragoman.client.results import PeerEnd, Result, peer_end, stop_of
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.errors import (
    AuthRequired,
    DragomanError,
    InvalidAnswer,
    ProcessExited,
    ProtocolMismatch,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Failure, Usage
from dragoman.events.words import Outcome
from dragoman.gateway import prompt_responses
from tests.unit.events.sayings import make, place

SOURCE = model.Source("acp", "c1")


@pytest.mark.parametrize(
    ("outcome", "stop", "reason"),
    [
        (Outcome.OK, "completed", "end_turn"),
        (Outcome.EMPTY, "", "end_turn"),
        (Outcome.DENIED, "", "end_turn"),
        (Outcome.REFUSED, "", "refusal"),
        (Outcome.TRUNCATED, "length", "max_tokens"),
        (Outcome.TRUNCATED, "max_turn_requests", "max_turn_requests"),
        (Outcome.CANCELLED, "interrupted", "cancelled"),
    ],
)
def test_an_outcome_is_a_stop_reason(outcome: Outcome, stop: str, reason: str) -> None:
    assert prompt_responses.response(Result(outcome, "", stop), None).stop_reason == reason


@pytest.mark.parametrize(
    "outcome",
    [Outcome.FAILED, Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.QUOTA, Outcome.UNKNOWN,
     Outcome.PROTOCOL_ERROR, Outcome.UNSUPPORTED],
)  # fmt: skip
def test_a_turn_that_failed_is_an_error_and_never_a_quiet_end(outcome: Outcome) -> None:
    with pytest.raises(RemoteError) as caught:
        prompt_responses.response(Result(outcome, "", "why", Failure("because")), None)
    assert (caught.value.code, caught.value.message) == (-32603, "because")
    assert caught.value.data["outcome"] == outcome.value
    assert peer_end(caught.value) == PeerEnd(outcome, "why", Failure("because"))


def test_a_login_that_is_wanted_has_the_code_for_it() -> None:
    with pytest.raises(RemoteError) as caught:
        prompt_responses.response(Result(Outcome.AUTH_REQUIRED, ""), None)
    assert caught.value.code == -32000


def test_the_answer_of_a_peer_that_speaks_acp_is_kept_whole() -> None:
    raw = b'{"id":1,"result":{"stopReason":"end_turn","usage":{"totalTokens":3},"_meta":{"a":1}}}'
    ended = model.TurnEnded(SOURCE, 1, "s", "t", "session/prompt", raw, False, Outcome.OK)
    response = prompt_responses.response(Result(Outcome.OK, ""), ended)
    assert (response.meta, response.extra) == ({"a": 1}, {"usage": {"totalTokens": 3}})
    timed_out = model.TurnEnded(
        SOURCE, 1, "s", "t", "session/prompt", raw, False, Outcome.TIMED_OUT, "", Failure("late")
    )
    with pytest.raises(RemoteError):
        prompt_responses.response(Result(Outcome.TIMED_OUT, "", failure=Failure("late")), timed_out)
    other = make(model.TurnEnded, Outcome.OK)
    assert prompt_responses.response(Result(Outcome.OK, ""), other).meta is None


ODD = [
    ("endTurn", "end_turn"),
    ("completed", "end_turn"),
    ("length", "max_tokens"),
    ("canceled", "cancelled"),
    ("paused", "end_turn"),
]


@pytest.mark.parametrize(("word", "reason"), ODD)
def test_a_stop_reason_that_acp_does_not_have_is_translated_and_kept(
    word: str, reason: str
) -> None:
    result = Raw(b'{"stopReason":"%b","usage":{"totalTokens":3},"_meta":{"a":1}}' % word.encode())
    line = b'{"jsonrpc":"2.0","id":1,"result":' + bytes(result) + b"}"
    ended = model.TurnEnded(SOURCE, 1, "s", "t", "session/prompt", line, False, Outcome.OK, word)
    for told in (prompt_responses.response(Result(Outcome.OK, "", word), ended), _passed(result)):
        assert told.stop_reason == reason
        assert told.meta == {"a": 1, "dragoman": {"stopReason": word}}
        assert told.extra == {"usage": {"totalTokens": 3}}
        assert translate.of_answer(told, place(), None).stop == word


def _passed(result: Raw) -> acp.PromptResponse:
    passed = prompt_responses.prompt_result(result)
    assert isinstance(passed, acp.PromptResponse)
    return passed


@pytest.mark.parametrize("reason", list(acp.StopReason))
def test_a_stop_reason_of_acp_passes_as_the_bytes_that_came(reason: str) -> None:
    result = Raw(b'{"stopReason":"%b","more":[1]}' % reason.encode())
    assert prompt_responses.prompt_result(result) is result


@pytest.mark.parametrize("word", ["error", "tool_error", "failed"])
def test_a_stop_reason_that_says_that_the_turn_failed_is_an_error(word: str) -> None:
    with pytest.raises(RemoteError, match=f"stop reason '{word}'") as caught:
        prompt_responses.prompt_result(Raw(b'{"stopReason":"%b"}' % word.encode()))
    assert caught.value.data == {"outcome": "failed", "stopReason": word}
    assert stop_of(caught.value) == word


@pytest.mark.parametrize("result", [b"null", b"{}", b'{"stopReason":7}', b"[]"])
def test_a_result_without_a_stop_reason_is_an_invalid_answer(result: bytes) -> None:
    with pytest.raises(InvalidAnswer, match="invalid response to session/prompt"):
        prompt_responses.prompt_result(Raw(result))


def test_the_answer_of_another_dialect_is_not_taken_for_one_of_acp() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"result":{"stopReason":"endTurn","own":1}}'
    source = model.Source("tagged", "c1")
    ended = model.TurnEnded(source, 1, "s", "t", "session/prompt", line, False, Outcome.OK)
    told = prompt_responses.response(Result(Outcome.OK, "", "endTurn"), ended)
    assert (told.stop_reason, told.extra) == ("end_turn", None)
    assert told.meta == {"dragoman": {"stopReason": "endTurn"}}


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RemoteError(4711, "own", {"x": 1}), 4711, "own"),
        (AuthRequired("log in"), -32000, "log in"),
        (Unsupported("it cannot"), -32602, "it cannot"),
        (ProcessExited(exit_code=3), -32603, "the process exited with code 3"),
        (ProtocolMismatch("it took a", hint="choose b"), -32603, "it took a; choose b"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_on_the_way_is_the_protocols(
    error: DragomanError, code: int, message: str
) -> None:
    refusal = prompt_responses.refusal(error)
    assert (refusal.code, refusal.message) == (code, message)


def test_an_error_on_the_way_goes_before_the_words_of_the_end() -> None:
    result = Result(
        Outcome.CANCELLED, "", "closed", Failure("other"), error=RemoteError(4711, "torn", [1])
    )
    with pytest.raises(RemoteError) as caught:
        prompt_responses.response(result, None)
    assert (caught.value.code, caught.value.message, caught.value.data) == (4711, "torn", [1])


def test_the_peers_own_error_is_not_changed_by_answering_with_it() -> None:
    theirs = RemoteError(4711, "no")
    told = prompt_responses.failure(Result(Outcome.FAILED, "", error=theirs))
    assert told.data["outcome"] == "failed"
    assert peer_end(told) == PeerEnd(Outcome.FAILED, by_error=True)
    assert theirs.data is None


def test_the_error_of_a_turn_says_how_it_ended_and_whether_it_may_have_run() -> None:
    lost = ProcessExited(exit_code=3)
    told = prompt_responses.failure(Result(Outcome.CRASHED, "", error=lost))
    assert told.data == {
        "outcome": "crashed",
        "errorClass": "process_exited",
        "blame": "peer",
        "retryable": True,
        "mayHaveRun": lost.may_have_run,
    }


def test_a_wrong_request_is_refused_as_one_and_says_that_nothing_was_done() -> None:
    told = prompt_responses.refusal(UsageError("not like this"))
    assert told.code == -32602
    assert told.data == {
        "errorClass": "usage",
        "blame": "us",
        "retryable": False,
        "mayHaveRun": False,
    }


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"no message",
        b'{"id":1,"error":{"code":1,"message":"x"}}',
        b'{"id":1,"result":{"stopReason":7}}',
    ],
)
def test_an_end_that_is_not_an_answer_in_acp_is_put_into_its_words(raw: bytes | None) -> None:
    ended = model.TurnEnded(SOURCE, 1, "s", "t", "session/prompt", raw, False, Outcome.REFUSED)
    assert prompt_responses.response(Result(Outcome.REFUSED, ""), ended).stop_reason == "refusal"


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (None, None),
        (Usage(context_used=3, context_size=9), None),
        (
            Usage(1, 2),
            {
                "totalTokens": 3,
                "inputTokens": 1,
                "outputTokens": 2,
                "_meta": {"dragoman": {"summed": True}},
            },
        ),
        (
            Usage(1, 2, 3, 4, 5, 15),
            {
                "totalTokens": 15,
                "inputTokens": 1,
                "outputTokens": 2,
                "thoughtTokens": 3,
                "cachedReadTokens": 4,
                "cachedWriteTokens": 5,
            },
        ),
    ],
)
def test_what_a_turn_used_is_reported_where_acp_agents_report_it(
    usage: Usage | None, told: dict[str, Any] | None
) -> None:
    for stop in ("completed", "end_turn"):
        ended = make(model.TurnEnded, Outcome.OK, stop, usage=usage)
        assert isinstance(ended, model.TurnEnded)
        response = prompt_responses.response(Result(Outcome.OK, "x", stop), ended)
        assert (response.extra or {}).get("usage") == told
        if told is not None:
            wire = acp.SESSION_PROMPT.decode_result(acp.encode(response))
            assert translate.of_answer(wire, place(), None).usage == usage
