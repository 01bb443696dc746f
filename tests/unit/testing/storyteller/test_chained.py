"""The teller of the chained dialect says what its document has, under one family of names."""

from __future__ import annotations

from dragoman.testing.storyteller import End, Fail, FinishTool, Think, UseTool
from tests.unit.testing.storyteller.hearing import call, heard

SEND = call("chat/send", sessionId="s", message="hi")


def test_only_one_family_of_names_is_known() -> None:
    said = heard("chained", call("session/list"), call("list_sessions"), call("create_session"))
    assert said[0]["error"]["code"] == -32601
    assert said[1]["result"]["sessions"][0]["messages"][1] == {"role": "assistant", "content": "I."}
    assert said[2]["result"]["sessionId"] == "session-1"


def test_a_prompt_is_acknowledged_before_the_story_and_a_notification_ends_it() -> None:
    said = heard("chained", SEND, steps=(Think("a"),))
    assert said[0]["result"] == {"turnId": "turn-1", "status": "processing"}
    assert [m["method"] for m in said[1:]] == ["thinking/delta", "completion/status"]
    assert {m["params"]["turnId"] for m in said[1:]} == {"turn-1"}
    assert said[-1]["params"]["status"] == "completed"


def test_a_failed_tool_has_an_error() -> None:
    for status, error in (("completed", None), ("failed", "out")):
        steps = (UseTool("1", "x", "X"), FinishTool("1", "out", status))
        result = heard("chained", SEND, steps=steps)[2]["params"]
        assert (result["output"], result.get("error")) == ("out", error)


def test_an_end_that_is_not_a_success_is_an_error() -> None:
    failed = heard("chained", SEND, steps=(Fail("internal", "no"),))[-1]
    assert (failed["method"], failed["params"]["error"]["message"]) == ("error", "no")
    refused = heard("chained", SEND, steps=(End("refusal"),))[-1]
    assert (refused["params"]["status"], refused["params"]["detail"]) == ("error", "refusal")
