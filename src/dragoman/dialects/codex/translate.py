"""Translate notifications of the Codex app-server into events.

Also defines the modes and the approval policies of a thread. `items` translates items and
`failures` errors. Stateless: every message names its thread and turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from dragoman.dialects.codex import failures, items, shapes
from dragoman.events import model, parts, words
from dragoman.events.model import Event, EventEnvelope
from dragoman.events.words import ChangeStage, Outcome, Role
from dragoman.wire.messages import UNDECODABLE

DIALECT: Final = "codex"

T = TypeVar("T")
Meaning: TypeAlias = Callable[[Any, EventEnvelope, bytes | None, str], Iterable[Event]]

MODES: Final = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
}
"""The sandboxes, which dragoman offers as modes: the server's word in a request, mapped to its word
in a response."""

POLICIES: Final = ("untrusted", "on-request", "never")
"""The approval policies, which say when the server asks for approval."""

POLICY_OPTION: Final = "approval_policy"

_AGENT: Final = Role.AGENT
"""Cached, because looking up a member of an enum takes as long as two calls."""


def named(user_agent: str) -> parts.PeerInfo:
    """Return the server's name, and its version if the user agent has one, as in
    ``name/0.166.0 (…)``. No other field has the version."""
    found = re.search(r"/(\d+\.\d+\.\d+\S*)", user_agent)
    return parts.PeerInfo("codex", "Codex", found[1] if found else None)


def peer_info(result: Raw) -> parts.PeerInfo:
    """Return the server's name, and its version from the response to the handshake; empty if the
    response is invalid."""
    try:
        return named(msgspec.json.decode(result, type=shapes.InitializeResponse).user_agent)
    except UNDECODABLE:
        return parts.PeerInfo()


def mode_of(sandbox: Any) -> str | None:
    """Return the mode for a sandbox in a response, or None if it is not one of `MODES`."""
    kind = sandbox.get("type") if isinstance(sandbox, dict) else None
    return next((mode for mode, word in MODES.items() if word == kind), None)


def policy_option(policy: Any) -> parts.SessionOption:
    """Return the approval policy as an option of a session."""
    choices = tuple(parts.Choice(word, word) for word in POLICIES)
    value = policy if isinstance(policy, str) else "granular"
    return parts.SessionOption(POLICY_OPTION, "Approval policy", value, choices)


def of_notification(
    method: str, params: Raw, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    """Translate a notification. One that is unknown or cannot be decoded becomes an `Unknown`
    event. `place` may be changed to the thread and turn that the notification names."""
    known = _NOTIFICATIONS.get(method)
    if known is None:
        return _unknown(method, params, place, raw, "an unknown notification")
    decode, meaning = known
    try:
        message = decode(params)
    except UNDECODABLE as error:
        return _unknown(method, params, place, raw, str(error))
    return meaning(message, place, raw, method)


def _unknown(
    method: str, params: Raw, place: EventEnvelope, raw: bytes | None, reason: str
) -> tuple[Event, ...]:
    """Return an `Unknown` event for a message, in the thread and turn that the message names."""
    try:
        scope = msgspec.json.decode(params, type=shapes.Scope)
    except UNDECODABLE:
        scope = shapes.Scope()
    base = _at(place, scope.thread_id, scope.turn_id).base(method, raw)
    return (model.Unknown(*base, reason),)


def _at(place: EventEnvelope, thread: str | None, turn: str | None) -> EventEnvelope:
    place.session = thread
    place.turn = turn
    return place


# -- messages and items


def _agent_delta(m: shapes.ItemDelta, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    # Written out because this is the most common event.
    return (
        model.MessageDelta(
            place.source,
            next(place.numbers),
            m.thread_id,
            m.turn_id,
            native,
            raw,
            place.replay,
            _AGENT,
            m.delta,
            None,
            m.item_id,
        ),
    )


def _summary_delta(
    m: shapes.SummaryTextDelta, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (
        model.MessageDelta(
            *base, Role.THOUGHT, m.delta, None, m.item_id, "summary", m.summary_index
        ),
    )


def _summary_part(
    m: shapes.SummaryPartAdded, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    text = items.PART_BREAK if m.summary_index else ""
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (
        model.MessageDelta(*base, Role.THOUGHT, text, None, m.item_id, "summary", m.summary_index),
    )


def _thought_delta(
    m: shapes.ReasoningTextDelta, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (
        model.MessageDelta(*base, Role.THOUGHT, m.delta, None, m.item_id, "raw", m.content_index),
    )


def _plan_delta(m: shapes.ItemDelta, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.PlanDelta(*base, m.delta, m.item_id),)


def _output_delta(m: shapes.ItemDelta, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.ToolDelta(*base, m.item_id, "output", m.delta),)


def _stdin(
    m: shapes.TerminalInteraction, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.ToolDelta(*base, m.item_id, "stdin", m.stdin),)


def _progress(
    m: shapes.McpToolCallProgress, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.ToolDelta(*base, m.item_id, "progress", m.message),)


def _patch(m: shapes.PatchUpdated, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (
        model.FilesChanged(*base, items.changes_of(m.changes), ChangeStage.PROPOSED, m.item_id),
    )


def _started(
    m: shapes.ItemNotification, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    return items.of_item(m.item, _at(place, m.thread_id, m.turn_id), raw, native, final=False)


def _completed(
    m: shapes.ItemNotification, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    return items.of_item(m.item, _at(place, m.thread_id, m.turn_id), raw, native, final=True)


# -- turns


def _turn_started(
    m: shapes.TurnNotification, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    return (model.TurnStarted(*_at(place, m.thread_id, m.turn.id).base(native, raw)),)


def _turn_completed(
    m: shapes.TurnNotification, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    _at(place, m.thread_id, m.turn.id)
    return (ending(m.turn, place, raw, native),)


def ending(turn: shapes.TurnOutline, place: EventEnvelope, raw: bytes | None, native: str) -> Event:
    """Translate the end of a turn."""
    failure = None if turn.error is None else failures.failure_of(turn.error)
    outcome = words.outcome_of(turn.status)
    if outcome is Outcome.FAILED and failure is not None:
        outcome = failures.outcome_of(failure)
    return model.TurnEnded(*place.base(native, raw), outcome, turn.status, failure)


def of_turn(turn: shapes.Turn, place: EventEnvelope, native: str) -> Iterable[Event]:
    """Translate a turn in the history of a thread."""
    place.turn = turn.id
    yield model.TurnStarted(*place.base(native, None))
    for item in turn.items:
        yield from items.of_history(item, place, native)
    if turn.status != "inProgress":
        yield ending(turn, place, None, native)


def _plan(m: shapes.TurnPlanUpdated, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    entries = tuple(parts.PlanEntry(step.step, words.plan_status(step.status)) for step in m.plan)
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.PlanSet(*base, entries, explanation=m.explanation),)


def _diff(m: shapes.TurnDiffUpdated, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.FilesChanged(*base, (parts.FileChange("", diff=m.diff),), ChangeStage.UNKNOWN),)


def _usage(
    m: shapes.ThreadTokenUsageUpdated, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    _at(place, m.thread_id, m.turn_id)
    size = m.token_usage.model_context_window
    return [
        model.UsageReported(*place.base(native, raw), scope, _breakdown(part, size))
        for scope, part in (("session", m.token_usage.total), ("call", m.token_usage.last))
    ]


def _breakdown(part: shapes.TokenUsageBreakdown, size: int | None) -> parts.Usage:
    return parts.Usage(
        input_tokens=part.input_tokens,
        output_tokens=part.output_tokens,
        thought_tokens=part.reasoning_output_tokens,
        cache_read_tokens=part.cached_input_tokens,
        cache_write_tokens=part.cache_write_input_tokens,
        total_tokens=part.total_tokens,
        context_size=size,
    )


def _status(
    m: shapes.ThreadStatusChanged, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    match m.status.type:
        case "active":
            waits = any(flag.startswith("waitingOn") for flag in m.status.active_flags)
            phase = words.TurnPhase.WAITING if waits else words.TurnPhase.RUNNING
            return (model.TurnState(*base, phase, tuple(m.status.active_flags)),)
        case "idle":
            return (model.TurnState(*base, words.TurnPhase.IDLE),)
        case other:
            return (model.SessionChanged(*base, status=other),)


# -- the rest


def _name(m: shapes.ThreadNameUpdated, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    return (model.SessionChanged(*base, title=m.thread_name),)


def _settings(
    m: shapes.ThreadSettingsUpdated, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    told = m.thread_settings
    options = (policy_option(told.approval_policy),)
    mode = mode_of(told.sandbox_policy)
    return (model.SettingsChanged(*base, options=options, mode=mode, model=told.model),)


def _back(m: shapes.ThreadScoped, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    return (model.SessionChanged(*base, status=native.rpartition("/")[2]),)


def _closed(m: shapes.ThreadScoped, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    return (model.SessionClosed(*_at(place, m.thread_id, None).base(native, raw), native),)


def _error(
    m: shapes.ErrorNotification, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    failure = failures.failure_of(m.error)
    if m.will_retry:
        details = failures.details_of(m.error)
        return (model.Noticed(*base, "warning", failure.message, details, True),)
    return (model.ErrorReported(*base, "turn", failure),)


def _warning(m: shapes.Warning, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    return (model.Noticed(*base, "warning", m.message),)


def _config_warning(
    m: shapes.ConfigWarning, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, None, None).base(native, raw)
    return (model.Noticed(*base, "warning", m.summary, m.details),)


def _rerouted(m: shapes.ModelRerouted, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    _at(place, m.thread_id, m.turn_id)
    title = f"The model {m.from_model} was replaced by {m.to_model}"
    return (
        model.Noticed(*place.base(native, raw), "warning", title),
        model.SettingsChanged(*place.base(native, raw), model=m.to_model),
    )


def _resolved(
    m: shapes.ServerRequestResolved, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    return (model.InputAnswered(*base, str(m.request_id), "completed"),)


def _account(m: shapes.AccountUpdated, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, None, None).base(native, raw)
    mode = m.auth_mode if isinstance(m.auth_mode, str) else None
    return (model.LoginChanged(*base, m.auth_mode is not None, mode),)


def _login(
    m: shapes.AccountLoginCompleted, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, None, None).base(native, raw)
    return (model.LoginChanged(*base, m.success or None, None, m.error),)


def _limits(
    m: shapes.AccountRateLimitsUpdated, place: EventEnvelope, raw: bytes | None, native: str
) -> Any:
    base = _at(place, None, None).base(native, raw)
    return (model.UsageReported(*base, "account", parts.Usage(limits=limits_of(m.rate_limits))),)


def limits_of(told: shapes.RateLimitSnapshot) -> tuple[parts.Limit, ...]:
    """Return how much of an account's limits is used: one entry for each period that is
    reported."""
    name = told.limit_name or told.limit_id or "codex"
    reached = told.rate_limit_reached_type is not None
    return tuple(
        parts.Limit(
            name, window.used_percent, window.window_duration_mins, window.resets_at, reached
        )
        for window in (told.primary, told.secondary)
        if window is not None
    )


def _compacted(m: shapes.TurnScoped, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.Compacted(*base, "completed"),)


def _new(m: shapes.ThreadNotification, place: EventEnvelope, raw: bytes | None, native: str) -> Any:
    """Translate `thread/started` into a changed status. The start of a thread that dragoman
    requested is also reported with the response to that request."""
    base = _at(place, m.thread.id, None).base(native, raw)
    return (model.SessionChanged(*base, status="started"),)


def _reads(shape: type[T]) -> Callable[[Raw], T]:
    return msgspec.json.Decoder(shape).decode


_NOTIFICATIONS: Final[dict[str, tuple[Callable[[Raw], Any], Meaning]]] = {
    "item/agentMessage/delta": (_reads(shapes.ItemDelta), _agent_delta),
    "item/reasoning/summaryTextDelta": (_reads(shapes.SummaryTextDelta), _summary_delta),
    "item/reasoning/summaryPartAdded": (_reads(shapes.SummaryPartAdded), _summary_part),
    "item/reasoning/textDelta": (_reads(shapes.ReasoningTextDelta), _thought_delta),
    "item/plan/delta": (_reads(shapes.ItemDelta), _plan_delta),
    "item/commandExecution/outputDelta": (_reads(shapes.ItemDelta), _output_delta),
    "item/commandExecution/terminalInteraction": (_reads(shapes.TerminalInteraction), _stdin),
    "item/fileChange/outputDelta": (_reads(shapes.ItemDelta), _output_delta),
    "item/fileChange/patchUpdated": (_reads(shapes.PatchUpdated), _patch),
    "item/mcpToolCall/progress": (_reads(shapes.McpToolCallProgress), _progress),
    "item/started": (_reads(shapes.ItemNotification), _started),
    "item/completed": (_reads(shapes.ItemNotification), _completed),
    "turn/started": (_reads(shapes.TurnNotification), _turn_started),
    "turn/completed": (_reads(shapes.TurnNotification), _turn_completed),
    "turn/plan/updated": (_reads(shapes.TurnPlanUpdated), _plan),
    "turn/diff/updated": (_reads(shapes.TurnDiffUpdated), _diff),
    "thread/tokenUsage/updated": (_reads(shapes.ThreadTokenUsageUpdated), _usage),
    "thread/status/changed": (_reads(shapes.ThreadStatusChanged), _status),
    "thread/settings/updated": (_reads(shapes.ThreadSettingsUpdated), _settings),
    "thread/unarchived": (_reads(shapes.ThreadScoped), _back),
    "thread/reverted": (_reads(shapes.ThreadScoped), _back),
    "thread/name/updated": (_reads(shapes.ThreadNameUpdated), _name),
    "thread/started": (_reads(shapes.ThreadNotification), _new),
    "thread/closed": (_reads(shapes.ThreadScoped), _closed),
    "thread/archived": (_reads(shapes.ThreadScoped), _closed),
    "thread/deleted": (_reads(shapes.ThreadScoped), _closed),
    "thread/compacted": (_reads(shapes.TurnScoped), _compacted),
    "error": (_reads(shapes.ErrorNotification), _error),
    "warning": (_reads(shapes.Warning), _warning),
    "guardianWarning": (_reads(shapes.Warning), _warning),
    "configWarning": (_reads(shapes.ConfigWarning), _config_warning),
    "deprecationNotice": (_reads(shapes.ConfigWarning), _config_warning),
    "model/rerouted": (_reads(shapes.ModelRerouted), _rerouted),
    "serverRequest/resolved": (_reads(shapes.ServerRequestResolved), _resolved),
    "account/rateLimits/updated": (_reads(shapes.AccountRateLimitsUpdated), _limits),
    "account/updated": (_reads(shapes.AccountUpdated), _account),
    "account/login/completed": (_reads(shapes.AccountLoginCompleted), _login),
}
