"""What a model is told."""

from __future__ import annotations

import pytest

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.errors import (
    CallTimeout,
    DragomanError,
    HandshakeFailed,
    NoPeer,
    ProcessExited,
    UnknownPeer,
    UsageError,
)
from dragoman.events.parts import Failure
from dragoman.events.words import Outcome
from dragoman.mcp_server import tool_results
from dragoman.mcp_server.ask_peer import PeerAnswer
from tests.unit.runs.stored import job


def asked(outcome: Outcome, text: str, failure: Failure | None = None) -> PeerAnswer:
    report = AttemptReport(
        peer="gemini",
        role="",
        outcome=outcome,
        text=text,
        failure=failure,
        started_at=1.0,
        ended_at=3.0,
    )
    return PeerAnswer(job="j-1", session="s-1", context="new", report=report)


def test_an_answer_comes_first_and_behind_it_who_gave_it() -> None:
    answer = tool_results.of_asked(asked(Outcome.OK, "forty-two"), ["a notice"])
    assert answer.text.startswith("forty-two\n\n[dragoman: gemini answered]\n")
    assert "a notice" in answer.text
    assert "job j-1, session s-1 (new)" in answer.text
    assert not answer.failed
    assert (answer.data["ok"], answer.data["outcome"], answer.data["job"]) == (True, "ok", "j-1")
    assert (answer.data["text"], answer.data["session"]) == ("forty-two", "s-1")


@pytest.mark.parametrize(
    "outcome", [outcome for outcome in Outcome if not outcome.good], ids=lambda one: one.value
)
def test_every_failure_says_so_and_that_the_model_must_not_answer_instead(outcome: Outcome) -> None:
    answer = tool_results.of_asked(asked(outcome, "half an ans", Failure("it broke")))
    assert answer.failed
    assert answer.text.startswith(f"FAILED: gemini did not complete it ({outcome.value}).")
    assert "it broke" in answer.text
    assert "which is not a result:\nhalf an ans" in answer.text
    assert tool_results.NOT_IN_ITS_PLACE in answer.text
    assert answer.data["ok"] is False
    assert tool_results.NOT_IN_ITS_PLACE in answer.data["message"]


def test_a_long_answer_is_shortened_and_says_where_the_rest_is() -> None:
    long = "x" * (tool_results.MAX_TEXT_SIZE + 1)
    answer = tool_results.of_asked(asked(Outcome.OK, long))
    assert len(answer.data["text"]) == tool_results.MAX_TEXT_SIZE + 1
    assert answer.data["shortened"] is True
    assert "`dragoman jobs result j-1` prints all" in answer.text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoPeer("review", {"codex": "it is too deep"}), "do this part yourself, as your own work"),
        (UnknownPeer("geminy", ["gemini"]), "Fix the call"),
        (ProcessExited(exit_code=3), tool_results.NOT_IN_ITS_PLACE),
        (UsageError("that is no folder"), "that is no folder"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DragomanError) else "",
)
def test_an_error_says_what_happened(error: DragomanError, words: str) -> None:
    answer = tool_results.of_error(error)
    assert answer.failed
    assert str(error) in answer.text
    assert words in answer.text
    assert answer.data["error"]["class"] == error.error_class
    assert answer.data["error"]["blame"] == error.blame
    assert answer.data["ok"] is False
    assert answer.data["message"] == answer.text


@pytest.mark.parametrize(
    "error",
    [CallTimeout("initialize", 3), HandshakeFailed("it is silent", timed_out=True)],
)
def test_a_time_limit_before_the_prompt_has_timed_out(error: DragomanError) -> None:
    assert tool_results.of_error(error).data["outcome"] == "timed_out"


def test_work_that_may_have_run_is_not_told_as_never_begun() -> None:
    error = DragomanError("the line is cut")
    assert "No peer was prompted" in tool_results.of_error(error).text
    error.may_have_run = True
    answer = tool_results.of_error(error)
    assert "may have started to work" in answer.text
    assert answer.data["error"]["mayHaveRun"] is True
    assert answer.data["outcome"] == "failed"


def test_a_stored_job_is_reported_as_it_stands() -> None:
    running = tool_results.of_job(job("j-1", state="running", outcome=None, text="so far"))
    assert (running.failed, running.data["ok"], running.data["outcome"]) == (
        False,
        False,
        "running",
    )
    assert "so far" in running.text
    done = tool_results.of_job(job("j-1", state="ended", outcome="ok", text="done"))
    assert (done.failed, done.data["ok"]) == (False, True)
    assert done.text.startswith("done")
    lost = tool_results.of_job(
        job("j-1", state="ended", outcome="crashed", text="", failure={"message": "it died"})
    )
    assert (lost.failed, lost.data["outcome"]) == (True, "crashed")
    assert "it died" in lost.text
    declined = tool_results.of_job(job("j-1", notices=("a question was declined",)))
    assert declined.data["notices"] == ["a question was declined"]
    assert "a question was declined" in declined.text


def test_a_job_that_is_over_cannot_be_cancelled() -> None:
    done = tool_results.of_cancelled("j-1", None)
    assert (done.data["cancelled"], done.data["outcome"]) == (True, "cancelled")
    late = tool_results.of_cancelled("j-1", "ok")
    assert (late.data["cancelled"], late.data["outcome"]) == (False, "ok")
    assert "has already ended" in late.text
    assert late.data["ok"] is False


def test_started_and_running_work_is_reported_as_not_done() -> None:
    assert "It is not done" in tool_results.of_started("j-1", "codex").text
    told = tool_results.of_running("j-1", "codex: ls", peer="codex", seconds=3.2)
    assert told.text == "Job j-1 is running for 3 s. codex: ls"
    assert told.data["outcome"] == "running"


def test_wrong_arguments_are_reported_with_what_is_wrong() -> None:
    answer = tool_results.of_wrong_arguments("delegate", "Object missing required field `role`")
    assert answer.failed
    assert "`role`" in answer.text
