"""Tests of session updates."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


def update(value: dict[str, Any]) -> Any:
    data = json.dumps({"sessionId": "s1", "update": value}).encode()
    return v1.decode(data, v1.SessionNotification).update


def test_every_kind_of_update_has_its_type() -> None:
    seen = {type(update(sample)) for sample in samples.UPDATES}
    assert seen == set(get_args(v1.SessionUpdate)) - {v1.UnknownUpdate}


def test_a_chunk_gives_its_content_and_message() -> None:
    chunk = update(
        {
            "sessionUpdate": "agent_message_chunk",
            "content": samples.TEXT,
            "messageId": "m1",
            "_meta": {"a": 1},
        }
    )
    assert isinstance(chunk, v1.AgentMessageChunk)
    assert chunk.content == v1.text(samples.TEXT["text"])
    assert (chunk.message_id, chunk.meta) == ("m1", {"a": 1})


def test_a_command_takes_text_if_there_is_a_hint_for_it() -> None:
    plain = v1.command("plan", description="Make a plan", hint=None)
    assert plain == v1.AvailableCommand(name="plan", description="Make a plan")
    asking = v1.command("web", description="Search", hint="what for")
    assert asking.input == v1.UnstructuredCommandInput(hint="what for")


def test_a_piece_of_an_answer_is_made_in_one_call() -> None:
    assert json.loads(v1.encode(v1.agent_text("s1", "hi"))) == {
        "sessionId": "s1",
        "update": {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "hi"},
        },
    }


def test_an_unknown_update_is_kept_whole() -> None:
    value = {"sessionUpdate": "mood_update", "mood": ["calm"], "_meta": None}
    decoded = update(value)
    assert decoded == v1.UnknownUpdate(raw=value)
    notification = v1.SessionNotification(session_id="s1", update=decoded)
    assert json.loads(v1.encode(notification)) == {"sessionId": "s1", "update": value}


@pytest.mark.parametrize("kind", ["plan_update", "plan_removed", "subagent_update"])
def test_updates_that_are_not_stable_are_unknown_here(kind: str) -> None:
    assert isinstance(update({"sessionUpdate": kind, "planId": "p"}), v1.UnknownUpdate)


def test_a_tool_call_always_says_its_id_and_title() -> None:
    call = v1.ToolCall(tool_call_id="c", title="")
    assert json.loads(v1.encode(call)) == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "",
    }
    with pytest.raises(msgspec.ValidationError):
        update({"sessionUpdate": "tool_call", "toolCallId": "c"})


def test_an_update_of_a_tool_call_is_also_the_untagged_update() -> None:
    progress = update({"sessionUpdate": "tool_call_update", "toolCallId": "c"})
    assert isinstance(progress, v1.ToolCallUpdate)
    assert isinstance(progress, v1.ToolCallProgress)


def test_the_other_name_of_the_current_mode_is_read_and_not_written() -> None:
    decoded = update({"sessionUpdate": "current_mode_update", "modeId": "plan"})
    assert decoded == v1.CurrentModeUpdate(current_mode_id="plan")
    assert json.loads(v1.encode(decoded)) == {
        "sessionUpdate": "current_mode_update",
        "currentModeId": "plan",
    }


def test_the_proper_name_of_the_current_mode_wins() -> None:
    decoded = update(
        {"sessionUpdate": "current_mode_update", "modeId": "old", "currentModeId": "new"}
    )
    assert decoded.current_mode_id == "new"
    assert decoded.extra == {"modeId": "old"}


@pytest.mark.parametrize("value", [{}, {"modeId": 7}])
def test_a_mode_update_needs_one_of_its_names(value: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        update({"sessionUpdate": "current_mode_update", **value})


def test_absent_and_null_are_distinguished_in_session_info() -> None:
    decoded = update({"sessionUpdate": "session_info_update", "title": None})
    assert decoded.title is None
    assert decoded.updated_at is UNSET


def test_a_malformed_title_is_not_a_cleared_one() -> None:
    decoded = update({"sessionUpdate": "session_info_update", "title": 7})
    assert decoded.title is UNSET
    assert decoded.extra == {"title": 7}


def test_a_compaction_patches_its_summary() -> None:
    base = {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "paused"}
    assert update(base).summary is UNSET
    assert update(base | {"summary": None}).summary is None
    assert update(base | {"summary": []}).summary == []
    assert update(base | {"summary": [{"type": "text"}, samples.TEXT]}).summary == [
        v1.text(samples.TEXT["text"])
    ]


def test_unknown_values_of_open_enumerations_survive() -> None:
    for value in (
        {"sessionUpdate": "notice", "severity": "doom", "title": "t"},
        {
            "sessionUpdate": "plan",
            "entries": [{"content": "c", "priority": "urgent", "status": "stuck"}],
        },
        {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "kind": "teleport"},
    ):
        decoded = update(value)
        assert not isinstance(decoded, v1.UnknownUpdate)
        assert json.loads(v1.encode(decoded)) == value


def test_known_values_compare_equal_to_their_text() -> None:
    entry = v1.PlanEntry(
        content="c", priority=v1.PlanEntryPriority.HIGH, status=v1.PlanEntryStatus.COMPLETED
    )
    decoded = v1.decode(v1.encode(entry), v1.PlanEntry)
    assert decoded == entry
    assert (decoded.priority, decoded.status) == ("high", "completed")


def test_the_input_of_a_command_in_another_shape_does_not_lose_the_command() -> None:
    command = {"name": "n", "description": "d", "input": {"type": "picker"}}
    decoded = update({"sessionUpdate": "available_commands_update", "availableCommands": [command]})
    assert decoded.available_commands[0].input is None
    assert json.loads(v1.encode(decoded))["availableCommands"] == [command]


def test_a_message_of_half_a_megabyte_is_read() -> None:
    commands = [{"name": f"c{i}", "description": "d" * 500} for i in range(1000)]
    decoded = update({"sessionUpdate": "available_commands_update", "availableCommands": commands})
    assert len(decoded.available_commands) == 1000
