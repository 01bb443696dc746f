"""The oneshot dialect: its document's examples, as shapes, as events, and as an agent's words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from dragoman.dialects.legacy import oneshot
from dragoman.errors import ProtocolMismatch
from dragoman.events import model
from dragoman.events.parts import FileChange, Text, Usage
from dragoman.events.words import ChangeStage, FileOp, Outcome, Role, ToolKind, ToolStatus
from tests.fixtures.documents import load
from tests.unit.dialects.document_reading import (
    Places,
    answer,
    base,
    opening,
    plain,
    round_trip,
    tell,
    tell_raw,
)

EXAMPLES = load("oneshot")
SHAPES: dict[str, Any] = {
    "initialize": oneshot.Initialize,
    "initialized": oneshot.Initialized,
    "prompt": oneshot.Prompt,
    "chunk": oneshot.Chunk,
    "tool": oneshot.ToolCall,
    "file": oneshot.FileChange,
    "answer": oneshot.Answer,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_the_document_is_read_and_written_as_it_is(name: str) -> None:
    assert round_trip(EXAMPLES[name], SHAPES[name]) == EXAMPLES[name].body


# -- the client's end


def test_the_client_sends_what_the_document_shows() -> None:
    end = oneshot.ClientEnd()
    hello, prompt = EXAMPLES["initialize"], EXAMPLES["prompt"]
    assert plain([end.hello()]) == [(hello.method, hello.body)]
    sent = end.prompting("default", [Text("Research best React state libs")])
    assert plain(sent) == [(prompt.method, prompt.body)]


def test_a_session_is_there_without_asking_and_has_no_id() -> None:
    end = oneshot.ClientEnd()
    assert opening(end) == []
    assert end.opened(None, None, "new", Places("oneshot")) == (None, [])


def test_the_same_version_is_taken() -> None:
    end = oneshot.ClientEnd()
    end.greeted(Raw(EXAMPLES["initialized"].raw))
    assert end.version == "2025-06-18"


@pytest.mark.parametrize(
    "result",
    [
        b'{"protocolVersion": "2024-11-05", "serverCapabilities": {}}',
        b'{"protocolVersion": "2025-06-18",'
        b' "serverCapabilities": {"protocolVersion": "2024-11-05"}}',
        b'{"serverCapabilities": {}}',
    ],
)
def test_another_version_in_either_place_is_a_mismatch(result: bytes) -> None:
    with pytest.raises(ProtocolMismatch) as caught:
        oneshot.ClientEnd().greeted(Raw(result))
    assert caught.value.error_class == "protocol_mismatch"


def test_a_version_in_the_capabilities_that_is_ours_is_not_a_mismatch() -> None:
    end = oneshot.ClientEnd()
    result = (
        b'{"protocolVersion": "2025-06-18",'
        b' "serverCapabilities": {"protocolVersion": "2025-06-18"}}'
    )
    end.greeted(Raw(result))
    assert end.version == "2025-06-18"


def test_a_chunk_is_a_piece_of_the_agents_message() -> None:
    (event,) = tell(oneshot.ClientEnd(), EXAMPLES["chunk"])
    assert isinstance(event, model.MessageDelta)
    assert (event.role, event.text) == (Role.AGENT, "...")
    assert event.raw == EXAMPLES["chunk"].line


def test_tool_calls_get_ids_and_are_closed_as_other_at_the_end() -> None:
    end = oneshot.ClientEnd()
    places = Places("oneshot")
    (first,) = tell(end, EXAMPLES["tool"], places)
    (second,) = tell(end, EXAMPLES["tool"], places)
    assert isinstance(first, model.ToolChanged) and isinstance(second, model.ToolChanged)
    assert first.tool_id != second.tool_id
    assert (first.status, first.input, first.title) == (ToolStatus.RUNNING, "...", "...")
    closed = end.closing(places("default"))
    assert [(e.tool_id, e.status) for e in closed if isinstance(e, model.ToolChanged)] == [
        (first.tool_id, ToolStatus.OTHER),
        (second.tool_id, ToolStatus.OTHER),
    ]
    assert end.closing(places("default")) == []


def test_every_file_that_a_turn_changed_is_counted_until_its_end() -> None:
    end = oneshot.ClientEnd()
    places = Places("oneshot")

    def told(path: str, diff: str) -> list[tuple[str, str | None]]:
        (event,) = tell_raw(end, "file_change", {"path": path, "diff": diff}, places)
        return [(change.path, change.diff) for change in event.changes]

    assert told("a", "1") == [("a", "1")]
    assert told("b", "2") == [("a", "1"), ("b", "2")]
    assert told("a", "3") == [("a", "13"), ("b", "2")]
    end.closing(places("s"))
    assert told("c", "4") == [("c", "4")]


def test_a_file_change_is_reported_without_claiming_that_it_was_made() -> None:
    (event,) = tell(oneshot.ClientEnd(), EXAMPLES["file"])
    assert isinstance(event, model.FilesChanged)
    assert event.changes == (FileChange("...", FileOp.UNKNOWN, diff="..."),)
    assert event.stage is ChangeStage.UNKNOWN


def test_the_answer_ends_the_turn_with_text_and_usage() -> None:
    (event,) = answer(oneshot.ClientEnd(), EXAMPLES["answer"])
    assert isinstance(event, model.TurnEnded)
    assert (event.outcome, event.stop, event.text) == (Outcome.OK, "stop", "...")
    assert event.usage == Usage(input_tokens=1234, output_tokens=5678)


@pytest.mark.parametrize(("method", "params"), [("tool_call", {}), ("weather", {"text": "fine"})])
def test_what_is_not_known_or_not_as_expected_is_kept(method: str, params: Any) -> None:
    (event,) = tell_raw(oneshot.ClientEnd(), method, params)
    assert isinstance(event, model.Unknown)
    assert event.native == method and event.raw is not None


# -- the agent's end


def test_what_the_agent_says_is_sent_in_the_words_of_the_specification() -> None:
    voice = oneshot.AgentEnd()
    said = voice.tell(model.MessageDelta(*base(), Role.AGENT, "..."))
    assert plain(said) == [(EXAMPLES["chunk"].method, EXAMPLES["chunk"].body)]
    assert voice.text == "..."


def test_a_tool_call_is_reported_once_and_its_change_when_it_is_made() -> None:
    voice = oneshot.AgentEnd()
    started = model.ToolChanged(
        *base(), "t1", title="...", kind=ToolKind.EDIT, status=ToolStatus.RUNNING, input="..."
    )
    assert plain(voice.tell(started)) == [(EXAMPLES["tool"].method, EXAMPLES["tool"].body)]
    change = FileChange("/a.txt", FileOp.MODIFY, "old\n", "new\n")
    assert voice.tell(model.FilesChanged(*base(), (change,), ChangeStage.PROPOSED, "t1")) == []
    told = plain(voice.tell(model.ToolChanged(*base(), "t1", status=ToolStatus.COMPLETED)))
    diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n"
    assert told == [("file_change", {"path": "/a.txt", "diff": diff})]
    assert voice.tell(model.ToolChanged(*base(), "t1", status=ToolStatus.COMPLETED)) == []


def test_a_change_that_is_reported_after_the_end_of_its_tool_is_reported_once() -> None:
    voice = oneshot.AgentEnd()
    voice.tell(model.ToolChanged(*base(), "t1", title="edit", status=ToolStatus.COMPLETED))
    first, second = (FileChange(path, FileOp.MODIFY, "old\n", "new\n") for path in ("/a", "/b"))
    changed = model.FilesChanged(*base(), (first,), ChangeStage.PROPOSED, "t1")
    (told,) = plain(voice.tell(changed))
    assert (told[0], told[1]["path"]) == ("file_change", "/a")
    assert voice.tell(changed) == []
    others = model.FilesChanged(*base(), (first, second), ChangeStage.PROPOSED, "t1")
    assert [params["path"] for _, params in plain(voice.tell(others))] == ["/b"]


def test_a_change_that_was_never_made_is_not_told() -> None:
    voice = oneshot.AgentEnd()
    voice.tell(model.ToolChanged(*base(), "t1", title="edit"))
    change = FileChange("/a.txt", FileOp.MODIFY, "old\n", "new\n")
    voice.tell(model.FilesChanged(*base(), (change,), ChangeStage.PROPOSED, "t1"))
    assert voice.tell(model.ToolChanged(*base(), "t1", status=ToolStatus.FAILED)) == []
    assert voice.tell(model.ToolChanged(*base(), "t1", status=ToolStatus.COMPLETED)) == []


def test_a_change_that_is_made_at_once_is_reported_at_once() -> None:
    change = FileChange("/a.txt", FileOp.ADD, None, "new", None)
    told = plain(
        oneshot.AgentEnd().tell(model.FilesChanged(*base(), (change,), ChangeStage.APPLIED, None))
    )
    diff = "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+new\n"
    assert told == [("file_change", {"path": "/a.txt", "diff": diff})]


def test_what_has_no_word_here_is_not_said() -> None:
    voice = oneshot.AgentEnd()
    assert voice.tell(model.MessageDelta(*base(), Role.THOUGHT, "hm")) == []
    assert voice.tell(model.PlanSet(*base())) == []
    assert voice.text == ""


@pytest.mark.parametrize(
    ("stop", "reason"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("cancelled", "cancelled")],
)
def test_the_reason_is_the_documents(stop: str, reason: str) -> None:
    assert oneshot.finish_reason(stop) == reason
