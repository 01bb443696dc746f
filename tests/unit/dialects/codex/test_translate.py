"""What notifications mean."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from dragoman.dialects.codex import shapes, translate
from dragoman.events import model, parts
from dragoman.events.model import EventEnvelope
from dragoman.events.words import ChangeStage, ErrorKind, Outcome, PlanStatus, Role, TurnPhase
from tests.amounts import SOME

HERE = {"threadId": "t", "turnId": "u"}


def place() -> EventEnvelope:
    here = EventEnvelope(model.Source("codex", "c"), itertools.count(1), "another thread")
    here.turn = "another turn"
    return here


def events_of(method: str, params: Any, at: EventEnvelope | None = None) -> list[Any]:
    raw = Raw(json.dumps(params).encode())
    return list(translate.of_notification(method, raw, at or place(), b"raw"))


def only(method: str, **params: Any) -> Any:
    (event,) = events_of(method, params)
    assert (event.native, event.raw, event.seq) == (method, b"raw", 1)
    return event


def test_pieces_of_messages_keep_their_role_and_index() -> None:
    event = only("item/agentMessage/delta", **HERE, itemId="i", delta="d")
    assert (event.session, event.turn) == ("t", "u")
    assert (event.role, event.text, event.message_id) == (Role.AGENT, "d", "i")
    event = only("item/reasoning/summaryTextDelta", **HERE, itemId="i", delta="d", summaryIndex=2)
    assert (event.role, event.part, event.index) == (Role.THOUGHT, "summary", 2)
    event = only("item/reasoning/textDelta", **HERE, itemId="i", delta="d", contentIndex=1)
    assert (event.role, event.part, event.index) == (Role.THOUGHT, "raw", 1)


def test_a_second_part_of_a_summary_is_set_off() -> None:
    texts = [
        only("item/reasoning/summaryPartAdded", **HERE, itemId="i", summaryIndex=n).text
        for n in (0, 1)
    ]
    assert texts == ["", "\n\n"]


@pytest.mark.parametrize(
    ("method", "extra", "stream", "text"),
    [
        ("item/commandExecution/outputDelta", {"delta": "d"}, "output", "d"),
        ("item/fileChange/outputDelta", {"delta": "d"}, "output", "d"),
        ("item/mcpToolCall/progress", {"message": "m"}, "progress", "m"),
        (
            "item/commandExecution/terminalInteraction",
            {"stdin": "s", "processId": "1"},
            "stdin",
            "s",
        ),
    ],
)
def test_progress_of_a_tool_becomes_a_delta_of_its_stream(
    method: str, extra: dict[str, str], stream: str, text: str
) -> None:
    event = only(method, **HERE, itemId="i", **extra)
    assert isinstance(event, model.ToolDelta)
    assert (event.tool_id, event.stream, event.text) == ("i", stream, text)


def test_items_begin_and_end() -> None:
    item = {"type": "agentMessage", "id": "i", "text": "x"}
    (begun,) = events_of("item/started", {**HERE, "item": item})
    (ended,) = events_of("item/completed", {**HERE, "item": item})
    assert (begun.final, begun.blocks) == (False, UNSET)
    assert (ended.final, ended.blocks) == (True, (parts.Text("x"),))


def test_a_change_that_is_still_being_written_is_proposed() -> None:
    changes = [{"path": "/a", "kind": {"type": "add"}, "diff": "+"}]
    event = only("item/fileChange/patchUpdated", **HERE, itemId="i", changes=changes)
    assert (event.stage, event.tool_id, event.changes[0].path) == (ChangeStage.PROPOSED, "i", "/a")


@pytest.mark.parametrize(
    ("turn", "outcome"),
    [
        ({"status": "completed"}, Outcome.OK),
        ({"status": "interrupted"}, Outcome.CANCELLED),
        ({"status": "failed"}, Outcome.FAILED),
        (
            {"status": "failed", "error": {"message": "m", "codexErrorInfo": "unauthorized"}},
            Outcome.AUTH_REQUIRED,
        ),
        ({"status": "new word"}, Outcome.UNKNOWN),
        ({}, Outcome.UNKNOWN),
    ],
)
def test_the_end_of_a_turn_has_its_outcome(turn: dict[str, Any], outcome: Outcome) -> None:
    event = only("turn/completed", threadId="t", turn={"id": "u", **turn})
    assert (event.outcome, event.turn) == (outcome, "u")
    assert event.stop == turn.get("status", "")


def test_the_start_of_a_turn_names_thread_and_turn() -> None:
    event = only("turn/started", threadId="t", turn={"id": "u", "status": "inProgress"})
    assert (event.session, event.turn) == ("t", "u")


def test_a_plan_and_a_difference_are_whole() -> None:
    steps = [{"step": "a", "status": "inProgress"}, {"step": "b", "status": "odd"}]
    event = only("turn/plan/updated", **HERE, plan=steps, explanation="why")
    assert [(e.text, e.status) for e in event.entries] == [
        ("a", PlanStatus.RUNNING),
        ("b", PlanStatus.OTHER),
    ]
    assert event.explanation == "why"
    event = only("turn/diff/updated", **HERE, diff="diff")
    assert (event.tool_id, event.changes[0].diff) == (None, "diff")
    event = only("item/plan/delta", **HERE, itemId="i", delta="d")
    assert (event.plan_id, event.text) == ("i", "d")


def test_usage_is_reported_for_the_thread_and_for_the_last_call() -> None:
    counts = {
        "totalTokens": 9,
        "inputTokens": 5,
        "cachedInputTokens": 1,
        "outputTokens": 4,
        "reasoningOutputTokens": 2,
    }
    usage = {"total": counts, "last": {**counts, "totalTokens": 3}, "modelContextWindow": 100}
    events = events_of("thread/tokenUsage/updated", {**HERE, "tokenUsage": usage})
    assert [(e.scope, e.usage.total_tokens) for e in events] == [("session", 9), ("call", 3)]
    assert events[0].usage == parts.Usage(5, 4, 2, 1, 0, 9, context_size=100)


def test_the_remaining_quota_of_the_account_is_reported_for_every_window() -> None:
    window = {"usedPercent": 12, "windowDurationMins": 300, "resetsAt": 1_800_000_000}
    limits = {"limitId": "codex", "primary": window, "secondary": {"usedPercent": 100}}
    event = only("account/rateLimits/updated", rateLimits=limits)
    assert (event.scope, event.session) == ("account", None)
    assert event.usage.limits == (
        parts.Limit("codex", 12, 300, 1_800_000_000),
        parts.Limit("codex", 100),
    )
    reached = {"limitName": "Codex", "rateLimitReachedType": "rate_limit_reached"}
    event = only("account/rateLimits/updated", rateLimits={**limits, **reached})
    assert {(limit.name, limit.reached) for limit in event.usage.limits} == {("Codex", True)}
    assert only("account/rateLimits/updated", rateLimits={}).usage == parts.Usage()


@pytest.mark.parametrize(
    ("status", "phase", "flags"),
    [
        ({"type": "active", "activeFlags": []}, TurnPhase.RUNNING, ()),
        (
            {"type": "active", "activeFlags": ["waitingOnApproval"]},
            TurnPhase.WAITING,
            ("waitingOnApproval",),
        ),
        ({"type": "idle"}, TurnPhase.IDLE, ()),
    ],
)
def test_the_status_of_a_thread_becomes_a_phase_with_flags(
    status: Any, phase: TurnPhase, flags: tuple[str, ...]
) -> None:
    event = only("thread/status/changed", threadId="t", status=status)
    assert (event.phase, event.flags, event.turn) == (phase, flags, None)


def test_other_states_of_a_thread_are_kept() -> None:
    assert only("thread/status/changed", threadId="t", status={"type": "systemError"}).status == (
        "systemError"
    )
    assert only("thread/unarchived", threadId="t").status == "unarchived"
    assert only("thread/reverted", threadId="t").status == "reverted"
    assert only("thread/started", thread={"id": "t"}).session == "t"
    assert only("thread/name/updated", threadId="t", threadName="n").title == "n"


@pytest.mark.parametrize("method", ["thread/closed", "thread/archived", "thread/deleted"])
def test_the_end_of_a_thread_closes_the_session(method: str) -> None:
    event = only(method, threadId="t")
    assert isinstance(event, model.SessionClosed)
    assert (event.session, event.reason) == ("t", method)


def test_changed_settings_become_mode_model_and_options() -> None:
    settings = {
        "model": "m",
        "approvalPolicy": {"granular": {}},
        "sandboxPolicy": {"type": "readOnly"},
    }
    event = only("thread/settings/updated", threadId="t", threadSettings=settings)
    assert (event.mode, event.model, event.options[0].value) == ("read-only", "m", "granular")
    notice, changed = events_of("model/rerouted", {**HERE, "fromModel": "a", "toModel": "b"})
    assert notice.title == "The model a was replaced by b"
    assert changed.model == "b"
    assert translate.mode_of("nonsense") is None
    assert translate.mode_of({"type": "externalSandbox"}) is None


def test_an_error_that_is_retried_is_a_notice_and_another_an_error() -> None:
    error = {"message": "m", "codexErrorInfo": "serverOverloaded", "additionalDetails": "d"}
    event = only("error", **HERE, error=error, willRetry=True)
    assert (event.title, event.detail, event.retrying) == ("m", "d", True)
    event = only("error", **HERE, error=error, willRetry=False)
    assert (event.scope, event.failure.kind) == ("turn", ErrorKind.OVERLOADED)


def test_warnings_become_notices() -> None:
    assert only("warning", threadId="t", message="m").title == "m"
    assert only("guardianWarning", threadId="t", message="m").title == "m"
    event = only("configWarning", summary="s", details="d")
    assert (event.session, event.title, event.detail) == (None, "s", "d")
    assert only("deprecationNotice", summary="s", details=None).detail is None


def test_settled_questions_and_logins_become_events() -> None:
    assert only("serverRequest/resolved", threadId="t", requestId=3).request_id == "3"
    assert only("account/updated", authMode="chatgpt").logged_in is True
    assert only("account/updated", authMode=None).logged_in is False
    event = only("account/login/completed", success=False, error="no")
    assert (event.logged_in, event.error) == (None, "no")
    assert only("thread/compacted", **HERE).status == "completed"


def test_what_is_not_known_is_kept_with_the_thread_that_it_names() -> None:
    event = only("hook/started", threadId="t", turnId=None, run={})
    assert isinstance(event, model.Unknown)
    assert (event.session, event.turn) == ("t", None)
    event = only("fs/changed", paths=[])
    assert (event.session, event.turn) == (None, None)


def test_what_is_not_as_expected_is_kept_with_its_reason() -> None:
    event = only("item/agentMessage/delta", **HERE, itemId="i", delta=3)
    assert isinstance(event, model.Unknown)
    assert "delta" in event.reason
    assert (event.session, event.turn) == ("t", "u")


@SOME
@given(
    method=st.sampled_from(sorted(translate._NOTIFICATIONS)),
    params=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["threadId", "turnId", "turn", "item", "id", "type", "status"]),
                inner,
                max_size=5,
            )
        ),
        max_leaves=10,
    ),
)
def test_garbage_never_raises(method: str, params: Any) -> None:
    for event in events_of(method, params):
        assert event.raw == b"raw"


@pytest.mark.parametrize("params", [b"", b"{", b'{"threadId": "\xff"}', b"[" * 5000])
def test_what_is_not_even_json_never_raises(params: bytes) -> None:
    (event,) = translate.of_notification("turn/completed", Raw(params), place(), b"raw")
    assert isinstance(event, model.Unknown)


def test_a_turn_of_a_history_begins_and_ends() -> None:
    turn = shapes.Turn("u", "completed", None, [Raw(b'{"type": "agentMessage", "id": "i"}')])
    events = list(translate.of_turn(turn, place(), "thread/load"))
    assert [type(event) for event in events] == [
        model.TurnStarted,
        model.MessageSet,
        model.TurnEnded,
    ]
    assert {event.turn for event in events} == {"u"}
    running = list(translate.of_turn(shapes.Turn("u", "inProgress"), place(), "thread/load"))
    assert [type(event) for event in running] == [model.TurnStarted]


def test_the_version_is_in_the_user_agent() -> None:
    assert translate.named("dragoman/0.166.0 (Debian 12) dumb").version == "0.166.0"
    assert translate.named("nonsense").version is None
    assert translate.peer_info(Raw(b'{"userAgent": "x/1.2.3"}')).version == "1.2.3"
    assert translate.peer_info(Raw(b"[]")) == parts.PeerInfo()
