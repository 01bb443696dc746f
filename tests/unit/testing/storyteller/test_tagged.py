"""The teller of the tagged dialect says what its document has."""

from __future__ import annotations

from dragoman.testing.storyteller import Fail, FinishTool, SetPlan, Think, UseTool, Wait
from tests.unit.testing.storyteller.hearing import call, heard

PROMPT = call("session/prompt", sessionId="s", prompt=[])


def test_a_version_that_is_a_number_is_answered_with_a_string() -> None:
    said = heard(
        "tagged", call("initialize", protocolVersion=1), call("initialize", protocolVersion="7")
    )
    assert [m["result"]["protocolVersion"] for m in said] == ["1", "7"]


def test_metadata_comes_back() -> None:
    [opened] = heard("tagged", call("session/new", metadata={"workDir": "/w"}))
    assert opened["result"]["session"] == {"id": "session-1", "metadata": {"workDir": "/w"}}


def test_thoughts_are_a_role_input_is_a_text_and_a_plan_is_one() -> None:
    steps = (
        Think("a"),
        UseTool("1", "x", "X", input={"b": 1}),
        FinishTool("1", "c", "failed"),
        SetPlan((("one", "pending"),)),
    )
    updates = [m["params"]["update"] for m in heard("tagged", PROMPT, steps=steps)[:-1]]
    assert updates[0]["role"] == "thought"
    assert updates[1]["toolCall"]["input"] == '{"b":1}'
    assert (updates[2]["toolCall"]["status"], updates[2]["toolCall"]["output"]) == ("error", "c")
    assert updates[3]["chunk"] == "one: pending"


def test_a_cancel_is_answered_and_ends_the_turn() -> None:
    cancel = call("session/cancel", sessionId="s")
    said = heard("tagged", PROMPT, cancel, cancel, steps=(Wait(),))
    assert said == [
        {"id": 2, "result": {}},
        {"id": 1, "result": {"stopReason": "cancelled"}},
        {"id": 3, "result": {}},
    ]


def test_a_failure_has_no_reason() -> None:
    [failed] = heard("tagged", PROMPT, steps=(Fail("internal", "no"),))
    assert failed["result"] == {"stopReason": "error"}
