"""Translate the items of a turn: messages, plans, and tool calls with the files they change.

Maps one item to events, whether it arrives live (`translate`) or comes from the history of a
thread. Stateless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from dragoman.dialects.codex import shapes
from dragoman.events import model, parts, words
from dragoman.events.model import Event, EventEnvelope
from dragoman.events.words import ChangeStage, FileOp, Role, ToolKind, ToolStatus
from dragoman.wire.messages import UNDECODABLE

PART_BREAK: Final = "\n\n"
"""Separates two parts of a summary, as in the server's own display."""

_decode = msgspec.json.Decoder(shapes.Item).decode


def of_history(raw: Raw, place: EventEnvelope, native: str) -> list[Event]:
    """Translate an item of a thread's history. One that cannot be decoded becomes an `Unknown`
    event."""
    try:
        item = _decode(raw)
    except UNDECODABLE as error:
        return [model.Unknown(*place.base(native, bytes(raw)), str(error))]
    return of_item(item, place, bytes(raw), native, final=True)


def of_item(
    item: shapes.Item, place: EventEnvelope, raw: bytes | None, native: str, *, final: bool
) -> list[Event]:
    """Translate an item: a message, a plan, or a tool call with the files it changes. `final` says
    whether the item is complete."""
    native = f"{native}:{item.type}"
    match item.type:
        case "userMessage":
            return _message(Role.USER, user_blocks(item.content), item, place, raw, native, final)
        case "agentMessage":
            # At the start its text is empty, and the deltas are still to come.
            blocks = (parts.Text(item.text or ""),) if final else ()
            return _message(Role.AGENT, blocks, item, place, raw, native, final)
        case "reasoning":
            texts = [PART_BREAK.join(item.summary or ()), *_strings(item.content)]
            blocks = (parts.Text("".join(texts)),) if final and any(texts) else ()
            return _message(Role.THOUGHT, blocks, item, place, raw, native, final)
        case "plan":
            if not final:
                # The text is still to come; until then there is nothing to add.
                return [model.PlanDelta(*place.base(native, raw), "", item.id)]
            return [model.PlanSet(*place.base(native, raw), (), item.text or "", item.id)]
        case "contextCompaction":
            status = "completed" if final else "in_progress"
            return [model.Compacted(*place.base(native, raw), status, item.id)]
        case "enteredReviewMode" | "exitedReviewMode" | "hookPrompt" | "functionCallOutput":
            return [model.Unknown(*place.base(native, raw), "an item without a common meaning")]
        case _:
            return _tool(item, place, raw, native, final=final)


def _message(
    role: Role,
    blocks: tuple[parts.Block, ...],
    item: shapes.Item,
    place: EventEnvelope,
    raw: bytes | None,
    native: str,
    final: bool,
) -> list[Event]:
    told = blocks if blocks or final else UNSET
    return [model.MessageSet(*place.base(native, raw), role, item.id, told, final)]


def user_blocks(content: Any) -> tuple[parts.Block, ...]:
    """Return the blocks of a prompt, given the content with which the server repeats it. Content
    of an unknown kind becomes an `OtherBlock`."""
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
    "fileChange": ToolKind.EDIT,
    "webSearch": ToolKind.FETCH,
    "imageView": ToolKind.READ,
}
_READS: Final[dict[str, ToolKind]] = {
    "read": ToolKind.READ,
    "search": ToolKind.SEARCH,
    "listFiles": ToolKind.SEARCH,
}


def command_kind(actions: Sequence[dict[str, Any]] | None) -> ToolKind:
    """Return the tool kind of a command.

    The kind is `SEARCH` if the server says of every part of the command that it searches, `READ` if
    every part reads or searches, and otherwise `EXECUTE`.
    """
    # An unknown action does not count as reading.
    kinds = {_READS.get(str(action.get("type"))) for action in actions or ()}
    if not kinds or None in kinds:
        return ToolKind.EXECUTE
    return ToolKind.SEARCH if kinds == {ToolKind.SEARCH} else ToolKind.READ


def _kind(item: shapes.Item) -> ToolKind:
    if item.type == "commandExecution":
        return command_kind(item.command_actions)
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
    item: shapes.Item, place: EventEnvelope, raw: bytes | None, native: str, *, final: bool
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
                changes_of(item.changes),
                _STAGES.get(status, ChangeStage.UNKNOWN),
                item.id,
            )
        )
    return events


_STAGES: Final[dict[ToolStatus, ChangeStage]] = {
    ToolStatus.RUNNING: ChangeStage.PROPOSED,
    ToolStatus.PENDING: ChangeStage.PROPOSED,
    ToolStatus.COMPLETED: ChangeStage.APPLIED,
    ToolStatus.FAILED: ChangeStage.FAILED,
    ToolStatus.DECLINED: ChangeStage.DECLINED,
}


def _input(item: shapes.Item) -> Any:
    if item.command is not None:
        return {"command": item.command}
    return UNSET if item.arguments is None else item.arguments


def _error_text(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


_OPS: Final = {"add": FileOp.ADD, "delete": FileOp.DELETE, "update": FileOp.MODIFY}


def changes_of(changes: Sequence[shapes.FileUpdateChange]) -> tuple[parts.FileChange, ...]:
    """Convert the file changes of an item to `parts.FileChange` values."""
    return tuple(_change(change) for change in changes)


def _change(change: shapes.FileUpdateChange) -> parts.FileChange:
    kind = change.kind if isinstance(change.kind, dict) else {}
    moved = kind.get("move_path")
    op = _OPS.get(str(kind.get("type")), FileOp.UNKNOWN)
    # Only an updated file has a diff: for added and deleted ones the field holds the whole text.
    if op is FileOp.ADD:
        return parts.FileChange(change.path, op, new_text=change.diff)
    if op is FileOp.DELETE:
        return parts.FileChange(change.path, op, old_text=change.diff)
    if isinstance(moved, str):
        # The diff of a moved file ends with a sentence for people.
        diff = change.diff.removesuffix(f"\n\nMoved to: {moved}")
        return parts.FileChange(moved, FileOp.MOVE, diff=diff, old_path=change.path)
    return parts.FileChange(change.path, op, diff=change.diff)
