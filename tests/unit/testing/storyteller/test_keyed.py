"""The teller of the keyed dialect says what its document has."""

from __future__ import annotations

from dragoman.testing.storyteller import (
    Ask,
    ChangeFile,
    Choices,
    Fail,
    FinishTool,
    Say,
    SwitchMode,
    TellChoices,
    UseTool,
    Wait,
)
from tests.unit.testing.storyteller.hearing import call, heard, notice

PROMPT = call("session/prompt", sessionId="s", content=[])


def test_a_session_is_loaded_with_all_words_in_one_voice() -> None:
    said = heard(
        "keyed",
        call("initialize", protocolVersion=1),
        call("session/new", cwd="/w"),
        call("session/load", sessionId="old"),
        call("session/load", sessionId="none"),
    )
    assert said[0]["result"]["agentCapabilities"]["plan"] is True
    assert said[1]["result"]["sessionId"] == "session-1"
    chunks = [m["params"]["contentChunk"] for m in said[2:4]]
    assert [(c["id"], c["delta"]) for c in chunks] == [("past-0", "Who?"), ("past-1", "I.")]
    assert said[4]["result"]["sessionId"] == "old"
    assert "error" in said[5]


def test_a_change_is_reported_when_it_is_proposed_and_at_the_end() -> None:
    steps = (
        UseTool("1", "x", "Edit", "edit", None, "/a"),
        ChangeFile("1", "/a", "new", "old"),
        FinishTool("1", "done"),
    )
    calls = [m["params"]["toolCall"] for m in heard("keyed", PROMPT, steps=steps)[:-1]]
    diff = {"path": "/a", "oldContent": "old", "newContent": "new"}
    assert [c.get("diff") for c in calls] == [None, diff, diff]
    assert calls[2]["content"] == [{"type": "text", "text": "done"}]


def test_a_permission_has_three_answers() -> None:
    steps = (UseTool("1", "x", "X", "read"), Ask("1", (Say("yes"),), (Say("no"),)))
    for decision, text in (
        ({"decision": "once"}, "yes"),
        ({"decision": "always"}, "yes"),
        ({"decision": "reject"}, "no"),
        ({"decision": "once", "cancelled": True}, "no"),
    ):
        said = heard("keyed", PROMPT, {"id": "ask-1", "result": decision}, steps=steps)
        assert said[1]["params"]["kind"] == "other"
        assert said[2]["params"]["contentChunk"]["delta"] == text


def test_a_cancel_of_this_session_ends_the_turn() -> None:
    cancels = [notice("session/cancel", sessionId=id) for id in ("other", "s")]
    [answer] = heard("keyed", PROMPT, *cancels, steps=(Wait(),))
    assert answer["result"] == {"stopReason": "cancelled"}


def test_a_failure_is_an_error() -> None:
    [failed] = heard("keyed", PROMPT, steps=(Fail("internal", "no"),))
    assert failed["error"]["message"] == "no"


def test_modes_are_reported_and_chosen_and_a_model_is_named_when_a_session_is_opened() -> None:
    said = heard(
        "keyed",
        call("initialize", protocolVersion=1),
        call("session/new", model={"providerID": "p", "modelID": "m"}, modeId="write"),
        call("session/set_mode", sessionId="s", modeId="plan"),
        call("session/set_mode", sessionId="s", modeId="dance"),
        PROMPT,
        steps=(TellChoices(), SwitchMode("write")),
        choices=Choices(("plan", "write"), ("p/s", "p/m")),
    )
    assert said[0]["result"]["agentCapabilities"]["modes"] is True
    assert said[1]["result"]["currentModeId"] == "write"
    assert [mode["id"] for mode in said[1]["result"]["modes"]] == ["plan", "write"]
    assert said[2]["result"] is None and "error" in said[3]
    assert said[4]["params"]["contentChunk"]["delta"] == "the mode is plan; model is p/m"
    assert said[5]["params"] == {"sessionId": "s", "currentModeId": "write"}
