"""What messages of ACP v1 mean in the common vocabulary."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec import UNSET

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import codec, translate, updates
from dragoman.events import model, parts
from dragoman.events.words import (
    ChangeStage,
    FileOp,
    Outcome,
    PermissionKind,
    PlanStatus,
    Role,
    ToolKind,
    ToolStatus,
)
from tests.unit.events.sayings import place

LINE = b'{"the":"line"}'
TEXT = acp.TextContent(text="t")


def events(update: Any) -> list[Any]:
    return list(translate.of_update(update, place(), LINE))


def only(update: Any) -> Any:
    (event,) = events(update)
    return event


SAMPLES: list[tuple[Any, type[model.Base]]] = [
    (acp.AgentMessageChunk(content=TEXT), model.MessageDelta),
    (acp.UserMessageChunk(content=TEXT), model.MessageDelta),
    (acp.AgentThoughtChunk(content=TEXT), model.MessageDelta),
    (acp.ToolCall(tool_call_id="t", title="x"), model.ToolChanged),
    (acp.ToolCallProgress(tool_call_id="t"), model.ToolChanged),
    (acp.Plan(entries=[]), model.PlanSet),
    (acp.AvailableCommandsUpdate(available_commands=[]), model.CommandsChanged),
    (acp.CurrentModeUpdate(current_mode_id="m"), model.SettingsChanged),
    (acp.ConfigOptionUpdate(config_options=[]), model.SettingsChanged),
    (acp.SessionInfoUpdate(title="x"), model.SessionChanged),
    (acp.UsageUpdate(used=1, size=2), model.UsageReported),
    (acp.Notice(severity="info", title="x"), model.Noticed),
    (acp.CompactionUpdate(compaction_id="c", status="completed"), model.Compacted),
    (acp.CompactionSummaryChunk(compaction_id="c", content=TEXT), model.Compacted),
    (updates.UnknownUpdate({"sessionUpdate": "odd"}), model.Unknown),
]


def test_every_kind_of_update_has_a_meaning() -> None:
    assert {type(update) for update, _ in SAMPLES} == set(get_args(updates.SessionUpdate))


@pytest.mark.parametrize(("update", "kind"), SAMPLES, ids=lambda item: type(item).__name__)
def test_an_update_is_an_event_that_keeps_the_line_and_names_its_kind(
    update: Any, kind: type[model.Base]
) -> None:
    event = only(update)
    assert type(event) is kind
    assert (event.raw, event.session) == (LINE, "s")
    assert event.native.startswith("session/update:")


def test_a_chunk_is_a_piece_of_a_message_in_its_role() -> None:
    event = only(acp.AgentThoughtChunk(content=TEXT, message_id="m"))
    assert (event.role, event.text, event.block, event.message_id) == (Role.THOUGHT, "t", None, "m")
    image = only(acp.AgentMessageChunk(content=acp.ImageContent(data="d", mime_type="image/png")))
    assert (image.text, image.block) == ("", parts.Image("d", "image/png"))


def test_an_empty_piece_with_token_counts_tells_what_one_model_call_used() -> None:
    counts = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18, "cachedReadTokens": 0}
    empty = acp.TextContent(text="")
    event = only(acp.AgentMessageChunk(content=empty, meta={"usage": counts, "durationMs": 48}))
    assert (event.scope, event.raw) == ("call", LINE)
    assert event.usage == parts.Usage(
        input_tokens=11, output_tokens=7, total_tokens=18, cache_read_tokens=0
    )


@pytest.mark.parametrize(
    "meta", [None, {}, {"usage": "many"}, {"usage": {"inputTokens": "x"}}, {"usage": {}}]
)
def test_an_empty_piece_without_token_counts_is_a_piece(meta: Any) -> None:
    event = only(acp.AgentMessageChunk(content=acp.TextContent(text=""), meta=meta))
    assert type(event) is model.MessageDelta


def test_a_piece_with_text_is_a_piece_whatever_comes_with_it() -> None:
    meta = {"usage": {"totalTokens": 1}}
    assert only(acp.AgentMessageChunk(content=TEXT, meta=meta)).text == "t"


@pytest.mark.parametrize(
    "block",
    [
        acp.TextContent(text="t"),
        acp.ImageContent(data="d", mime_type="image/png", uri="u"),
        acp.AudioContent(data="d", mime_type="audio/wav"),
        acp.ResourceLink(uri="u", name="n", mime_type="text/plain"),
        acp.EmbeddedResource(resource=acp.TextResourceContents(uri="u", text="t")),
        acp.EmbeddedResource(resource=acp.BlobResourceContents(uri="u", blob="b")),
    ],
    ids=lambda block: type(block).__name__,
)
def test_content_goes_there_and_back(block: Any) -> None:
    assert translate.to_block(translate.block(block)) == block


def test_content_of_an_unknown_kind_goes_there_and_back_too() -> None:
    raw = {"type": "hologram", "light": 1}
    block = acp.decode(b'{"type":"hologram","light":1}', acp.ContentBlock)
    there = translate.block(block)
    assert there == parts.OtherBlock("hologram", raw)
    assert acp.encode(translate.to_block(there)) == acp.encode(block)


def test_a_first_report_leaves_open_what_it_does_not_say() -> None:
    event = only(acp.ToolCall(tool_call_id="t", title="Edit"))
    assert (event.title, event.status, event.kind) == ("Edit", UNSET, UNSET)
    patch = only(acp.ToolCallProgress(tool_call_id="t", status="in_progress", kind="odd"))
    assert (patch.title, patch.status, patch.kind) == (UNSET, ToolStatus.RUNNING, ToolKind.OTHER)


def test_diffs_of_a_tool_are_changed_files_and_not_content() -> None:
    tool, files = events(
        acp.ToolCallProgress(
            tool_call_id="t",
            status="completed",
            content=[
                acp.Content(content=TEXT),
                acp.Diff(path="/a", new_text="n"),
                acp.Diff(path="/b", new_text="n", old_text="o"),
                acp.Terminal(terminal_id="x"),
            ],
            locations=[acp.ToolCallLocation(path="/a", line=3)],
        )
    )
    assert tool.content == (parts.Text("t"), parts.TerminalRef("x"))
    assert tool.locations == (parts.Location("/a", 3),)
    assert (files.tool_id, files.stage) == ("t", ChangeStage.APPLIED)
    assert files.changes == (
        parts.FileChange("/a", FileOp.ADD, None, "n"),
        parts.FileChange("/b", FileOp.MODIFY, "o", "n"),
    )
    assert tool.raw is files.raw


@pytest.mark.parametrize(
    ("status", "stage"),
    [
        ("failed", ChangeStage.FAILED),
        (None, ChangeStage.PROPOSED),
        ("pending", ChangeStage.PROPOSED),
    ],
)
def test_a_change_is_applied_only_when_its_tool_is_done(
    status: str | None, stage: ChangeStage
) -> None:
    diff = acp.Diff(path="/a", new_text="n")
    _, files = events(acp.ToolCallProgress(tool_call_id="t", status=status, content=[diff]))
    assert files.stage is stage


def test_plans_usage_and_settings_are_in_common_words() -> None:
    entry = acp.PlanEntry(content="look", priority="high", status="in_progress")
    assert only(acp.Plan(entries=[entry])).entries == (
        parts.PlanEntry("look", PlanStatus.RUNNING, "high"),
    )
    usage = only(acp.UsageUpdate(used=1, size=2, cost=acp.Cost(amount=0.5, currency="USD")))
    assert (usage.scope, usage.usage) == (
        "context",
        parts.Usage(context_used=1, context_size=2, cost=parts.Cost(0.5, "USD")),
    )
    grouped = acp.SessionConfigSelect(
        id="model",
        name="Model",
        category="model",
        current_value="a",
        options=[
            acp.SessionConfigSelectGroup(
                group="g",
                name="G",
                options=[acp.SessionConfigSelectOption(value="a", name="A")],
            )
        ],
    )
    fast = acp.SessionConfigBoolean(id="fast", name="Fast", current_value=True)
    settings = only(acp.ConfigOptionUpdate(config_options=[grouped, fast]))
    assert settings.model == "a"
    assert settings.mode is UNSET
    assert settings.options == (
        parts.SessionOption("model", "Model", "a", (parts.Choice("a", "A", None, "g"),), "model"),
        parts.SessionOption("fast", "Fast", True),
    )


def test_three_states_of_a_title_are_kept_apart() -> None:
    assert only(acp.SessionInfoUpdate()).title is UNSET
    assert only(acp.SessionInfoUpdate(title=None)).title is None
    assert only(acp.SessionInfoUpdate(title="x")).title == "x"


def test_the_summary_of_a_compaction_is_its_text() -> None:
    update = acp.CompactionUpdate(
        compaction_id="c", status="failed", summary=[TEXT, TEXT], error="e"
    )
    event = only(update)
    assert (event.status, event.summary, event.error) == ("failed", "tt", "e")
    chunk = only(acp.CompactionSummaryChunk(compaction_id="c", content=TEXT))
    assert (chunk.status, chunk.summary) == ("in_progress", "t")


@pytest.mark.parametrize("outcome", ['"failed"', '"good"', "[]", "{}", "1", "null"])
def test_an_outcome_that_there_is_not_leaves_the_one_of_the_stop_reason(outcome: str) -> None:
    meta = f'"_meta":{{"dragoman":{{"outcome":{outcome}}}}}'
    response = acp.decode(f'{{"stopReason":"end_turn",{meta}}}'.encode(), acp.PromptResponse)
    ended = translate.of_answer(response, place(), LINE)
    assert ended.outcome is (Outcome.FAILED if outcome == '"failed"' else Outcome.OK)


def test_a_response_ends_the_turn_with_its_own_stop_reason_and_its_usage() -> None:
    response = acp.decode(
        b'{"stopReason":"max_tokens","usage":{"inputTokens":1,"totalTokens":3}}', acp.PromptResponse
    )
    ended = translate.of_answer(response, place(), LINE)
    assert (ended.outcome, ended.stop, ended.raw) == (Outcome.TRUNCATED, "max_tokens", LINE)
    assert ended.usage == parts.Usage(input_tokens=1, total_tokens=3)
    odd = acp.decode(b'{"stopReason":"bored","usage":{"inputTokens":"many"}}', acp.PromptResponse)
    ended = translate.of_answer(odd, place(), LINE)
    assert (ended.outcome, ended.usage) == (Outcome.UNKNOWN, None)


@pytest.mark.parametrize(
    ("quota", "usage"),
    [
        (
            '{"token_count":{"input_tokens":2,"output_tokens":7}}',
            parts.Usage(input_tokens=2, output_tokens=7),
        ),
        ('{"token_count":{"input_tokens":"many"}}', None),
        ('{"token_count":7}', None),
        ("[]", None),
    ],
)
def test_tokens_are_found_where_one_real_agent_puts_them(
    quota: str, usage: parts.Usage | None
) -> None:
    line = f'{{"stopReason":"end_turn","_meta":{{"quota":{quota}}}}}'
    response = acp.decode(line.encode(), acp.PromptResponse)
    assert translate.of_answer(response, place(), LINE).usage == usage


def test_a_request_for_permission_tells_its_tool_call_and_asks() -> None:
    request = acp.RequestPermissionRequest(
        session_id="s",
        tool_call=acp.ToolCallUpdate(tool_call_id="t", title="Dig", kind="execute"),
        options=[
            acp.PermissionOption(option_id="y", name="Yes", kind="allow_once"),
            acp.PermissionOption(option_id="m", name="Maybe", kind="odd"),
        ],
    )
    tool, asked = translate.of_permission(request, "q1", place(), LINE)
    assert isinstance(tool, model.ToolChanged)
    assert isinstance(asked, model.PermissionAsked)
    assert (asked.request_id, asked.title, asked.kind) == ("q1", "Dig", ToolKind.EXECUTE)
    assert [option.kind for option in asked.options] == [
        PermissionKind.ALLOW_ONCE,
        PermissionKind.OTHER,
    ]


def test_questions_to_the_user_are_forms_pages_or_something_else() -> None:
    form = acp.ElicitationForm(
        session_id="s",
        message="Who?",
        requested_schema=acp.ElicitationSchema(
            properties={"name": acp.StringPropertySchema(title="Name")}
        ),
    )
    asked = translate.of_elicitation(form, "q", place(), LINE)
    assert (asked.mode, asked.message) == ("form", "Who?")
    assert asked.schema["properties"]["name"]["title"] == "Name"
    url = acp.ElicitationUrl(
        session_id="s", message="Go", elicitation_id="e", url="https://example.com"
    )
    asked = translate.of_elicitation(url, "e", place(), LINE)
    assert (asked.mode, asked.url) == ("url", "https://example.com")
    odd = acp.UnknownElicitation({"mode": "dance", "message": "Dance!"})
    assert translate.of_elicitation(odd, "q", place(), LINE).mode == "other"


def test_a_service_is_named_by_its_method() -> None:
    called = translate.of_service("fs/read_text_file", place(), LINE)
    assert (called.service, called.operation, called.raw) == ("fs", "read_text_file", LINE)


def test_capabilities_say_yes_no_and_unknown() -> None:
    able = translate.capabilities(
        acp.decode(
            b'{"loadSession":true,"promptCapabilities":{"image":true},'
            b'"sessionCapabilities":{"list":{},"fork":{}},"mcpCapabilities":{"http":true}}',
            acp.AgentCapabilities,
        )
    )
    assert (able.load, able.image, able.list, able.fork, able.mcp_http) == (True,) * 5
    assert (able.resume, able.audio, able.delete, able.mcp_sse) == (False,) * 4
    assert able.set_mode is None


def test_ways_to_log_in_say_what_they_are() -> None:
    agent = translate.auth_method(acp.AuthMethodAgent(id="a", name="A"))
    terminal = translate.auth_method(acp.AuthMethodTerminal(id="t", name="T"), "x login")
    variable = translate.auth_method(
        acp.AuthMethodEnvVar(id="v", name="V", vars=[acp.AuthEnvVar(name="KEY")])
    )
    assert [method.kind for method in (agent, terminal, variable)] == [
        "agent",
        "terminal",
        "env_var",
    ]
    assert (terminal.command, variable.variables) == ("x login", ("KEY",))


def test_unknown_words_and_content_of_a_tool_are_kept_and_are_not_a_success() -> None:
    raw = {"type": "chart", "points": [1]}
    told = {"sessionUpdate": "tool_call_update", "toolCallId": "x", "content": [raw]}
    update = codec.convert({**told, "status": "finished", "kind": "teleport"}, acp.SessionUpdate)
    event = only(update)
    assert (event.status, event.kind) == (ToolStatus.OTHER, ToolKind.OTHER)
    assert event.content == (parts.OtherBlock("chart", raw),)


def test_an_empty_list_takes_a_tools_content_away_and_null_does_not() -> None:
    told = {"sessionUpdate": "tool_call_update", "toolCallId": "x"}
    assert only(codec.convert({**told, "content": []}, acp.SessionUpdate)).content == ()
    assert only(codec.convert({**told, "content": None}, acp.SessionUpdate)).content is UNSET


@pytest.mark.parametrize("usage", [{"totalTokens": "many"}, 7, []])
def test_strange_token_counts_do_not_spoil_the_end_of_a_turn(usage: Any) -> None:
    response = codec.convert({"stopReason": "end_turn", "usage": usage}, acp.PromptResponse)
    ended = translate.of_answer(response, place(), LINE)
    assert (ended.outcome, ended.usage) == (Outcome.OK, None)


@pytest.mark.parametrize("fork", [None, True, "yes"])
def test_only_an_object_says_that_an_agent_can_fork(fork: Any) -> None:
    told = codec.convert({"sessionCapabilities": {"fork": fork}}, acp.AgentCapabilities)
    assert translate.capabilities(told).fork is False


def test_options_of_every_sort_are_reported_and_unknown_ones_left_out() -> None:
    low = {"value": "low", "name": "Low", "description": "d"}
    select = {"type": "select", "name": "E", "currentValue": "low"}
    options = [
        codec.convert(option, acp.SessionConfigOption)
        for option in (
            {"type": "boolean", "id": "web", "name": "Web", "currentValue": True},
            {**select, "id": "flat", "options": [low]},
            {**select, "id": "deep", "options": [{"group": "g", "name": "G", "options": [low]}]},
            {"type": "slider", "id": "x", "name": "X", "currentValue": 3},
        )
    ]
    assert translate.settings(None, options) == {
        "options": (
            parts.SessionOption("web", "Web", True),
            parts.SessionOption("flat", "E", "low", (parts.Choice("low", "Low", "d"),)),
            parts.SessionOption("deep", "E", "low", (parts.Choice("low", "Low", "d", "g"),)),
        )
    }


def test_an_option_for_the_model_says_more_than_the_list_of_models() -> None:
    models = codec.convert({"currentModelId": "old", "availableModels": []}, acp.SessionModelState)
    option = acp.SessionConfigSelect(
        id="llm", name="LLM", category="model", current_value="new", options=[]
    )
    assert translate.settings(None, None, models) == {"model": "old"}
    assert translate.settings(None, [option], models)["model"] == "new"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("words", "words"),
        ({"kind": "table", "rows": [1]}, '{"kind":"table","rows":[1]}'),
        ({"type": "text"}, '{"type":"text"}'),
        ([None], "[null]"),
    ],
)
def test_content_of_another_dialect_is_said_in_words(value: Any, text: str) -> None:
    assert translate.to_block(parts.OtherBlock("odd", value)) == acp.TextContent(text=text)
