"""The teller of the dialect of threads says what its document has."""

from __future__ import annotations

from dragoman.testing.storyteller import Count, Fail, Say
from tests.unit.testing.storyteller.hearing import call, heard

TURN = call("turn", threadId="t", text="hi")


def test_threads_start_with_and_without_a_handshake() -> None:
    said = heard(
        "threads",
        call("initialize", service_name="x"),
        call("threadStart", service_name="x"),
        call("initialize", protocolVersion=1),
    )
    assert [m["result"]["threadId"] for m in said[:2]] == ["thread-1", "thread-2"]
    assert said[2]["error"]["code"] == -32602


def test_a_resumed_thread_has_its_turns() -> None:
    known, unknown = heard(
        "threads", call("threadResume", threadId="old"), call("threadResume", threadId="none")
    )
    [turn] = known["result"]["turns"]
    assert (turn["text"], turn["content"]) == ("Who?", "I.")
    assert "error" in unknown


def test_the_answer_is_the_result() -> None:
    said = heard("threads", TURN, steps=(Say("a"), Count(1, 2, 3, 4)))
    result = said[-1]["result"]
    assert (result["status"], result["content"]) == ("complete", "a")
    assert result["usage"] == {"input_tokens": 1, "output_tokens": 2}


def test_a_failure_is_a_result_too() -> None:
    [failed] = heard("threads", TURN, steps=(Fail("rate_limit", "later"),))
    assert failed["result"]["error"] == {"code": "rate_limit", "message": "later"}
