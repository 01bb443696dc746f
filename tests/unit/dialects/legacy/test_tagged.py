"""The tagged dialect: its document's examples, as shapes, as events, and as an agent's words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from dragoman.dialects.legacy import tagged
from dragoman.events import model
from dragoman.events.parts import Audio, Block, Image, OtherBlock, PeerInfo, PlanEntry, Text
from dragoman.events.words import Outcome, PlanStatus, Role, ToolStatus
from tests.fixtures.documents import load
from tests.unit.dialects.document_reading import (
    Places,
    answer,
    base,
    includes,
    opening,
    plain,
    round_trip,
    tell,
    tell_raw,
)

EXAMPLES = load("tagged")
SHAPES: dict[str, Any] = {
    "initialize": tagged.Initialize,
    "initialized": tagged.Initialized,
    "new": tagged.NewSession,
    "opened": tagged.SessionAnswer,
    "prompt": tagged.Prompt,
    "command": tagged.Prompt,
    "processing": tagged.SessionUpdate,
    "tool_running": tagged.SessionUpdate,
    "tool_completed": tagged.SessionUpdate,
    "tool_error": tagged.SessionUpdate,
    "plan": tagged.SessionUpdate,
    "final_chunk": tagged.SessionUpdate,
    "end_turn": tagged.Stopped,
    "cancelled": tagged.Stopped,
    "failed": tagged.Stopped,
    "cancel": tagged.Cancel,
    "new_bare": tagged.NewSession,
    "command_fix": tagged.Prompt,
    "opened_bare": tagged.SessionAnswer,
    "initialized_bare": tagged.Initialized,
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_example_of_the_document_is_read_and_written_as_it_is(name: str) -> None:
    written = round_trip(EXAMPLES[name], SHAPES[name])
    if name.endswith("_bare"):
        assert includes(written, EXAMPLES[name].body)
    else:
        assert written == EXAMPLES[name].body


def test_no_example_is_forgotten() -> None:
    assert set(EXAMPLES) - set(SHAPES) == {
        "cancel_answer",
        "not_found",
        "parse_error",
        "invalid_request",
        "invalid_params",
        "internal_error",
    }


# -- the client's end


def test_capabilities_have_keys_with_a_literal_dot() -> None:
    shape = tagged.Initialize(
        capabilities=tagged.ClientCapabilities(read_text_file=True, write_text_file=True)
    )
    ((_, sent),) = plain([("initialize", shape)])
    assert sent["capabilities"] == {"fs.readTextFile": True, "fs.writeTextFile": True}


def test_the_client_introduces_itself_and_promises_nothing_that_has_no_method() -> None:
    ((method, sent),) = plain([tagged.ClientEnd(client_version="1.0").hello()])
    assert method == "initialize"
    assert sent == {
        "protocolVersion": "1",
        "clientInfo": {"name": "dragoman", "version": "1.0"},
        "capabilities": {},
    }


def test_the_handshake_tells_who_the_agent_is_and_what_it_takes() -> None:
    end = tagged.ClientEnd()
    end.greeted(Raw(EXAMPLES["initialized"].raw))
    assert end.info == PeerInfo("my-coding-agent", None, "1.0.0")
    assert (end.capabilities.image, end.capabilities.audio) == (True, False)
    assert end.capabilities.load is False


def test_a_session_is_opened_with_metadata() -> None:
    end = tagged.ClientEnd()
    new = EXAMPLES["new"]
    assert opening(end, metadata={"branch": "feature/new-ui"}) == [(new.method, new.body)]
    opened = end.opened(Raw(EXAMPLES["opened"].raw), None, "new", Places("tagged"))
    assert opened == ("session-1", [])


def test_a_prompt_is_sent_as_the_document_shows() -> None:
    prompt = EXAMPLES["prompt"]
    blocks: list[Block] = [
        Text("Read the file"),
        Image("aGk=", "image/png"),
        Audio("aGk=", "audio/wav"),
    ]
    sent = tagged.ClientEnd().prompting("session-1", blocks)
    assert plain(sent) == [(prompt.method, prompt.body)]


def test_a_slash_command_is_also_sent_as_a_command() -> None:
    command = EXAMPLES["command"]
    sent = tagged.ClientEnd().prompting("session-1", [Text("/search routers")])
    assert plain(sent) == [(command.method, command.body)]


@pytest.mark.parametrize("text", ["/usr/bin is full", "search /x", "/ nothing", "//x"])
def test_a_path_is_not_a_command(text: str) -> None:
    ((_, sent),) = plain(tagged.ClientEnd().prompting("session-1", [Text(text)]))
    assert "command" not in sent


def test_chunks_have_roles() -> None:
    end = tagged.ClientEnd()
    (event,) = tell(end, EXAMPLES["processing"])
    assert isinstance(event, model.MessageDelta)
    assert (event.session, event.role) == ("session-1", Role.AGENT)
    assert event.text == "Processing your request...\n"
    update = {"type": "messageChunk", "role": "user", "chunk": "hello"}
    (event,) = tell_raw(end, "session/update", {"sessionId": "s", "update": update})
    assert isinstance(event, model.MessageDelta)
    assert event.role is Role.USER


def test_a_tool_call_runs_and_completes_or_fails() -> None:
    end = tagged.ClientEnd()
    running, completed, failed = (
        tell(end, EXAMPLES[name])[0] for name in ("tool_running", "tool_completed", "tool_error")
    )
    assert isinstance(running, model.ToolChanged)
    assert (running.tool_id, running.status) == ("call-1", ToolStatus.RUNNING)
    assert (running.name, running.input) == ("read_file", "/path/to/file.go")
    assert isinstance(completed, model.ToolChanged)
    assert (completed.status, completed.output) == (ToolStatus.COMPLETED, "file contents...")
    assert isinstance(failed, model.ToolChanged)
    assert (failed.status, failed.error) == (ToolStatus.FAILED, "no such file")


def test_a_plan_without_fields_says_nothing_and_one_with_a_text_is_a_plan() -> None:
    end = tagged.ClientEnd()
    assert isinstance(tell(end, EXAMPLES["plan"])[0], model.Unknown)
    update = {"type": "planUpdate", "chunk": "- [ ] one"}
    (event,) = tell_raw(end, "session/update", {"sessionId": "s", "update": update})
    assert isinstance(event, model.PlanSet)
    assert event.text == "- [ ] one"


@pytest.mark.parametrize(
    "params",
    [
        {"sessionId": "s", "update": {"type": "dance"}},
        {"sessionId": "s", "update": {"type": "messageChunk", "role": "narrator", "chunk": "x"}},
        {"sessionId": "s", "update": {"type": "toolCall"}},
        {"sessionId": 7},
    ],
)
def test_what_has_no_meaning_is_kept(params: Any) -> None:
    (event,) = tell_raw(tagged.ClientEnd(), "session/update", params)
    assert isinstance(event, model.Unknown)
    (event,) = tell_raw(tagged.ClientEnd(), "session/other", params)
    assert isinstance(event, model.Unknown)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("end_turn", Outcome.OK),
        ("cancelled", Outcome.CANCELLED),
        ("failed", Outcome.FAILED),
    ],
)
def test_stop_reasons_are_outcomes(name: str, outcome: Outcome) -> None:
    (event,) = answer(tagged.ClientEnd(), EXAMPLES[name])
    assert isinstance(event, model.TurnEnded)
    assert event.outcome is outcome


def test_a_cancel_is_a_request() -> None:
    end = tagged.ClientEnd()
    cancel = EXAMPLES["cancel"]
    assert end.cancel == "request"
    assert plain([end.cancelling("session-1")]) == [(cancel.method, cancel.body)]


# -- the agent's end


def test_the_agents_words_are_the_documents() -> None:
    voice = tagged.AgentEnd("session-1")
    said = model.MessageDelta(*base(), Role.AGENT, "Processing your request...\n")
    assert plain(voice.tell(said)) == [("session/update", EXAMPLES["processing"].body)]


def test_a_tool_call_is_reported_whole_each_time() -> None:
    voice = tagged.AgentEnd("session-1")
    started = model.ToolChanged(
        *base(), "call-1", title="read_file", status=ToolStatus.RUNNING, input="/path/to/file.go"
    )
    assert plain(voice.tell(started)) == [("session/update", EXAMPLES["tool_running"].body)]
    ended = model.ToolChanged(
        *base(), "call-1", status=ToolStatus.COMPLETED, content=(Text("file contents..."),)
    )
    ((_, told),) = plain(voice.tell(ended))
    expected = {
        **EXAMPLES["tool_completed"].body["update"]["toolCall"],
        "input": "/path/to/file.go",
    }
    assert told["update"]["toolCall"] == expected
    failed = model.ToolChanged(*base(), "call-2", status=ToolStatus.FAILED, output={"why": 1})
    ((_, told),) = plain(voice.tell(failed))
    assert told["update"]["toolCall"]["status"] == "error"
    assert told["update"]["toolCall"]["output"] == '{"why":1}'


def test_a_plan_travels_as_text() -> None:
    entries = (
        PlanEntry("one", PlanStatus.COMPLETED),
        PlanEntry("two", PlanStatus.RUNNING),
        PlanEntry("three", PlanStatus.PENDING),
    )
    ((_, told),) = plain(tagged.AgentEnd("s").tell(model.PlanSet(*base(), entries)))
    assert told["update"] == {
        "type": "planUpdate",
        "chunk": "- [x] one\n- [>] two\n- [ ] three",
    }


def test_what_has_no_word_here_is_not_said() -> None:
    assert tagged.AgentEnd("s").tell(model.CommandsChanged(*base(), ())) == []


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "endTurn"),
        ("cancelled", "cancelled"),
        ("max_tokens", "error"),
        ("refusal", "error"),
        ("completed", "endTurn"),
    ],
)
def test_what_did_not_end_well_is_an_error(stop: str, reason: str) -> None:
    assert tagged.stop_reason(stop) == reason


def test_parts_of_a_prompt_are_blocks() -> None:
    parts = [tagged.PromptPart(**part) for part in ({"type": "text", "text": "hi"},)]
    assert tagged.block_of(parts[0]) == Text("hi")
    assert tagged.block_of(tagged.PromptPart("image", data="x", mime_type="a/b")) == Image(
        "x", "a/b"
    )
    assert tagged.block_of(tagged.PromptPart("audio", data="x", mime_type="a/b")) == Audio(
        "x", "a/b"
    )
    other = tagged.block_of(tagged.PromptPart("video", data="x"))
    assert isinstance(other, OtherBlock) and other.kind == "video"
