"""Translate ACP v1 updates, results and requests into events.

Stateless. Adds nothing that is not in the protocol, which has no turn ids and in which a deleted
file looks like one that became empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1 import (
    codec,
    content,
    handshake,
    services,
    session,
    updates,
)
from dragoman.dialects.acp.v1.shape import KIND, OUTCOME, STOP, SUMMED, ours_in
from dragoman.events import model, parts, words
from dragoman.events.model import Event, EventEnvelope
from dragoman.events.words import ChangeStage, Loss, Part, Role

DIALECT: Final = "acp"

LOSSES: Final = (
    Loss("why a tool call failed, other than in its result", (Part.TOOL_ERRORS,)),
    Loss("unified diffs: a change is sent as whole texts", (Part.CHANGE_DIFFS,)),
    Loss("plans as text", (Part.PLAN_TEXTS,)),
    Loss("errors, other than in the response to a prompt", (Part.ERROR_REPORTS,)),
    Loss("where a turn ended, in a history", (Part.REPLAYED_TURNS,)),
    Loss("adding to a turn that is running", (), ("steer",)),
)


# -- content


def block(value: content.ContentBlock) -> parts.Block:
    """Convert an ACP content block to a block of `events.parts`."""
    match value:
        case content.TextContent(text=text):
            return parts.Text(text)
        case content.ImageContent():
            return parts.Image(value.data, value.mime_type, value.uri)
        case content.AudioContent():
            return parts.Audio(value.data, value.mime_type)
        case content.ResourceLink():
            return parts.Link(value.uri, value.name, value.mime_type)
        case content.EmbeddedResource(resource=resource):
            if isinstance(resource, content.TextResourceContents):
                return parts.Resource(
                    resource.uri, text=resource.text, mime_type=resource.mime_type
                )
            return parts.Resource(resource.uri, blob=resource.blob, mime_type=resource.mime_type)
        case content.UnknownContent(raw=raw):
            return parts.OtherBlock(str(raw.get("type", "")), raw)


def to_block(value: parts.Block) -> content.ContentBlock:
    """Convert a block of `events.parts` to an ACP content block."""
    match value:
        case parts.Text(text=text):
            return content.TextContent(text=text)
        case parts.Image():
            return content.ImageContent(data=value.data, mime_type=value.mime_type, uri=value.uri)
        case parts.Audio():
            return content.AudioContent(data=value.data, mime_type=value.mime_type)
        case parts.Link():
            return content.ResourceLink(uri=value.uri, name=value.name, mime_type=value.mime_type)
        case parts.Resource(text=text, blob=blob):
            if text is None and blob is not None:
                resource: Any = content.BlobResourceContents(
                    uri=value.uri, blob=blob, mime_type=value.mime_type
                )
            else:
                resource = content.TextResourceContents(
                    uri=value.uri, text=text or "", mime_type=value.mime_type
                )
            return content.EmbeddedResource(resource=resource)
        case parts.OtherBlock(value=raw):
            return _other(raw)


def _other(value: Any) -> content.ContentBlock:
    """Convert content of a kind that `events.parts` does not know.

    Content of another dialect can only be shown as text.
    """
    try:
        return codec.convert(value, content.ContentBlock)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return content.TextContent(text=text)


# -- updates


def _chunk(
    role: Role, native: str
) -> Callable[[Any, EventEnvelope, bytes | None], Iterable[Event]]:
    def events(
        update: updates.ContentChunk, place: EventEnvelope, raw: bytes | None
    ) -> Iterable[Event]:
        piece = update.content
        if type(piece) is content.TextContent:
            if update.meta is not None and not piece.text:
                usage = _call_usage(update.meta)
                if usage is not None:
                    # The event keeps the raw line, which has nothing else in it.
                    return (model.UsageReported(*place.base(native, raw), "call", usage),)
            # Written out, because this is the most common event.
            return (
                model.MessageDelta(
                    place.source,
                    next(place.numbers),
                    place.session,
                    place.turn,
                    native,
                    raw,
                    place.replay,
                    role,
                    piece.text,
                    None,
                    update.message_id,
                ),
            )
        return (
            model.MessageDelta(*place.base(native, raw), role, "", block(piece), update.message_id),
        )

    return events


def _given(value: Any) -> Any:
    """Map None to "unchanged": in v1, null and absent both mean that."""
    return UNSET if value is None else value


def _tool(
    update: updates.ToolCall | content.ToolCallUpdate,
    place: EventEnvelope,
    raw: bytes | None,
    native: str,
) -> list[Event]:
    # A first report without these fields leaves them unset: some agents send it after an update,
    # and the protocol's defaults would then undo the update.
    status = UNSET if update.status is None else words.tool_status(update.status)
    kind = UNSET if update.kind is None else words.tool_kind(update.kind)
    items = update.content
    events: list[Event] = [
        model.ToolChanged(
            *place.base(native, raw),
            update.tool_call_id,
            title=_given(update.title),
            name=_given(update.name),
            kind=kind,
            status=status,
            input=_given(update.raw_input),
            output=_given(update.raw_output),
            content=UNSET
            if items is None
            else tuple(_item(item) for item in items if not isinstance(item, content.Diff)),
            locations=UNSET
            if update.locations is None
            else tuple(parts.Location(spot.path, spot.line) for spot in update.locations),
        )
    ]
    diffs = [item for item in items or () if isinstance(item, content.Diff)]
    if diffs:
        events.append(
            model.FilesChanged(
                *place.base(native, raw),
                tuple(_change(diff) for diff in diffs),
                _stage(update.status),
                update.tool_call_id,
            )
        )
    return events


def _item(item: content.ToolCallContent) -> parts.ToolItem:
    match item:
        case content.Content(content=inner):
            return block(inner)
        case content.Terminal(terminal_id=terminal_id):
            return parts.TerminalRef(terminal_id)
        case content.UnknownToolCallContent(raw=raw):
            return parts.OtherBlock(str(raw.get("type", "")), raw)
        case _:
            raise AssertionError(item)


def _change(diff: content.Diff) -> parts.FileChange:
    op = words.FileOp.ADD if diff.old_text is None else words.FileOp.MODIFY
    return parts.FileChange(diff.path, op, diff.old_text, diff.new_text)


def _stage(status: str | None) -> ChangeStage:
    match status:
        case "completed":
            return ChangeStage.APPLIED
        case "failed":
            return ChangeStage.FAILED
        case _:
            return ChangeStage.PROPOSED


def _tool_call(
    update: updates.ToolCall, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    return _tool(update, place, raw, "session/update:tool_call")


def _tool_progress(
    update: updates.ToolCallProgress, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    return _tool(update, place, raw, "session/update:tool_call_update")


def _plan(update: updates.Plan, place: EventEnvelope, raw: bytes | None) -> Iterable[Event]:
    entries = tuple(
        parts.PlanEntry(entry.content, words.plan_status(entry.status), entry.priority)
        for entry in update.entries
    )
    return (model.PlanSet(*place.base("session/update:plan", raw), entries),)


def _commands(
    update: updates.AvailableCommandsUpdate, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    commands = tuple(
        parts.SlashCommand(c.name, c.description, c.input.hint if c.input else None)
        for c in update.available_commands
    )
    base = place.base("session/update:available_commands_update", raw)
    return (model.CommandsChanged(*base, commands),)


def _mode(
    update: updates.CurrentModeUpdate, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    base = place.base("session/update:current_mode_update", raw)
    return (model.SettingsChanged(*base, mode=update.current_mode_id),)


def _config(
    update: updates.ConfigOptionUpdate, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    base = place.base("session/update:config_option_update", raw)
    return (model.SettingsChanged(*base, **settings(None, update.config_options)),)


def _info(
    update: updates.SessionInfoUpdate, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    base = place.base("session/update:session_info_update", raw)
    return (model.SessionChanged(*base, title=update.title, updated_at=update.updated_at),)


def _usage(update: updates.UsageUpdate, place: EventEnvelope, raw: bytes | None) -> Iterable[Event]:
    cost = None if update.cost is None else parts.Cost(update.cost.amount, update.cost.currency)
    usage = parts.Usage(context_used=update.used, context_size=update.size, cost=cost)
    base = place.base("session/update:usage_update", raw)
    return (model.UsageReported(*base, "context", usage),)


def _notice(update: updates.Notice, place: EventEnvelope, raw: bytes | None) -> Iterable[Event]:
    base = place.base("session/update:notice", raw)
    return (model.Noticed(*base, update.severity, update.title, update.description),)


def _compaction(
    update: updates.CompactionUpdate, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    summary = None
    if not isinstance(update.summary, UnsetType) and update.summary is not None:
        summary = "".join(
            piece.text for piece in update.summary if isinstance(piece, content.TextContent)
        )
    error = None if isinstance(update.error, UnsetType) else update.error
    base = place.base("session/update:compaction_update", raw)
    return (model.Compacted(*base, update.status, update.compaction_id, summary, error),)


def _compaction_chunk(
    update: updates.CompactionSummaryChunk, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    piece = update.content
    text = piece.text if isinstance(piece, content.TextContent) else None
    base = place.base("session/update:compaction_summary_chunk", raw)
    return (model.Compacted(*base, "in_progress", update.compaction_id, text),)


def _unknown(
    update: updates.UnknownUpdate, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    kind = update.raw.get("sessionUpdate", "")
    return (model.Unknown(*place.base(f"session/update:{kind}", raw), "an unknown update"),)


_UPDATES: Final[dict[type, Callable[[Any, EventEnvelope, bytes | None], Iterable[Event]]]] = {
    updates.UserMessageChunk: _chunk(Role.USER, "session/update:user_message_chunk"),
    updates.AgentMessageChunk: _chunk(Role.AGENT, "session/update:agent_message_chunk"),
    updates.AgentThoughtChunk: _chunk(Role.THOUGHT, "session/update:agent_thought_chunk"),
    updates.ToolCall: _tool_call,
    updates.ToolCallProgress: _tool_progress,
    updates.Plan: _plan,
    updates.AvailableCommandsUpdate: _commands,
    updates.CurrentModeUpdate: _mode,
    updates.ConfigOptionUpdate: _config,
    updates.SessionInfoUpdate: _info,
    updates.UsageUpdate: _usage,
    updates.Notice: _notice,
    updates.CompactionUpdate: _compaction,
    updates.CompactionSummaryChunk: _compaction_chunk,
    updates.UnknownUpdate: _unknown,
}


def of_update(
    update: updates.SessionUpdate, place: EventEnvelope, raw: bytes | None
) -> Iterable[Event]:
    """Translate a session update to events."""
    return _UPDATES[type(update)](update, place, raw)


# -- results


def capabilities(agent: handshake.AgentCapabilities) -> parts.Capabilities:
    """Return the capabilities that the agent advertised, as a `parts.Capabilities`."""
    sessions = agent.session_capabilities
    prompt = agent.prompt_capabilities
    return parts.Capabilities(
        load=agent.load_session,
        resume=sessions.resume is not None,
        list=sessions.list is not None,
        fork=isinstance((sessions.extra or {}).get("fork"), dict),
        close=sessions.close is not None,
        delete=sessions.delete is not None,
        additional_directories=sessions.additional_directories is not None,
        image=prompt.image,
        audio=prompt.audio,
        embedded=prompt.embedded_context,
        mcp_stdio=True,
        mcp_http=agent.mcp_capabilities.http,
        mcp_sse=agent.mcp_capabilities.sse,
        logout=agent.auth.logout is not None,
        steer=False,
        # Modes, models and options are known only once a session is open.
        set_mode=None,
        set_model=None,
        set_option=None,
        cancel=True,
        permissions=True,
    )


def auth_method(method: handshake.AuthMethod, command: str | None = None) -> parts.AuthMethod:
    kind = "agent"
    variables: tuple[str, ...] = ()
    match method:
        case handshake.AuthMethodTerminal():
            kind = "terminal"
        case handshake.AuthMethodEnvVar():
            kind, variables = "env_var", tuple(variable.name for variable in method.vars)
        case _:
            taken = ours_in(getattr(method, "meta", None)).get(KIND)
            kind = taken if taken in parts.SECRET_KINDS else kind
    return parts.AuthMethod(method.id, method.name, kind, method.description, command, variables)


def settings(
    modes: session.SessionModeState | None,
    options: Sequence[session.SessionConfigOption] | None,
    models: Any = None,
) -> dict[str, Any]:
    """Return the fields of a `SettingsChanged` event for a session's modes, models and options;
    None for any of them leaves it unchanged. An option of the category ``mode`` or ``model`` also
    sets the current mode or model."""
    fields: dict[str, Any] = {}
    if modes is not None:
        fields["mode"] = modes.current_mode_id
        fields["modes"] = tuple(
            parts.SessionOption(mode.id, mode.name, mode.id) for mode in modes.available_modes
        )
    if models is not None:
        fields["model"] = models.current_model_id
    if options is not None:
        known = tuple(option for value in options if (option := _option(value)) is not None)
        fields["options"] = known
        for option in known:
            if option.category in ("mode", "model") and isinstance(option.value, str):
                fields[option.category] = option.value
    return fields


def _option(option: session.SessionConfigOption) -> parts.SessionOption | None:
    match option:
        case session.SessionConfigBoolean():
            return parts.SessionOption(
                option.id, option.name, option.current_value, (), option.category
            )
        case session.SessionConfigSelect():
            choices: list[parts.Choice] = []
            for entry in option.options:
                if isinstance(entry, session.SessionConfigSelectGroup):
                    choices += [
                        parts.Choice(c.value, c.name, c.description, entry.group)
                        for c in entry.options
                    ]
                else:
                    choices.append(parts.Choice(entry.value, entry.name, entry.description))
            return parts.SessionOption(
                option.id,
                option.name,
                option.current_value,
                tuple(choices),
                option.category,
                session.is_open_ended(option),
            )
        case _:
            return None


class _PromptUsage(msgspec.Struct, rename="camel"):
    """The token counts that agents send with the stop reason, although they are not stable yet."""

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None


_OUTCOMES: Final = frozenset(words.Outcome)


def of_answer(
    response: session.PromptResponse, place: EventEnvelope, raw: bytes | None
) -> model.TurnEnded:
    """Translate the response to a prompt into the end of a turn."""
    stop = stop_of(response)
    meant = ours_in(response.meta).get(OUTCOME)
    return model.TurnEnded(
        *place.base("session/prompt", raw),
        words.Outcome(meant)
        if isinstance(meant, str) and meant in _OUTCOMES
        else words.outcome_of(stop),
        stop,
        usage=_prompt_usage(response),
    )


def stop_of(response: session.PromptResponse) -> str:
    """Return the agent's own stop reason, even if a gateway had to send another in its place."""
    said = ours_in(response.meta).get(STOP)
    return said if isinstance(said, str) and said else response.stop_reason


def _prompt_usage(response: session.PromptResponse) -> parts.Usage | None:
    return _tokens((response.extra or {}).get("usage") or _quota(response.meta))


def _call_usage(meta: dict[str, Any]) -> parts.Usage | None:
    """Return the token counts of Qwen Code, which sends them in an empty chunk after each model
    call; None if there are none."""
    usage = _tokens(meta.get("usage"))
    return None if usage == parts.Usage() else usage


def _tokens(told: Any) -> parts.Usage | None:
    if told is None:
        return None
    try:
        usage = msgspec.convert(told, _PromptUsage)
    except msgspec.ValidationError:
        return None
    return parts.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        thought_tokens=usage.thought_tokens,
        cache_read_tokens=usage.cached_read_tokens,
        cache_write_tokens=usage.cached_write_tokens,
        total_tokens=None if ours_in(told.get("_meta")).get(SUMMED) else usage.total_tokens,
    )


def _quota(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the token counts that Gemini CLI sends in a field of its own, under the names that
    other agents use; None if there are none."""
    quota = (meta or {}).get("quota")
    counts = quota.get("token_count") if isinstance(quota, dict) else None
    if not isinstance(counts, dict):
        return None
    return {"inputTokens": counts.get("input_tokens"), "outputTokens": counts.get("output_tokens")}


def of_permission(
    request: content.RequestPermissionRequest,
    request_id: str,
    place: EventEnvelope,
    raw: bytes | None,
) -> list[Event]:
    """Translate a permission request into events: its tool call and the question."""
    native = "session/request_permission"
    call = request.tool_call
    events = _tool(call, place, raw, native)
    events.append(
        model.PermissionAsked(
            *place.base(native, raw),
            request_id,
            tuple(
                parts.PermissionOption(o.option_id, o.name, words.permission_kind(o.kind))
                for o in request.options
            ),
            call.title or "",
            None,
            words.tool_kind(call.kind or "other"),
            call.tool_call_id,
        )
    )
    return events


def of_elicitation(
    request: services.CreateElicitationRequest,
    request_id: str,
    place: EventEnvelope,
    raw: bytes | None,
) -> model.InputAsked:
    """Translate a question to the user: a form, a URL to open, or one in an unknown mode."""
    base = place.base("elicitation/create", raw)
    match request:
        case services.ElicitationForm():
            schema = msgspec.json.decode(codec.encode(request.requested_schema))
            return model.InputAsked(*base, request_id, "form", request.message, schema)
        case services.ElicitationUrl():
            return model.InputAsked(*base, request_id, "url", request.message, None, request.url)
        case services.UnknownElicitation(raw=unknown):
            return model.InputAsked(*base, request_id, "other", str(unknown.get("message", "")))


def of_service(method: str, place: EventEnvelope, raw: bytes | None) -> model.ServiceCalled:
    """Translate a request for one of the client's services, such as ``fs/read_text_file``."""
    service, _, operation = method.partition("/")
    return model.ServiceCalled(*place.base(method, raw), service, operation)


__all__ = [
    "DIALECT",
    "LOSSES",
    "auth_method",
    "block",
    "capabilities",
    "of_answer",
    "of_elicitation",
    "of_permission",
    "of_service",
    "of_update",
    "settings",
    "to_block",
]


analyse(__name__)
