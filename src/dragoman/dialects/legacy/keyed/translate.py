"""Translate the keyed dialect to events (`ClientEnd`) and events to it (`AgentEnd`).

One update may contain several things; each becomes an event, in the order text, tool, plan, mode.
`shapes` has the message shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from dragoman.dialects.legacy import base
from dragoman.dialects.legacy.base import Message, PlaceOf, SessionOptions
from dragoman.dialects.legacy.keyed import shapes
from dragoman.errors import ProtocolMismatch, Unsupported
from dragoman.events import model, parts, words
from dragoman.events.model import Event, EventEnvelope
from dragoman.events.words import (
    ChangeStage,
    FileOp,
    Loss,
    Outcome,
    Part,
    PermissionKind,
    Role,
    ToolStatus,
)

DIALECT: Final = "keyed"
VERSION: Final = 1

LOSSES: Final = (
    base.NO_THOUGHTS,
    Loss(
        "the role of replayed text: every chunk is the agent's",
        (Part.REPLAYED_ROLES,),
    ),
    Loss("the name of a tool: it has only a title", (Part.TOOL_NAMES,)),
    Loss(
        "the input and output of a tool as values: it has only content",
        (Part.TOOL_INPUT, Part.TOOL_OUTPUT),
    ),
    Loss("more than one changed file in an update of a tool call", (Part.CHANGES_TOGETHER,)),
    Loss("the priorities in a plan", (Part.PLAN_PRIORITIES,)),
    base.NO_USAGE,
    Loss("permissions have three fixed answers: once, always, reject"),
    Loss(
        "listing, resuming, forking, closing and deleting sessions, and additional directories",
        (),
        ("list", "resume", "fork", "close", "delete", "additional_directories"),
    ),
    Loss(
        "the current model, and changing it in an open session",
        (Part.MODELS,),
    ),
    Loss("options", (Part.OPTIONS,), ("set_option",)),
    base.NO_LOGOUT,
    base.NO_COMMANDS,
    Loss("whether a terminal's output was truncated"),
)

OPTIONS: Final = (
    parts.PermissionOption("once", "Allow once", PermissionKind.ALLOW_ONCE),
    parts.PermissionOption("always", "Always allow", PermissionKind.ALLOW_ALWAYS),
    parts.PermissionOption("reject", "Reject", PermissionKind.REJECT_ONCE),
)
"""The possible answers to a permission request; the dialect does not list them."""


class ClientEnd(base.ClientEnd):
    """The client's side of the keyed dialect, on one connection."""

    name = DIALECT
    capabilities = parts.Capabilities(cancel=True, permissions=True)
    cancel = "notification"
    opens_with = frozenset({"mode", "model", "mcp_servers"})
    blocks = (parts.Text, parts.Image, parts.Audio, parts.Link, parts.Resource)

    def __init__(
        self,
        *,
        client_name: str = "dragoman",
        client_title: str | None = None,
        client_version: str | None = None,
        read_files: bool = False,
        write_files: bool = False,
        terminals: bool = False,
        any_version: bool = False,
    ) -> None:
        self._any_version = any_version
        self._hello = shapes.Initialize(
            VERSION,
            shapes.Info(client_name, client_title, client_version),
            shapes.ClientCapabilities(
                shapes.Files(read_files, write_files),
                terminals,
                shapes.PromptContent(image=True, audio=True, embedded_context=True),
                shapes.Mcp(shapes.McpTransport(http=True, sse=True)),
            ),
        )

    def hello(self) -> Message:
        return shapes.INITIALIZE, self._hello

    def greeted(self, result: Raw) -> None:
        answer = msgspec.json.decode(result, type=shapes.Initialized)
        if answer.protocol_version != VERSION and not self._any_version:
            raise ProtocolMismatch(
                f"the agent speaks version {answer.protocol_version} of the keyed dialect, "
                f"but dragoman speaks version {VERSION}",
                version=str(answer.protocol_version),
                remedy=base.OTHER_VERSION,
            )
        self.version = str(answer.protocol_version)
        info = answer.agent_info
        self.info = parts.PeerInfo(info.name, info.title, info.version)
        self.auth_methods = tuple(
            parts.AuthMethod(name, name, name) for name in answer.auth_methods
        )
        # This dialect cannot express whether the agent loads sessions, takes images or reaches MCP
        # servers.
        self.capabilities = parts.Capabilities(
            load=None,
            image=None,
            audio=None,
            embedded=None,
            mcp_stdio=None,
            mcp_http=None,
            mcp_sse=None,
            set_mode=answer.agent_capabilities.modes,
            # A model can be set only while a session is being opened.
            set_model=None,
            cancel=True,
            permissions=True,
        )

    def opening(self, session_id: str | None, options: SessionOptions) -> Sequence[Message]:
        servers = [msgspec.convert(server, shapes.McpServer) for server in options.mcp_servers]
        if session_id is not None:
            if options.mode is not None or options.model is not None:
                raise Unsupported("a loaded session keeps its mode and model: load it without them")
            return ((shapes.LOAD, shapes.LoadSession(session_id, options.cwd, servers)),)
        named = None
        if options.model is not None:
            provider, slash, name = options.model.partition("/")
            if not slash:
                raise Unsupported(f"write the model as provider/model, not {options.model!r}")
            named = shapes.Model(provider, name)
        return ((shapes.NEW, shapes.NewSession(options.cwd, named, options.mode, servers)),)

    def opened(
        self, result: Raw | None, session_id: str | None, how: str, place_of: PlaceOf
    ) -> tuple[str, list[Event]]:
        assert result is not None
        if session_id is not None and bytes(result) == b"null":
            return session_id, []
        answer = msgspec.json.decode(result, type=shapes.Opened)
        opened = answer.session_id or session_id
        if not opened:
            raise msgspec.ValidationError("Object missing required field `sessionId`")
        if answer.modes is None and answer.current_mode_id is None:
            return opened, []
        modes = tuple(parts.SessionOption(m.id, m.name or m.id, m.id) for m in answer.modes or ())
        told = place_of(opened).base(shapes.NEW, bytes(result))
        return opened, [model.SettingsChanged(*told, mode=answer.current_mode_id, modes=modes)]

    def prompting(self, session_id: str, blocks: Sequence[parts.Block]) -> Sequence[Message]:
        return ((shapes.PROMPT, shapes.Prompt(session_id, [to_block(b) for b in blocks])),)

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        return base.stopped(result, place, shapes.PROMPT)

    def _update(
        self, update: shapes.Update, place: EventEnvelope, method: str, line: bytes
    ) -> Sequence[Event]:
        events: list[Event] = []
        if update.content_chunk is not None:
            chunk = update.content_chunk
            told = place.base("session/update:contentChunk", line)
            events.append(
                model.MessageDelta(
                    *told, Role.AGENT, chunk.delta, None, chunk.id or None, None, chunk.index
                )
            )
        if update.tool_call is not None:
            events += _tool(update.tool_call, place, line)
        if update.plan is not None:
            entries = tuple(
                parts.PlanEntry(step.title, words.plan_status(step.status))
                for step in update.plan.steps
            )
            events.append(model.PlanSet(*place.base("session/update:plan", line), entries))
        if update.current_mode_id is not None:
            told = place.base("session/update:currentModeId", line)
            events.append(model.SettingsChanged(*told, mode=update.current_mode_id))
        if not events:
            events.append(model.Unknown(*place.base(method, line), "an update without a known key"))
        return events

    notifications = base.meanings({shapes.UPDATE: (shapes.Update, _update)})

    def cancelling(self, session_id: str) -> Message:
        return shapes.CANCEL, shapes.Cancel(session_id)

    def setting_mode(self, session_id: str, mode: str) -> Message:
        return shapes.SET_MODE, shapes.SetMode(session_id, mode)


# -- content


_BLOCKS: Final[tuple[tuple[type, type, tuple[str, ...]], ...]] = (
    (shapes.TextBlock, parts.Text, ("text",)),
    (shapes.ImageBlock, parts.Image, ("data", "mime_type", "uri")),
    (shapes.AudioBlock, parts.Audio, ("data", "mime_type")),
    (shapes.LinkBlock, parts.Link, ("uri", "name", "mime_type")),
    (shapes.ResourceBlock, parts.Resource, ("uri", "text", "blob")),
)
"""The blocks of the dialect, their types in `events.parts`, and the fields of both."""

_FROM_WIRE: Final = {shape: (kind, fields) for shape, kind, fields in _BLOCKS}
_TO_WIRE: Final = {kind: (shape, fields) for shape, kind, fields in _BLOCKS}


def block(value: Any) -> parts.Block:
    """Convert a content block, decoded JSON or a shape, to a block of `events.parts`. One that
    cannot be read becomes an `OtherBlock`."""
    try:
        found = msgspec.convert(value, shapes.ContentBlock, from_attributes=True)
    except msgspec.ValidationError:
        kind = value.get("type", "") if isinstance(value, dict) else ""
        return parts.OtherBlock(str(kind), value)
    make, fields = _FROM_WIRE[type(found)]
    made: parts.Block = make(*(getattr(found, field) for field in fields))
    return made


def to_block(value: parts.Block) -> shapes.ContentBlock:
    """Convert a block of `events.parts` to this dialect. Raises `Unsupported` if the dialect has no
    such block."""
    if isinstance(value, parts.OtherBlock):
        raise Unsupported(f"the dialect {DIALECT} has no block of the kind {value.kind!r}")
    make, fields = _TO_WIRE[type(value)]
    made: shapes.ContentBlock = make(*(getattr(value, field) for field in fields))
    return made


def _tool(call: shapes.ToolCall, place: EventEnvelope, line: bytes) -> list[Event]:
    native = "session/update:toolCall"
    events: list[Event] = [
        model.ToolChanged(
            *place.base(native, line),
            call.tool_call_id,
            title=UNSET if call.title is None else call.title,
            kind=UNSET if call.kind is None else words.tool_kind(call.kind),
            status=UNSET if call.status is None else words.tool_status(call.status),
            content=UNSET if call.content is None else tuple(map(block, call.content)),
            locations=UNSET
            if call.locations is None
            else tuple(parts.Location(place.path, place.line) for place in call.locations),
        )
    ]
    if call.diff is not None:
        stage = {"completed": ChangeStage.APPLIED, "failed": ChangeStage.FAILED}.get(
            call.status or "", ChangeStage.PROPOSED
        )
        old, new = call.diff.old_content, call.diff.new_content
        op = FileOp.ADD if old is None else FileOp.MODIFY
        changes = (parts.FileChange(call.diff.path, op, old, new),)
        told = place.base("session/update:toolCall.diff", line)
        events.append(model.FilesChanged(*told, changes, stage, call.tool_call_id))
    return events


def of_permission(ask: shapes.AskPermission, place: EventEnvelope, line: bytes) -> list[Event]:
    """Translate a permission request into events: the tool call, if the request has its id and
    content, and the question."""
    events: list[Event] = []
    if ask.tool_call_id is not None and ask.content is not None:
        events.append(
            model.ToolChanged(
                *place.base(shapes.PERMISSION, line),
                ask.tool_call_id,
                title=ask.title,
                kind=words.tool_kind(ask.kind),
                content=tuple(map(block, ask.content)),
            )
        )
    events.append(
        model.PermissionAsked(
            *place.base(shapes.PERMISSION, line),
            ask.permission_id,
            OPTIONS,
            ask.title,
            None,
            words.tool_kind(ask.kind),
            ask.tool_call_id,
        )
    )
    return events


# -- the agent's end


_STOPS: Final = frozenset({"end_turn", "max_tokens", "cancelled", "tool_error"})
_STATUS: Final = {
    ToolStatus.PENDING: "pending",
    ToolStatus.RUNNING: "in_progress",
    ToolStatus.COMPLETED: "completed",
}
_ASKABLE: Final = frozenset({"edit", "execute", "delete"})


def stop_reason(stop: str) -> str:
    """Return the dialect's stop reason for the agent's own. One that the dialect lacks counts as a
    failure, unless it means that a limit was reached."""
    if stop in _STOPS:
        return stop
    return "max_tokens" if words.outcome_of(stop) is Outcome.TRUNCATED else "tool_error"


def permission_kind(kind: str | None) -> str:
    """Return the kind if permission can be requested for it in this dialect, else ``other``."""
    return kind if kind in _ASKABLE else "other"


class AgentEnd(base.AgentEnd):
    """Translates an agent's events of one session to this dialect."""

    roles = frozenset({Role.AGENT, Role.USER})
    keeps_text = False

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self._session_id = session_id
        self._message = 0
        self._index = 0
        self._role: Role | None = None
        """The role of the last chunk; None if the next one begins another message."""

    def begin(self) -> None:
        """Begin a turn: the next chunk begins another message."""
        self._role = None

    def message(self, event: model.MessageDelta) -> Message:
        # A message has an id here even if the agent gave it none. Then it ends at the next tool
        # call, or when the role changes.
        if event.role is not self._role:
            self._message += 1
            self._index = 0
            self._role = event.role
        id = event.message_id or f"part-{self._message}"
        chunk = shapes.ContentChunk(id, self._index, event.text)
        self._index += 1
        return self._update(content_chunk=chunk)

    def tool(self, event: model.ToolChanged) -> list[Message]:
        self._role = None
        return [self._update(tool_call=_call(event))]

    def files(self, event: model.FilesChanged) -> list[Message]:
        self._role = None
        if event.tool_id is None:
            return []
        return [self._update(tool_call=_diff(event.tool_id, change)) for change in event.changes]

    def plan(self, event: model.PlanSet) -> list[Message]:
        steps = [shapes.Step(entry.text, _plan_status(entry)) for entry in event.entries]
        return [self._update(plan=shapes.Plan(steps))]

    def settings(self, event: model.SettingsChanged) -> list[Message]:
        if not isinstance(event.mode, str) or event.options is not UNSET:
            return []
        return [self._update(current_mode_id=event.mode)]

    def _update(self, **carried: Any) -> Message:
        return shapes.UPDATE, shapes.Update(self._session_id, **carried)


def _plan_status(entry: parts.PlanEntry) -> str:
    return "in_progress" if entry.status is words.PlanStatus.RUNNING else entry.status.value


def _call(event: model.ToolChanged) -> shapes.ToolCall:
    content = None
    if isinstance(event.content, tuple):
        blocks = [b for b in event.content if not isinstance(b, parts.TerminalRef)]
        content = [to_block(b) for b in blocks if not isinstance(b, parts.OtherBlock)]
    locations = None
    if isinstance(event.locations, tuple):
        locations = [shapes.FileLocation(place.path, place.line) for place in event.locations]
    return shapes.ToolCall(
        event.tool_id,
        event.title or None,
        event.kind.value if isinstance(event.kind, words.ToolKind) else None,
        _STATUS.get(event.status, "failed") if isinstance(event.status, ToolStatus) else None,
        content,
        locations,
    )


def _diff(tool_id: str, change: parts.FileChange) -> shapes.ToolCall:
    return shapes.ToolCall(tool_id, diff=shapes.Diff(change.path, change.old_text, change.new_text))
