"""The teller of the oneshot dialect says what its document has."""

from __future__ import annotations

from dragoman.testing.storyteller import ChangeFile, Count, End, Fail, FinishTool, Say, UseTool
from dragoman.testing.storyteller.oneshot import unified
from tests.unit.testing.storyteller.hearing import call, heard

PROMPT = call("prompt", text="hi")


def test_the_answer_has_the_whole_text_and_the_usage() -> None:
    said = heard("oneshot", PROMPT, steps=(Say("a"), Say("b"), Count(1, 2, 3, 4)))
    assert said[2]["result"] == {
        "content": "ab",
        "finish_reason": "stop",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }


def test_a_change_is_reported_once_it_is_made() -> None:
    change = ChangeFile("1", "/a", "new\n", "old\n")
    for status, methods in (("completed", ["tool_call", "file_change"]), ("failed", ["tool_call"])):
        steps = (UseTool("1", "edit", "Edit"), change, FinishTool("1", "", status))
        said = heard("oneshot", PROMPT, steps=steps)
        assert [message["method"] for message in said[:-1]] == methods
    assert "-old\n+new\n" in unified(change)


def test_limits_and_errors_have_their_words() -> None:
    [limited] = heard("oneshot", PROMPT, steps=(End("max_tokens"),))
    assert limited["result"]["finish_reason"] == "length"
    [failed] = heard("oneshot", PROMPT, steps=(Fail("internal", "no"),))
    assert failed["error"]["message"] == "no"


def test_the_version_is_a_date() -> None:
    [hello] = heard("oneshot", call("initialize"))
    assert hello["result"]["protocolVersion"] == "2025-06-18"
