"""Convert approval requests of the app-server to questions, and the answers to results.

A request becomes a question with options, and the chosen option the result in the server's own
form. `dragoman.client.permissions` defines who decides; `server_requests` sends the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import Raw

from dragoman.client.permissions import Decision, Question, settled
from dragoman.decoders import decode_typed
from dragoman.dialects.codex import shapes
from dragoman.dialects.codex.items import command_kind
from dragoman.events.parts import FileChange, PermissionOption
from dragoman.events.words import FileOp, PermissionKind, ToolKind

UNNAMED: Final = "Run a command"
"""The title of a command that the server does not name."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A request for approval: what the question shows, its options, and the result to send for each
    option."""

    thread_id: str
    turn_id: str | None
    item_id: str
    title: str
    description: str | None
    kind: ToolKind
    options: tuple[PermissionOption, ...]
    replies: dict[str, Any]
    """The result to send, by option id."""
    refused: Any
    """The result to send when nothing was chosen."""
    raw_input: dict[str, Any] | None = None
    """The requested action in the form of a tool's input (`dragoman.client.tool_input`)."""
    content: tuple[FileChange, ...] = ()
    """The file changes that the request is about."""

    @property
    def locations(self) -> list[dict[str, str]]:
        """The files that the request is about; a moved file has two locations."""
        paths = (path for change in self.content for path in (change.old_path, change.path))
        return [{"path": path} for path in dict.fromkeys(paths) if path is not None]

    def about(self, changes: tuple[FileChange, ...]) -> Approval:
        """Return the approval with `changes`, which were announced earlier. If the request itself
        names changes, return the approval unchanged."""
        return self if self.content else replace(self, content=changes)

    def question(self, request_id: str, title: str | None = None) -> Question:
        return Question(
            session_id=self.thread_id,
            tool_call_id=self.item_id,
            title=title or self.title,
            kind=self.kind.value,
            options=self.options,
            tool_call=self,
            request_id=request_id,
        )

    def reply(self, answer: Decision) -> tuple[str | None, Any, Decision]:
        """Return three values: the id of the option to answer with (None if none fits), the result
        to send, and the resulting answer: a refusal if `answer` allows but no option does."""
        option_id, answer = settled(self.options, answer)
        result = self.refused if option_id is None else self.replies[option_id]
        return option_id, result, answer


_DECISIONS: Final[dict[str, tuple[str, PermissionKind]]] = {
    "accept": ("Allow", PermissionKind.ALLOW_ONCE),
    "acceptForSession": ("Allow for this session", PermissionKind.ALLOW_ALWAYS),
    "acceptWithExecpolicyAmendment": ("Always allow such commands", PermissionKind.ALLOW_ALWAYS),
    "applyNetworkPolicyAmendment": ("Remember for this host", PermissionKind.OTHER),
    "decline": ("Reject", PermissionKind.REJECT_ONCE),
    "cancel": ("Reject and stop", PermissionKind.CANCEL_TURN),
}


def _decisions(
    available: Sequence[Any] | None,
) -> tuple[tuple[PermissionOption, ...], dict[str, Any]]:
    """Return the options for the `available` decisions, or the usual ones, and the reply for each.

    `decline` is always offered: the server accepts it even if it does not list it.
    """
    listed = list(available) if available else ["accept", "acceptForSession", "decline", "cancel"]
    if "decline" not in listed:
        listed.append("decline")
    options: list[PermissionOption] = []
    replies: dict[str, Any] = {}
    for decision in listed:
        word = next(iter(decision), "") if isinstance(decision, dict) else str(decision)
        if word in replies:
            continue
        name, kind = _DECISIONS.get(word, (word, PermissionKind.OTHER))
        options.append(PermissionOption(word, name, kind))
        replies[word] = {"decision": decision}
    return tuple(options), replies


def command(raw: Raw) -> Approval:
    """Convert `item/commandExecution/requestApproval`."""
    request = decode_typed(raw, shapes.CommandApproval)
    options, replies = _decisions(request.available_decisions)
    return Approval(
        request.thread_id,
        request.turn_id,
        request.item_id,
        request.command or request.reason or UNNAMED,
        request.reason,
        command_kind(request.command_actions),
        options,
        replies,
        {"decision": "cancel"},
        # A request without a command runs an unknown one.
        _without_none(command=request.command or True, cwd=request.cwd),
    )


def file_change(raw: Raw) -> Approval:
    """Convert `item/fileChange/requestApproval`."""
    request = decode_typed(raw, shapes.FileChangeApproval)
    options, replies = _decisions(None)
    title = f"Write below {request.grant_root}" if request.grant_root else "Change files"
    return Approval(
        request.thread_id,
        request.turn_id,
        request.item_id,
        title,
        request.reason,
        ToolKind.EDIT,
        options,
        replies,
        {"decision": "cancel"},
        _without_none(path=request.grant_root),
    )


def permissions(raw: Raw) -> Approval:
    """Convert `item/permissions/requestApproval`, which is granted completely or not at all."""
    request = decode_typed(raw, shapes.PermissionsApproval)
    granted = request.permissions
    return Approval(
        request.thread_id,
        request.turn_id,
        request.item_id,
        "Use more permissions",
        request.reason,
        ToolKind.OTHER,
        (
            PermissionOption("turn", "Allow for this turn", PermissionKind.ALLOW_ONCE),
            PermissionOption("session", "Allow for this session", PermissionKind.ALLOW_ALWAYS),
            PermissionOption("decline", "Reject", PermissionKind.REJECT_ONCE),
        ),
        {
            "turn": {"permissions": granted, "scope": "turn"},
            "session": {"permissions": granted, "scope": "session"},
            "decline": {"permissions": {}},
        },
        {"permissions": {}},
        {"permissions": granted},
    )


def tool_call(request: shapes.ElicitationRequest) -> Approval | None:
    """Return the approval for an elicitation with which the app-server asks whether it may call an
    MCP tool. None for any other elicitation, which comes from an MCP server itself."""
    meta = request.meta
    if not isinstance(meta, dict) or meta.get("codex_approval_kind") != "mcp_tool_call":
        return None
    declined = {"action": "decline", "content": None}
    return Approval(
        request.thread_id,
        request.turn_id,
        "",
        request.message or f"Call a tool of the MCP server {request.server_name}",
        None,
        ToolKind.OTHER,
        (
            PermissionOption("accept", "Allow", PermissionKind.ALLOW_ONCE),
            PermissionOption("decline", "Reject", PermissionKind.REJECT_ONCE),
        ),
        {"accept": {"action": "accept", "content": {}}, "decline": declined},
        declined,
        {"server": request.server_name, **meta},
    )


def legacy(raw: Raw) -> Approval:
    """Convert the older `execCommandApproval` and `applyPatchApproval`."""
    request = decode_typed(raw, shapes.LegacyApproval)
    words = request.command if isinstance(request.command, list) else []
    runs = bool(words)
    return Approval(
        request.conversation_id,
        None,
        request.call_id,
        " ".join(map(str, words)) if runs else "Change files",
        request.reason,
        ToolKind.EXECUTE if runs else ToolKind.EDIT,
        (
            PermissionOption("approved", "Allow", PermissionKind.ALLOW_ONCE),
            PermissionOption(
                "approved_for_session", "Allow for this session", PermissionKind.ALLOW_ALWAYS
            ),
            PermissionOption("denied", "Reject", PermissionKind.REJECT_ONCE),
            PermissionOption("abort", "Reject and stop", PermissionKind.CANCEL_TURN),
        ),
        {
            "approved": {"decision": "approved"},
            "approved_for_session": {"decision": "approved_for_session"},
            "denied": {"decision": {"denied": {"rejection": "refused by the client"}}},
            "abort": {"decision": "abort"},
        },
        {"decision": "abort"},
        _without_none(command=words, cwd=request.cwd) if runs else None,
        tuple(_legacy_changes(request.file_changes)),
    )


def _without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _legacy_changes(changes: Any) -> Iterator[FileChange]:
    """Yield the file changes of an older request. It maps each path to a change, whose kind is its
    only key or its `type`."""
    for path, change in changes.items() if isinstance(changes, dict) else ():
        kind, said = next(iter(change.items()), ("", None)) if isinstance(change, dict) else ("", 0)
        if isinstance(change, dict) and isinstance(change.get("type"), str):
            kind, said = change["type"], change
        told = said if isinstance(said, dict) else {}
        text, diff, moved = (told.get(name) for name in ("content", "unified_diff", "move_path"))
        text = text if isinstance(text, str) else None
        match kind:
            case "add":
                yield FileChange(path, FileOp.ADD, new_text=text)
            case "delete":
                yield FileChange(path, FileOp.DELETE, old_text=text)
            case _:
                diff = diff if isinstance(diff, str) else None
                if isinstance(moved, str):
                    yield FileChange(moved, FileOp.MOVE, diff=diff, old_path=path)
                else:
                    yield FileChange(path, FileOp.MODIFY, diff=diff)


APPROVALS: Final[dict[str, Callable[[Raw], Approval]]] = {
    "item/commandExecution/requestApproval": command,
    "item/fileChange/requestApproval": file_change,
    "item/permissions/requestApproval": permissions,
    "execCommandApproval": legacy,
    "applyPatchApproval": legacy,
}
