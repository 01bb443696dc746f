"""The teller of ACP says what the official schema has."""

from __future__ import annotations

from dragoman.testing.storyteller import (
    Ask,
    ChangeFile,
    Choices,
    Count,
    Fail,
    FinishTool,
    Say,
    SetOption,
    SwitchMode,
    TellChoices,
    UseTool,
)
from tests.unit.testing.storyteller.hearing import call, heard

PROMPT = call("session/prompt", sessionId="s", prompt=[])


def test_a_session_is_listed_loaded_and_resumed() -> None:
    said = heard(
        "acp",
        call("initialize", protocolVersion=1),
        call("session/list"),
        call("session/load", sessionId="old"),
        call("session/resume", sessionId="old"),
        call("session/load", sessionId="none"),
        call("session/resume", sessionId="none"),
    )
    assert said[0]["result"]["agentCapabilities"]["loadSession"] is True
    assert said[1]["result"]["sessions"][0]["sessionId"] == "old"
    kinds = [message["params"]["update"]["sessionUpdate"] for message in said[2:4]]
    assert kinds == ["user_message_chunk", "agent_message_chunk"]
    assert [message.get("error", {}).get("code") for message in said[4:]] == [
        None,
        None,
        -32002,
        -32002,
    ]


def test_a_tool_call_shows_its_changes_until_its_end() -> None:
    steps = (
        UseTool("1", "edit", "Edit", "edit", {"a": 1}, "/a"),
        ChangeFile("1", "/a", "new", "old"),
        ChangeFile("1", "/b", "new"),
        FinishTool("1", "done"),
    )
    updates = [m["params"]["update"] for m in heard("acp", PROMPT, steps=steps)[:-1]]
    assert updates[0]["locations"] == [{"path": "/a"}]
    last = updates[-1]
    assert [item["type"] for item in last["content"]] == ["diff", "diff", "content"]
    assert "oldText" not in last["content"][1]
    assert (last["status"], last["rawOutput"]) == ("completed", "done")


def test_only_an_option_that_allows_counts_as_consent() -> None:
    steps = (UseTool("1", "x", "X"), Ask("1", (Say("yes"),), (Say("no"),)))
    for outcome, text in (
        ({"outcome": "selected", "optionId": "yes"}, "yes"),
        ({"outcome": "selected", "optionId": "no"}, "no"),
        ({"outcome": "cancelled"}, "no"),
    ):
        answer = {"id": "ask-1", "result": {"outcome": outcome}}
        said = heard("acp", PROMPT, answer, steps=steps)
        assert said[-2]["params"]["update"]["content"]["text"] == text


def test_usage_and_errors_are_reported() -> None:
    said = heard("acp", PROMPT, steps=(Count(1, 2, 3, 4),))
    assert said[0]["params"]["update"]["used"] == 3
    assert said[1]["result"]["usage"]["outputTokens"] == 2
    [failed] = heard("acp", PROMPT, steps=(Fail("internal", "no"),))
    assert failed["error"] == {"code": -32603, "message": "no"}


def test_what_can_be_chosen_is_reported_when_a_session_is_opened() -> None:
    choices = Choices(("plan", "write"), ("a", "b"), (), (("help", "Help"),))
    opened, told = heard("acp", call("session/new"), choices=choices)
    modes = opened["result"]["modes"]
    assert (modes["currentModeId"], len(modes["availableModes"])) == ("plan", 2)
    (option,) = opened["result"]["configOptions"]
    assert (option["id"], option["category"], option["currentValue"]) == ("model", "model", "a")
    assert told["params"]["sessionId"] == opened["result"]["sessionId"]
    assert told["params"]["update"]["availableCommands"] == [
        {"name": "help", "description": "Help"}
    ]
    (opened,) = heard("acp", call("session/new"))
    assert opened["result"].keys() == {"sessionId"}


def test_a_choice_counts_from_then_on_and_what_is_not_a_choice_is_refused() -> None:
    choices = Choices(("plan", "write"), ("a", "b"), (("effort", ("low", "high")),))
    said = heard(
        "acp",
        call("session/set_mode", sessionId="s", modeId="write"),
        call("session/set_mode", sessionId="s", modeId="dance"),
        call("session/set_config_option", sessionId="s", configId="effort", value="high"),
        call("session/set_config_option", sessionId="s", configId="effort", value="none"),
        call("session/set_config_option", sessionId="s", configId="none", value="high"),
        PROMPT,
        steps=(TellChoices(), SetOption("model", "b"), SwitchMode("plan")),
        choices=choices,
    )
    assert ["error" in message for message in said[:5]] == [False, True, False, True, True]
    text, option, mode = [message["params"]["update"] for message in said[5:8]]
    assert text["content"]["text"] == "the mode is write; model is a; effort is high"
    assert [o["currentValue"] for o in option["configOptions"]] == ["b", "high"]
    assert mode == {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
