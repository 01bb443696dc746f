"""The keyed dialect as events, and as an agent's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from dragoman.dialects.legacy import keyed
from dragoman.dialects.legacy.keyed import shapes, translate
from dragoman.errors import ProtocolMismatch, Unsupported
from dragoman.events import model
from dragoman.events.parts import (
    Audio,
    Block,
    FileChange,
    Image,
    Link,
    Location,
    OtherBlock,
    PeerInfo,
    PlanEntry,
    Resource,
    TerminalRef,
    Text,
)
from dragoman.events.words import (
    ChangeStage,
    FileOp,
    Outcome,
    PlanStatus,
    Role,
    ToolKind,
    ToolStatus,
)
from tests.fixtures.documents import load
from tests.unit.dialects.document_reading import (
    Places,
    answer,
    base,
    opening,
    plain,
    tell,
    tell_raw,
)

EXAMPLES = load("keyed")
BLOCKS: list[Block] = [
    Text("Fix the bug"),
    Image("aGk=", "image/png", "file:///a.png"),
    Audio("aGk=", "audio/wav"),
    Link("file:///b.py", "b.py", "text/x-python"),
    Resource("file:///c.py", "pass"),
]


# -- the client's end


def test_the_client_offers_what_its_options_say() -> None:
    end = keyed.ClientEnd(client_name="zed", read_files=True, write_files=True, terminals=True)
    ((method, sent),) = plain([end.hello()])
    assert method == "initialize"
    assert sent["protocolVersion"] == 1
    assert sent["clientCapabilities"] == EXAMPLES["initialize"].body["clientCapabilities"]


def test_the_handshake_tells_what_the_agent_is_and_how_to_log_in() -> None:
    end = keyed.ClientEnd()
    end.greeted(Raw(EXAMPLES["initialized"].raw))
    assert end.info == PeerInfo("opencode", "OpenCode", "1.0.0")
    assert [m.id for m in end.auth_methods] == ["none", "password", "oauth"]
    assert end.capabilities.set_mode is True
    assert end.capabilities.load is None and end.capabilities.image is None


def test_another_version_is_a_mismatch() -> None:
    with pytest.raises(ProtocolMismatch):
        keyed.ClientEnd().greeted(Raw(b'{"protocolVersion": 2}'))


def test_a_session_is_opened_as_the_document_shows() -> None:
    new = EXAMPLES["new"]
    wishes = {
        "model": "anthropic/large",
        "mode": "plan",
        "mcp_servers": new.body["mcpServers"],
    }
    assert opening(keyed.ClientEnd(), **wishes) == [(new.method, new.body)]
    load_ = EXAMPLES["load"]
    assert opening(keyed.ClientEnd(), "ses_1") == [(load_.method, load_.body)]


def test_a_model_needs_its_provider_and_a_loaded_session_has_its_own() -> None:
    with pytest.raises(Unsupported):
        opening(keyed.ClientEnd(), model="large")
    with pytest.raises(Unsupported):
        opening(keyed.ClientEnd(), "ses_1", mode="plan")


def test_an_opened_session_tells_its_modes() -> None:
    id, (event,) = keyed.ClientEnd().opened(
        Raw(EXAMPLES["opened"].raw), None, "new", Places("keyed")
    )
    assert id == "ses_1"
    assert isinstance(event, model.SettingsChanged)
    assert event.mode == "plan"
    assert isinstance(event.modes, tuple) and [m.id for m in event.modes] == ["code", "plan"]


def test_a_loaded_session_may_be_answered_with_nothing_but_a_new_one_needs_its_id() -> None:
    end = keyed.ClientEnd()
    assert end.opened(Raw(b"null"), "ses_1", "load", Places("keyed")) == ("ses_1", [])
    assert end.opened(Raw(b"{}"), "ses_1", "load", Places("keyed")) == ("ses_1", [])
    with pytest.raises(msgspec.ValidationError):
        end.opened(Raw(b"{}"), None, "new", Places("keyed"))


def test_a_prompt_is_sent_as_the_document_shows() -> None:
    prompt = EXAMPLES["prompt"]
    sent = keyed.ClientEnd().prompting("ses_1", BLOCKS)
    assert plain(sent) == [(prompt.method, prompt.body)]


def test_blocks_go_both_ways_and_an_unknown_one_is_kept() -> None:
    assert [translate.block(translate.to_block(block)) for block in BLOCKS] == BLOCKS
    assert [translate.block(value) for value in EXAMPLES["prompt"].body["content"]] == BLOCKS
    strange = {"type": "hologram", "data": "x"}
    assert translate.block(strange) == OtherBlock("hologram", strange)
    assert translate.block(7) == OtherBlock("", 7)
    with pytest.raises(Unsupported):
        translate.to_block(OtherBlock("hologram", strange))


def test_a_chunk_has_its_message_and_its_place() -> None:
    (event,) = tell(keyed.ClientEnd(), EXAMPLES["chunk"])
    assert isinstance(event, model.MessageDelta)
    assert (event.role, event.text, event.session) == (Role.AGENT, "Looking", "ses_1")
    assert (event.message_id, event.index) == ("prt_1", 0)


def test_a_tool_call_has_its_diff_as_a_change() -> None:
    tool, change = tell(keyed.ClientEnd(), EXAMPLES["tool"])
    assert isinstance(tool, model.ToolChanged) and isinstance(change, model.FilesChanged)
    assert (tool.tool_id, tool.kind, tool.status) == (
        "call_1",
        ToolKind.EDIT,
        ToolStatus.COMPLETED,
    )
    assert tool.content == (Text("done"),)
    assert tool.locations == (Location("/project/c.py", 3),)
    assert change.changes == (FileChange("/project/c.py", FileOp.MODIFY, "pass", "return"),)
    assert (change.stage, change.tool_id) == (ChangeStage.APPLIED, "call_1")


@pytest.mark.parametrize(
    ("status", "stage"),
    [
        ("failed", ChangeStage.FAILED),
        ("in_progress", ChangeStage.PROPOSED),
        (None, ChangeStage.PROPOSED),
    ],
)
def test_a_change_is_as_far_as_its_tool(status: str | None, stage: ChangeStage) -> None:
    call: dict[str, Any] = {"toolCallId": "c", "diff": {"path": "/new", "newContent": "x"}}
    if status is not None:
        call["status"] = status
    _, change = tell_raw(keyed.ClientEnd(), "session/update", {"sessionId": "s", "toolCall": call})
    assert isinstance(change, model.FilesChanged)
    assert change.stage is stage
    assert change.changes[0].op is FileOp.ADD


def test_a_plan_has_steps() -> None:
    (event,) = tell(keyed.ClientEnd(), EXAMPLES["plan"])
    assert isinstance(event, model.PlanSet)
    assert event.entries == (
        PlanEntry("Look", PlanStatus.COMPLETED),
        PlanEntry("Edit", PlanStatus.RUNNING),
        PlanEntry("Test", PlanStatus.PENDING),
    )


def test_one_update_with_everything_is_four_events_in_a_fixed_order() -> None:
    body = EXAMPLES["everything"].body
    backwards = dict(reversed(list(body.items())))
    for params in (body, backwards):
        events = tell_raw(keyed.ClientEnd(), "session/update", params)
        assert [type(e) for e in events] == [
            model.MessageDelta,
            model.ToolChanged,
            model.PlanSet,
            model.SettingsChanged,
        ]
        assert [e.seq for e in events] == sorted(e.seq for e in events)


@pytest.mark.parametrize("params", [{"sessionId": "s"}, {"sessionId": "s", "plan": 3}, {}])
def test_an_update_that_says_nothing_we_know_is_kept(params: Any) -> None:
    (event,) = tell_raw(keyed.ClientEnd(), "session/update", params)
    assert isinstance(event, model.Unknown)
    (event,) = tell_raw(keyed.ClientEnd(), "session/other", params)
    assert isinstance(event, model.Unknown)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("end_turn", Outcome.OK),
        ("max_tokens", Outcome.TRUNCATED),
        ("cancelled", Outcome.CANCELLED),
        ("tool_error", Outcome.FAILED),
    ],
)
def test_stop_reasons_are_outcomes(name: str, outcome: Outcome) -> None:
    (event,) = answer(keyed.ClientEnd(), EXAMPLES[name])
    assert isinstance(event, model.TurnEnded)
    assert event.outcome is outcome


def test_cancel_and_modes_are_sent_as_the_document_shows() -> None:
    end = keyed.ClientEnd()
    for message, name in (
        (end.cancelling("ses_1"), "cancel"),
        (end.setting_mode("ses_1", "code"), "set_mode"),
    ):
        assert plain([message]) == [(EXAMPLES[name].method, EXAMPLES[name].body)]


def test_a_question_is_a_tool_call_and_three_answers() -> None:
    example = EXAMPLES["permission"]
    asked = msgspec.json.decode(example.raw, type=shapes.AskPermission)
    tool, question = translate.of_permission(asked, Places("keyed")("ses_1"), example.line)
    assert isinstance(tool, model.ToolChanged) and tool.content == (Text("a diff"),)
    assert isinstance(question, model.PermissionAsked)
    assert (question.request_id, question.kind) == ("per_1", ToolKind.EDIT)
    assert [option.option_id for option in question.options] == ["once", "always", "reject"]
    bare = shapes.AskPermission("ses_1", "per_2", "Run it", "execute")
    assert len(translate.of_permission(bare, Places("keyed")("ses_1"), b"")) == 1


# -- the agent's end


def said(voice: keyed.AgentEnd, event: model.Event) -> list[Any]:
    told = plain(voice.tell(event))
    assert all(method == "session/update" for method, _ in told)
    return [params for _, params in told]


def test_the_agents_words_are_the_documents() -> None:
    voice = keyed.AgentEnd("ses_1")
    chunk = model.MessageDelta(*base(), Role.AGENT, "Looking", None, "prt_1")
    assert said(voice, chunk) == [EXAMPLES["chunk"].body]
    entries = (
        PlanEntry("Look", PlanStatus.COMPLETED),
        PlanEntry("Edit", PlanStatus.RUNNING),
        PlanEntry("Test", PlanStatus.PENDING),
    )
    assert said(voice, model.PlanSet(*base(), entries)) == [EXAMPLES["plan"].body]
    mode = model.SettingsChanged(*base(), mode="code")
    assert said(voice, mode) == [EXAMPLES["mode"].body]


def test_a_tool_call_and_its_diff_are_sent_as_specified() -> None:
    voice = keyed.AgentEnd("ses_1")
    tool = model.ToolChanged(
        *base(),
        "call_1",
        title="Edit c.py",
        kind=ToolKind.EDIT,
        status=ToolStatus.COMPLETED,
        content=(Text("done"), TerminalRef("t"), OtherBlock("x", {})),
        locations=(Location("/project/c.py", 3),),
    )
    change = FileChange("/project/c.py", FileOp.MODIFY, "pass", "return")
    (call,) = said(voice, tool)
    (diff,) = said(voice, model.FilesChanged(*base(), (change,), ChangeStage.APPLIED, "call_1"))
    merged = {**call["toolCall"], **diff["toolCall"]}
    assert merged == EXAMPLES["tool"].body["toolCall"]


def test_chunks_are_counted_and_a_turn_begins_another_message() -> None:
    voice = keyed.AgentEnd("ses_1")
    chunks = []
    for _ in range(2):
        voice.begin()
        for _ in range(2):
            (told,) = said(voice, model.MessageDelta(*base(), Role.AGENT, "x"))
            chunks.append((told["contentChunk"]["id"], told["contentChunk"]["index"]))
    assert chunks == [("part-1", 0), ("part-1", 1), ("part-2", 0), ("part-2", 1)]


def test_what_has_no_word_here_is_not_said() -> None:
    voice = keyed.AgentEnd("ses_1")
    assert voice.tell(model.MessageDelta(*base(), Role.THOUGHT, "hm")) == []
    assert voice.tell(model.SettingsChanged(*base(), options=(), mode="code")) == []
    tool = model.ToolChanged(*base(), "c", status=ToolStatus.CANCELLED)
    assert said(voice, tool)[0]["toolCall"] == {"toolCallId": "c", "status": "failed"}
    assert tool.content is UNSET


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "end_turn"),
        ("max_turn_requests", "max_tokens"),
        ("refusal", "tool_error"),
        ("weird", "tool_error"),
    ],
)
def test_the_reason_is_one_of_the_documents(stop: str, reason: str) -> None:
    assert translate.stop_reason(stop) == reason


def test_only_some_kinds_can_be_asked_for() -> None:
    kinds = [
        translate.permission_kind(kind) for kind in ("edit", "execute", "delete", "read", None)
    ]
    assert kinds == ["edit", "execute", "delete", "other", "other"]


def test_messages_without_ids_end_where_a_tool_is_used_or_the_role_changes() -> None:
    voice = translate.AgentEnd("s")
    voice.begin()
    events: list[model.Event] = [
        model.MessageDelta(*base(), Role.AGENT, "a"),
        model.MessageDelta(*base(), Role.THOUGHT, "not told here"),
        model.MessageDelta(*base(), Role.AGENT, "b"),
        model.ToolChanged(*base(), "t"),
        model.MessageDelta(*base(), Role.AGENT, "c"),
        model.MessageDelta(*base(), Role.USER, "d"),
        model.MessageDelta(*base(), Role.USER, "e"),
        model.MessageDelta(*base(), Role.USER, "f", message_id="m"),
    ]
    told = [params for event in events for _, params in voice.tell(event)]
    chunks = [update.content_chunk for update in told if update.content_chunk is not None]
    assert [(c.id, c.index, c.delta) for c in chunks] == [
        ("part-1", 0, "a"),
        ("part-1", 1, "b"),
        ("part-2", 0, "c"),
        ("part-3", 0, "d"),
        ("part-3", 1, "e"),
        ("m", 2, "f"),
    ]
    voice.begin()
    ((_, update),) = voice.tell(model.MessageDelta(*base(), Role.USER, "g"))
    assert update.content_chunk.id == "part-4"
