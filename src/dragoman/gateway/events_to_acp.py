"""Translate events into ACP v1 session updates, for one session.

ACP replaces the whole content of a tool call with each update, so the content shown so far is kept
here. Events without an ACP equivalent produce no update. Sending is in `gateway.client_session`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import UNSET, UnsetType

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.errors import MessageTooLong
from dragoman.events import model, parts
from dragoman.events.words import FileOp, PlanStatus, Role, ToolStatus

SHOWN_OUTPUT: Final = 32 * 1024
"""Maximum number of characters that are shown of a tool's output, from its end: every update
repeats all of them."""

LONG_WORD: Final = 1024
"""Maximum number of characters of a partial word to drop where the output is cut."""

_BLANK: Final = re.compile(r"\s")

_CHUNKS: Final[dict[Role, type[Any]]] = {
    Role.USER: acp.UserMessageChunk,
    Role.AGENT: acp.AgentMessageChunk,
    Role.THOUGHT: acp.AgentThoughtChunk,
}

_STATUS: Final[dict[ToolStatus, str]] = {
    ToolStatus.PENDING: "pending",
    ToolStatus.RUNNING: "in_progress",
    ToolStatus.PAUSED: "in_progress",
    ToolStatus.COMPLETED: "completed",
    ToolStatus.FAILED: "failed",
    ToolStatus.DECLINED: "failed",
    ToolStatus.CANCELLED: "failed",
}

_PLAN_STATUS: Final[dict[PlanStatus, str]] = {
    PlanStatus.PENDING: "pending",
    PlanStatus.RUNNING: "in_progress",
    PlanStatus.COMPLETED: "completed",
    PlanStatus.CANCELLED: "completed",
}


@dataclass(slots=True)
class _Tool:
    """The content of a tool call shown so far."""

    items: Sequence[acp.ToolCallContent] = ()
    changes: Sequence[acp.ToolCallContent] = ()
    output: str = ""
    sent_size: int = 0
    unsent_size: int = 0
    error: str | None = None
    announced: bool = field(default=False)

    def content(self) -> list[acp.ToolCallContent]:
        shown = [*self.items, *self.changes]
        if self.output:
            shown.append(_text(self.output))
        if self.error:
            shown.append(_text(self.error))
        return shown


class AcpTranslator:
    """Translates the events of one session for a client. `notices` and `compaction` say whether the
    client supports such updates."""

    def __init__(self, *, notices: bool = True, compaction: bool = True) -> None:
        self._notices = notices
        self._compaction = compaction
        self._tools: dict[str, _Tool] = {}
        self._streamed: set[str | None] = set()
        self._said: list[str] = []
        """The agent's text in this turn."""

    def updates(self, event: model.Event) -> Sequence[acp.SessionUpdate]:
        """Return the updates for an event, or none if ACP has no equivalent."""
        match event:
            case model.MessageDelta():
                return self._delta(event)
            case model.MessageSet():
                return self._message(event)
            case model.ToolChanged():
                return self._tool(event)
            case model.ToolDelta():
                return self._tool_delta(event)
            case model.FilesChanged():
                return self._files(event)
            case model.PlanSet():
                return (_plan(event),)
            case model.PlanRemoved():
                return (acp.Plan(entries=[]),)
            case model.CommandsChanged(commands=commands):
                return (_commands(commands),)
            case model.SessionChanged(title=title, updated_at=updated_at):
                if title is UNSET and updated_at is UNSET:
                    return ()
                return (acp.SessionInfoUpdate(title=title, updated_at=updated_at),)
            case model.UsageReported():
                return _usage(event)
            case model.Noticed():
                return self._notice(event.severity, event.title, event.detail)
            case model.ErrorReported(failure=failure):
                return self._notice("error", failure.message, None)
            case model.Compacted():
                return self._compacted(event)
            case model.TurnStarted():
                # Nothing of an earlier turn matters for this one, and its diffs may be large.
                self._said.clear()
                self._streamed.clear()
                self._tools.clear()
                return ()
            case model.TurnEnded(text=text):
                return self._last_words(text or "")
            case _:
                return ()

    # -- messages

    def _delta(self, event: model.MessageDelta) -> Sequence[acp.SessionUpdate]:
        if event.role is Role.USER and not event.replay:
            # The client has just sent it itself.
            return ()
        self._streamed.add(event.message_id)
        if event.role is Role.AGENT:
            self._said.append(event.text)
        content: acp.ContentBlock
        if event.block is None:
            content = acp.TextContent(text=event.text)
        else:
            content = translate.to_block(event.block)
        return (_CHUNKS[event.role](content=content, message_id=event.message_id),)

    def _message(self, event: model.MessageSet) -> Sequence[acp.SessionUpdate]:
        blocks = event.blocks
        if isinstance(blocks, UnsetType) or not blocks or event.message_id in self._streamed:
            # Streamed text cannot be taken back, and a whole message repeats it.
            return ()
        if event.role is Role.USER and not event.replay:
            return ()
        self._streamed.add(event.message_id)
        if event.role is Role.AGENT:
            self._said += [block.text for block in blocks if isinstance(block, parts.Text)]
        chunk = _CHUNKS[event.role]
        return [
            chunk(content=translate.to_block(block), message_id=event.message_id)
            for block in blocks
        ]

    def _last_words(self, whole: str) -> Sequence[acp.SessionUpdate]:
        """Return an update with the part of a turn's whole answer that was not sent before: all of
        it if the text that was sent is not its beginning. Empty if that text ends with it."""
        said = "".join(self._said)
        if said.endswith(whole):
            return ()
        text = whole.removeprefix(said)
        return (acp.AgentMessageChunk(content=acp.TextContent(text=text)),)

    # -- tools

    def _tool(self, event: model.ToolChanged) -> Sequence[acp.SessionUpdate]:
        tool = self._tools.setdefault(event.tool_id, _Tool())
        again = False
        if not isinstance(event.content, UnsetType):
            tool.items = [
                item for value in event.content or () if (item := _item(value)) is not None
            ]
            again = True
        if not isinstance(event.error, UnsetType):
            tool.error = event.error
            again = True
        if isinstance(event.output, str) and event.output and not tool.output:
            tool.output = _newest(event.output)
            again = True
        status = None if isinstance(event.status, UnsetType) else _STATUS.get(event.status)
        over = not isinstance(event.status, UnsetType) and event.status.over
        if over and tool.unsent_size:
            again = True
        locations = None
        if not isinstance(event.locations, UnsetType):
            locations = [
                acp.ToolCallLocation(path=place.path, line=place.line)
                for place in event.locations or ()
            ]
        fields: dict[str, Any] = {
            "tool_call_id": event.tool_id,
            "name": _given(event.name),
            "kind": None if isinstance(event.kind, UnsetType) else event.kind.value,
            "status": status,
            "content": self._shown(tool) if again else None,
            "locations": locations,
            "raw_input": _given(event.input),
            "raw_output": _given(event.output),
        }
        title = _given(event.title)
        if tool.announced:
            return (acp.ToolCallProgress(title=title, **fields),)
        tool.announced = True
        return (acp.ToolCall(title=title or fields["name"] or event.tool_id, **fields),)

    def _tool_delta(self, event: model.ToolDelta) -> Sequence[acp.SessionUpdate]:
        tool = self._tools.setdefault(event.tool_id, _Tool())
        if event.item is not None:
            item = _item(event.item)
            if item is None:
                return ()
            tool.items = [*tool.items, item]
        elif event.stream in ("output", "progress"):
            tool.output = _newest(tool.output + event.text)
            tool.unsent_size += len(event.text)
            # Each update repeats everything, so updates become less frequent; the rest is sent at
            # the end.
            if tool.unsent_size < tool.sent_size // 4:
                return ()
        else:
            return ()
        return self._progress(event.tool_id, tool)

    def _files(self, event: model.FilesChanged) -> Sequence[acp.SessionUpdate]:
        if event.tool_id is None:
            return self._changes_of_turn(event)
        tool = self._tools.setdefault(event.tool_id, _Tool())
        tool.changes = [shown for change in event.changes for shown in _change(change)]
        return self._progress(event.tool_id, tool)

    def _changes_of_turn(self, event: model.FilesChanged) -> Sequence[acp.SessionUpdate]:
        """Show changes without a known tool call as a separate call. Nothing is shown if tool calls
        have already shown changes, because these are usually their sum."""
        tool_id = f"changes-{event.turn}"
        others = (tool.changes for id, tool in self._tools.items() if id != tool_id)
        changes = [change for change in event.changes if change.path]
        if not changes or any(others):
            return ()
        tool = self._tools.setdefault(tool_id, _Tool())
        tool.changes = [shown for change in changes for shown in _change(change)]
        told: dict[str, Any] = {
            "tool_call_id": tool_id,
            "status": "completed",
            "content": self._shown(tool),
        }
        if tool.announced:
            return (acp.ToolCallProgress(**told),)
        tool.announced = True
        return (acp.ToolCall(title="Changed files", kind="edit", **told),)

    def _progress(self, tool_id: str, tool: _Tool) -> Sequence[acp.SessionUpdate]:
        content = self._shown(tool)
        if tool.announced:
            return (acp.ToolCallProgress(tool_call_id=tool_id, content=content),)
        tool.announced = True
        return (acp.ToolCall(tool_call_id=tool_id, title=tool_id, content=content),)

    def _shown(self, tool: _Tool) -> list[acp.ToolCallContent]:
        tool.sent_size, tool.unsent_size = len(tool.output), 0
        return tool.content()

    # -- the rest

    def left_out(self, error: MessageTooLong) -> Sequence[acp.SessionUpdate]:
        """Return the updates that say that an update was too long for the client."""
        title = f"An update from the agent was left out: {error}"
        return self._notice(acp.NoticeSeverity.WARNING, title, None)

    def _notice(self, severity: str, title: str, detail: str | None) -> Sequence[acp.SessionUpdate]:
        if self._notices:
            return (acp.Notice(severity=severity, title=title, description=detail),)
        text = f"{title}: {detail}\n" if detail else f"{title}\n"
        return (acp.AgentThoughtChunk(content=acp.TextContent(text=text)),)

    def _compacted(self, event: model.Compacted) -> Sequence[acp.SessionUpdate]:
        if not self._compaction:
            return ()
        summary = UNSET if event.summary is None else [acp.TextContent(text=event.summary)]
        return (
            acp.CompactionUpdate(
                compaction_id=event.compaction_id or "compaction",
                status=event.status,
                summary=summary,
                error=event.error if event.error is not None else UNSET,
            ),
        )


def _newest(text: str) -> str:
    """Return the end of an output, cut at a blank if one is near: the redactor would not recognise
    the second half of a key, and the half would be stored."""
    if len(text) <= SHOWN_OUTPUT:
        return text
    newest = text[-SHOWN_OUTPUT:]
    found = _BLANK.search(newest, 0, LONG_WORD)
    return newest[found.start() :] if found else newest


def _given(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


def _text(text: str) -> acp.Content:
    return acp.Content(content=acp.TextContent(text=text))


def _item(item: parts.ToolItem) -> acp.ToolCallContent | None:
    # The client does not know a terminal of the peer.
    if isinstance(item, parts.TerminalRef):
        return None
    return acp.Content(content=translate.to_block(item))


def _change(change: parts.FileChange) -> list[acp.ToolCallContent]:
    if change.new_text is not None:
        return [acp.Diff(path=change.path, new_text=change.new_text, old_text=change.old_text)]
    if change.op is FileOp.DELETE and change.old_text is not None:
        # The closest equivalent to a deleted file in this protocol.
        return [acp.Diff(path=change.path, new_text="", old_text=change.old_text)]
    if change.diff is None:
        return [_text(f"{change.op} {change.path}")]
    pairs = hunks_of(change.diff)
    if not pairs:
        return [_text(f"{change.op} {change.path}\n```diff\n{change.diff}\n```")]
    return [acp.Diff(path=change.path, new_text=new, old_text=old) for old, new in pairs]


def _plan(event: model.PlanSet) -> acp.Plan:
    entries = [
        acp.PlanEntry(
            content=entry.text,
            priority=entry.priority or "medium",
            status=_PLAN_STATUS.get(entry.status, "pending"),
        )
        for entry in event.entries
    ]
    if not entries and event.text:
        entries = [acp.PlanEntry(content=event.text, priority="medium", status="pending")]
    return acp.Plan(entries=entries)


def _commands(commands: Sequence[parts.SlashCommand]) -> acp.AvailableCommandsUpdate:
    return acp.AvailableCommandsUpdate(
        available_commands=[
            acp.command(each.name, description=each.description, hint=each.hint)
            for each in commands
        ]
    )


def _usage(event: model.UsageReported) -> Sequence[acp.SessionUpdate]:
    usage = event.usage
    used = usage.context_used
    if used is None and event.scope == "call":
        # Input plus output of the last model call is the current size of the context.
        used = usage.total_tokens
    if used is None or usage.context_size is None:
        return ()
    cost = None
    if usage.cost is not None:
        cost = acp.Cost(amount=usage.cost.amount, currency=usage.cost.unit)
    return (acp.UsageUpdate(used=used, size=usage.context_size, cost=cost),)


_HEADER: Final = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")

_NO_NEWLINE: Final = "\\"
"""The beginning of a line that says that the previous line ends without a newline."""


def hunks_of(diff: str) -> list[tuple[str, str]]:
    """Return the old and the new text of each hunk; empty if `diff` is not a valid diff of one
    file."""
    # Not splitlines, which also splits at characters that are ordinary ones in a file.
    lines = diff.removesuffix("\n").split("\n")
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(lines):
        header = _HEADER.match(lines[at])
        at += 1
        if header is None:
            if pairs:
                return []
            continue
        old, new = (1 if count is None else int(count) for count in header.groups())
        before: list[str] = []
        after: list[str] = []
        while at < len(lines) and (len(before) < old or len(after) < new or _bare(lines[at])):
            line = lines[at]
            at += 1
            if _bare(line):
                _cut(before, after, lines[at - 2])
            elif line[:1] in (" ", ""):
                before.append(line[1:] + "\n")
                after.append(line[1:] + "\n")
            elif line[0] == "-":
                before.append(line[1:] + "\n")
            elif line[0] == "+":
                after.append(line[1:] + "\n")
            else:
                return []
        if (len(before), len(after)) != (old, new):
            return []
        pairs.append(("".join(before), "".join(after)))
    return pairs


def _bare(line: str) -> bool:
    return line.startswith(_NO_NEWLINE)


def _cut(before: list[str], after: list[str], line: str) -> None:
    """Remove the last newline from each side of a hunk that has `line`, the previous line of the
    diff."""
    for lines, other in ((before, "+"), (after, "-")):
        if lines and not line.startswith(other):
            lines[-1] = lines[-1].removesuffix("\n")
