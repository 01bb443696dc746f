"""What all tellers do: unknown methods, the order of steps, messages, waiting, the end."""

from __future__ import annotations

from typing import Any

from dragoman.testing.storyteller import Ask, End, Fail, Say, Think, UseTool, Wait
from tests.unit.testing.storyteller.hearing import call, heard, notice

PROMPT = call("session/prompt", sessionId="s", prompt=[])


def ids(said: list[Any]) -> list[Any]:
    return [m["params"]["update"].get("messageId") for m in said if "params" in m]


def test_an_unknown_method_is_refused_and_an_unknown_notification_ignored() -> None:
    [answer] = heard("acp", call("dance"), notice("sing"))
    assert (answer["id"], answer["error"]["code"]) == (1, -32601)


def test_an_answer_to_nothing_is_ignored() -> None:
    assert heard("acp", {"id": "ask-9", "result": {}}) == []


def test_what_is_said_in_one_go_is_one_message() -> None:
    steps = (Say("a"), Say("b"), Think("c"), Say("d"))
    said = heard("acp", PROMPT, steps=steps)
    assert ids(said) == ["message-1", "message-1", "message-2", "message-3"]


def test_nothing_is_reported_behind_an_end() -> None:
    for end in (End("refusal"), Fail("internal", "no")):
        said = heard("acp", PROMPT, steps=(end, Say("too late")))
        assert len(said) == 1


def test_a_story_is_reported_again_at_the_next_prompt() -> None:
    said = heard("acp", PROMPT, PROMPT, steps=(Say("a"),))
    assert [m.get("id") for m in said] == [None, 1, None, 2]


def test_a_request_during_a_question_is_answered_later() -> None:
    steps = (UseTool("1", "x", "X"), Ask("1", (Say("yes"),), (Say("no"),)))
    allowed = {"outcome": {"outcome": "selected", "optionId": "yes"}}
    said = heard("acp", PROMPT, call("dance"), {"id": "ask-1", "result": allowed}, steps=steps)
    assert [m.get("id") for m in said] == [None, "ask-1", None, 1, 2]
    assert said[2]["params"]["update"]["content"]["text"] == "yes"


def test_a_wait_ends_with_a_cancel_and_the_rest_is_not_told() -> None:
    cancel = notice("session/cancel", sessionId="s")
    said = heard("acp", PROMPT, cancel, steps=(Wait(), Say("too late")))
    assert said == [{"id": 1, "result": {"stopReason": "cancelled"}}]


def test_a_wait_ends_without_a_word_when_the_client_is_gone() -> None:
    assert heard("acp", PROMPT, steps=(Say("a"), Wait()))[1:] == []
