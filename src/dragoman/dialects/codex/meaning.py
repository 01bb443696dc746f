"""What the app-server's messages mean in the common vocabulary.

Owns the mapping from notifications, items and errors to events. It keeps nothing between messages:
every one of them names its thread and its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw

from dragoman.dialects.codex import shapes
from dragoman.events import model, parts, words
from dragoman.events.model import Event
from dragoman.events.place import Place
from dragoman.events.words import ErrorKind, FileOp, Outcome, Role, Stage, ToolKind, ToolStatus

DIALECT: Final = "codex"

T = TypeVar("T")
Meaning: TypeAlias = Callable[[Any, Place, bytes | None, str], Iterable[Event]]

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def of_notification(method: str, params: Raw, place: Place, raw: bytes | None) -> Iterable[Event]:
    """What a notification says. One that is not known, or not as expected, is `Unknown`."""
    known = _NOTIFICATIONS.get(method)
    if known is None:
        return (model.Unknown(*place.base(method, raw), "an unknown notification"),)
    decode, meaning = known
    try:
        message = decode(params)
    except _UNREADABLE as error:
        return (model.Unknown(*place.base(method, raw), str(error)),)
    return meaning(message, place, raw, method)


def _at(place: Place, thread: str | None, turn: str | None) -> Place:
    place.session = thread
    place.turn = turn
    return place


# -- messages and items


def _agent_delta(m: shapes.ItemDelta, place: Place, raw: bytes | None, native: str) -> Any:
    # Spelled out because this is the commonest event of all.
    return (
        model.MessageDelta(
            place.source,
            next(place.numbers),
            m.thread_id,
            m.turn_id,
            native,
            raw,
            place.replay,
            Role.AGENT,
            m.delta,
            None,
            m.item_id,
        ),
    )


def _summary_delta(m: shapes.SummaryTextDelta, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (
        model.MessageDelta(
            *base, Role.THOUGHT, m.delta, None, m.item_id, "summary", m.summary_index
        ),
    )


def _thought_delta(
    m: shapes.ReasoningTextDelta, place: Place, raw: bytes | None, native: str
) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (
        model.MessageDelta(*base, Role.THOUGHT, m.delta, None, m.item_id, "raw", m.content_index),
    )


def _plan_delta(m: shapes.ItemDelta, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.PlanDelta(*base, m.delta, m.item_id),)


def _output_delta(m: shapes.ItemDelta, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.ToolDelta(*base, m.item_id, "output", m.delta),)


def _stdin(m: shapes.TerminalInteraction, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.ToolDelta(*base, m.item_id, "stdin", m.stdin),)


def _progress(m: shapes.McpToolCallProgress, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.ToolDelta(*base, m.item_id, "progress", m.message),)


def _started(m: shapes.ItemNotification, place: Place, raw: bytes | None, native: str) -> Any:
    return of_item(m.item, _at(place, m.thread_id, m.turn_id), raw, native, final=False)


def _completed(m: shapes.ItemNotification, place: Place, raw: bytes | None, native: str) -> Any:
    return of_item(m.item, _at(place, m.thread_id, m.turn_id), raw, native, final=True)


def of_item(
    item: shapes.Item, place: Place, raw: bytes | None, native: str, *, final: bool
) -> list[Event]:
    """What an item says: a message, a plan, or a tool call with the files it changes."""
    native = f"{native}:{item.type}"
    match item.type:
        case "userMessage":
            return _message(Role.USER, user_blocks(item.content), item, place, raw, native, final)
        case "agentMessage":
            # When it starts its text is empty, and the deltas are still to come.
            blocks = (parts.Text(item.text or ""),) if final else ()
            return _message(Role.AGENT, blocks, item, place, raw, native, final)
        case "reasoning":
            texts = [*(item.summary or ()), *_strings(item.content)]
            blocks = (parts.Text("".join(texts)),) if final and texts else ()
            return _message(Role.THOUGHT, blocks, item, place, raw, native, final)
        case "plan":
            if not final:
                return []
            return [model.PlanSet(*place.base(native, raw), (), item.text or "", item.id)]
        case "contextCompaction":
            status = "completed" if final else "in_progress"
            return [model.Compacted(*place.base(native, raw), status, item.id)]
        case "enteredReviewMode" | "exitedReviewMode" | "hookPrompt" | "functionCallOutput":
            return [model.Unknown(*place.base(native, raw), "an item without a common word")]
        case _:
            return _tool(item, place, raw, native, final=final)


def _message(
    role: Role,
    blocks: tuple[parts.Block, ...],
    item: shapes.Item,
    place: Place,
    raw: bytes | None,
    native: str,
    final: bool,
) -> list[Event]:
    told = blocks if blocks or final else UNSET
    return [model.MessageSet(*place.base(native, raw), role, item.id, told, final)]


def user_blocks(content: Any) -> tuple[parts.Block, ...]:
    """What a user said, from the server's echo of it."""
    blocks: list[parts.Block] = []
    for piece in content if isinstance(content, list) else ():
        if not isinstance(piece, dict):
            continue
        kind = str(piece.get("type", ""))
        if kind == "text":
            blocks.append(parts.Text(str(piece.get("text", ""))))
        elif kind in ("image", "audio") and isinstance(url := piece.get("url"), str):
            blocks.append(_from_data_url(kind, url))
        else:
            blocks.append(parts.OtherBlock(kind, piece))
    return tuple(blocks)


def _from_data_url(kind: str, url: str) -> parts.Block:
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:"):
        return parts.Link(url, kind)
    mime_type = head.removeprefix("data:").partition(";")[0]
    return parts.Image(data, mime_type) if kind == "image" else parts.Audio(data, mime_type)


def _strings(content: Any) -> list[str]:
    return [text for text in content if isinstance(text, str)] if isinstance(content, list) else []


_KINDS: Final[dict[str, ToolKind]] = {
    "commandExecution": ToolKind.EXECUTE,
    "fileChange": ToolKind.EDIT,
    "webSearch": ToolKind.FETCH,
    "imageView": ToolKind.READ,
}
_READS: Final = {"read": ToolKind.READ, "search": ToolKind.SEARCH, "listFiles": ToolKind.SEARCH}


def _kind(item: shapes.Item) -> ToolKind:
    actions = [action.get("type") for action in item.command_actions or ()]
    if actions and all(action in _READS for action in actions):
        kinds = {_READS[action] for action in actions if action is not None}
        return kinds.pop() if len(kinds) == 1 else ToolKind.READ
    return _KINDS.get(item.type, ToolKind.OTHER)


def _title(item: shapes.Item) -> str:
    match item.type:
        case "commandExecution":
            return item.command or ""
        case "fileChange":
            paths = [change.path for change in item.changes or ()]
            return "Edit " + ", ".join(paths) if paths else "Edit files"
        case "mcpToolCall":
            return f"{item.server}: {item.tool}"
        case "webSearch":
            return f"Search the web: {item.query}"
        case "imageView":
            return f"Look at {item.path}"
        case _:
            return item.tool or item.type


def _tool(
    item: shapes.Item, place: Place, raw: bytes | None, native: str, *, final: bool
) -> list[Event]:
    status = ToolStatus.COMPLETED if final else ToolStatus.RUNNING
    if item.status is not None:
        status = words.tool_status(item.status)
    output = item.aggregated_output if item.aggregated_output is not None else item.result
    changed = model.ToolChanged(
        *place.base(native, raw),
        item.id,
        title=_title(item),
        name=item.tool or item.type,
        kind=_kind(item),
        status=status,
        input=_input(item),
        output=UNSET if output is None else output,
        exit_code=UNSET if item.exit_code is None else item.exit_code,
        error=UNSET if item.error is None else _error_text(item.error),
    )
    events: list[Event] = [changed]
    if item.changes:
        events.append(
            model.FilesChanged(
                *place.base(native, raw),
                tuple(_change(change) for change in item.changes),
                _STAGES.get(status, Stage.UNKNOWN),
                item.id,
            )
        )
    return events


_STAGES: Final[dict[ToolStatus, Stage]] = {
    ToolStatus.RUNNING: Stage.PROPOSED,
    ToolStatus.PENDING: Stage.PROPOSED,
    ToolStatus.COMPLETED: Stage.APPLIED,
    ToolStatus.FAILED: Stage.FAILED,
    ToolStatus.DECLINED: Stage.DECLINED,
}


def _input(item: shapes.Item) -> Any:
    if item.command is not None:
        return {"command": item.command}
    return UNSET if item.arguments is None else item.arguments


def _error_text(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


_OPS: Final = {"add": FileOp.ADD, "delete": FileOp.DELETE, "update": FileOp.MODIFY}


def _change(change: shapes.FileUpdateChange) -> parts.FileChange:
    kind = change.kind if isinstance(change.kind, dict) else {}
    moved = kind.get("move_path")
    op = _OPS.get(str(kind.get("type")), FileOp.UNKNOWN)
    if isinstance(moved, str):
        return parts.FileChange(moved, FileOp.MOVE, diff=change.diff, old_path=change.path)
    return parts.FileChange(change.path, op, diff=change.diff)


# -- turns


def _turn_started(m: shapes.TurnNotification, place: Place, raw: bytes | None, native: str) -> Any:
    return (model.TurnStarted(*_at(place, m.thread_id, m.turn.id).base(native, raw)),)


def _turn_completed(
    m: shapes.TurnNotification, place: Place, raw: bytes | None, native: str
) -> Any:
    _at(place, m.thread_id, m.turn.id)
    failure = None if m.turn.error is None else failure_of(m.turn.error)
    outcome = words.outcome_of(m.turn.status)
    if outcome is Outcome.FAILED and failure is not None:
        outcome = words.ERROR_OUTCOMES.get(failure.kind, Outcome.FAILED)
    return (model.TurnEnded(*place.base(native, raw), outcome, m.turn.status, failure),)


def _plan(m: shapes.TurnPlanUpdated, place: Place, raw: bytes | None, native: str) -> Any:
    entries = tuple(parts.PlanEntry(step.step, words.plan_status(step.status)) for step in m.plan)
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.PlanSet(*base, entries, explanation=m.explanation),)


def _diff(m: shapes.TurnDiffUpdated, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.FilesChanged(*base, (parts.FileChange("", diff=m.diff),), Stage.UNKNOWN),)


def _usage(m: shapes.ThreadTokenUsageUpdated, place: Place, raw: bytes | None, native: str) -> Any:
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


def _status(m: shapes.ThreadStatusChanged, place: Place, raw: bytes | None, native: str) -> Any:
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


def _name(m: shapes.ThreadNameUpdated, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    return (model.SessionChanged(*base, title=m.thread_name),)


def _closed(m: shapes.ThreadScoped, place: Place, raw: bytes | None, native: str) -> Any:
    return (model.SessionClosed(*_at(place, m.thread_id, None).base(native, raw), native),)


def _error(m: shapes.ErrorNotification, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    failure = failure_of(m.error)
    if m.will_retry:
        return (model.Noticed(*base, "warning", failure.message, m.error.additional_details, True),)
    return (model.ErrorReported(*base, "turn", failure),)


def _warning(m: shapes.Warning, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    return (model.Noticed(*base, "warning", m.message),)


def _config_warning(m: shapes.ConfigWarning, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, None, None).base(native, raw)
    return (model.Noticed(*base, "warning", m.summary, m.details),)


def _rerouted(m: shapes.ModelRerouted, place: Place, raw: bytes | None, native: str) -> Any:
    _at(place, m.thread_id, m.turn_id)
    title = f"The model {m.from_model} was replaced by {m.to_model}"
    return (
        model.Noticed(*place.base(native, raw), "warning", title),
        model.SettingsChanged(*place.base(native, raw), model=m.to_model),
    )


def _resolved(m: shapes.ServerRequestResolved, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, None).base(native, raw)
    return (model.InputAnswered(*base, str(m.request_id), "completed"),)


def _account(m: shapes.AccountUpdated, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, None, None).base(native, raw)
    mode = m.auth_mode if isinstance(m.auth_mode, str) else None
    return (model.LoginChanged(*base, m.auth_mode is not None, mode),)


def _login(m: shapes.AccountLoginCompleted, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, None, None).base(native, raw)
    return (model.LoginChanged(*base, m.success or None, None, m.error),)


def _compacted(m: shapes.TurnScoped, place: Place, raw: bytes | None, native: str) -> Any:
    base = _at(place, m.thread_id, m.turn_id).base(native, raw)
    return (model.Compacted(*base, "completed"),)


def _nothing(m: Any, place: Place, raw: bytes | None, native: str) -> Any:
    """Said already by an answer: that a thread has started."""
    return (model.Unknown(*place.base(native, raw), "known from the answer"),)


def _reads(shape: type[T]) -> Callable[[Raw], T]:
    return msgspec.json.Decoder(shape).decode


_NOTIFICATIONS: Final[dict[str, tuple[Callable[[Raw], Any], Meaning]]] = {
    "item/agentMessage/delta": (_reads(shapes.ItemDelta), _agent_delta),
    "item/reasoning/summaryTextDelta": (_reads(shapes.SummaryTextDelta), _summary_delta),
    "item/reasoning/textDelta": (_reads(shapes.ReasoningTextDelta), _thought_delta),
    "item/plan/delta": (_reads(shapes.ItemDelta), _plan_delta),
    "item/commandExecution/outputDelta": (_reads(shapes.ItemDelta), _output_delta),
    "item/commandExecution/terminalInteraction": (_reads(shapes.TerminalInteraction), _stdin),
    "item/mcpToolCall/progress": (_reads(shapes.McpToolCallProgress), _progress),
    "item/started": (_reads(shapes.ItemNotification), _started),
    "item/completed": (_reads(shapes.ItemNotification), _completed),
    "turn/started": (_reads(shapes.TurnNotification), _turn_started),
    "turn/completed": (_reads(shapes.TurnNotification), _turn_completed),
    "turn/plan/updated": (_reads(shapes.TurnPlanUpdated), _plan),
    "turn/diff/updated": (_reads(shapes.TurnDiffUpdated), _diff),
    "thread/tokenUsage/updated": (_reads(shapes.ThreadTokenUsageUpdated), _usage),
    "thread/status/changed": (_reads(shapes.ThreadStatusChanged), _status),
    "thread/name/updated": (_reads(shapes.ThreadNameUpdated), _name),
    "thread/started": (_reads(shapes.ThreadNotification), _nothing),
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
    "account/updated": (_reads(shapes.AccountUpdated), _account),
    "account/login/completed": (_reads(shapes.AccountLoginCompleted), _login),
}


# -- errors

_ERROR_KINDS: Final[dict[str, ErrorKind]] = {
    "unauthorized": ErrorKind.AUTH_REQUIRED,
    "contextWindowExceeded": ErrorKind.CONTEXT_FULL,
    "sessionBudgetExceeded": ErrorKind.CONTEXT_FULL,
    "usageLimitExceeded": ErrorKind.QUOTA,
    "rateLimitExceeded": ErrorKind.RATE_LIMITED,
    "serverOverloaded": ErrorKind.OVERLOADED,
    "httpConnectionFailed": ErrorKind.NETWORK,
    "responseStreamConnectionFailed": ErrorKind.NETWORK,
    "responseStreamDisconnected": ErrorKind.NETWORK,
    "responseTooManyFailedAttempts": ErrorKind.NETWORK,
    "internalServerError": ErrorKind.INTERNAL,
    "badRequest": ErrorKind.PEER,
}
_RETRYABLE: Final = frozenset({ErrorKind.OVERLOADED, ErrorKind.NETWORK, ErrorKind.RATE_LIMITED})


def failure_of(error: shapes.TurnError) -> parts.Failure:
    """A turn's error. Its info is a word, or an object with one key."""
    info = error.codex_error_info
    word = info if isinstance(info, str) else next(iter(info), "") if isinstance(info, dict) else ""
    kind = _ERROR_KINDS.get(word, ErrorKind.PEER)
    return parts.Failure(error.message, kind, word or None, kind in _RETRYABLE, info)


def rpc_error_kind(code: int, message: str) -> ErrorKind:
    """The kind of a JSON-RPC error: nearly all faults are -32600, told apart by their words."""
    if code == -32001:
        return ErrorKind.OVERLOADED
    if code == -32603:
        return ErrorKind.INTERNAL
    if message == "Not initialized":
        return ErrorKind.NOT_INITIALIZED
    if message == "Already initialized":
        return ErrorKind.ALREADY_INITIALIZED
    if message.endswith("requires experimentalApi capability"):
        return ErrorKind.EXPERIMENTAL_REQUIRED
    if message.startswith("Invalid request: unknown variant"):
        return ErrorKind.METHOD_NOT_FOUND
    if message.startswith("no rollout found") or "not found" in message:
        return ErrorKind.NOT_FOUND
    return ErrorKind.INVALID_PARAMS if code == -32600 else ErrorKind.PEER
