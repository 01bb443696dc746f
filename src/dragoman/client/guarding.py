"""What an agent has done by us without asking anybody, put as a question.

Owns the questions about files that we read and write for an agent and commands that we run for it:
most agents ask before they do such a thing, and some do not. Who answers is told to a client
(`guard` in its options); without anybody, what is offered to the agent is done. The doing is in
`dragoman.client.services`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dragoman.client.permissions import Answer, Decision, Permit, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import NotPermitted
from dragoman.events.parts import PermissionOption
from dragoman.events.words import PermissionKind

OPTIONS: Final = (
    PermissionOption("allow", "Allow", PermissionKind.ALLOW_ONCE),
    PermissionOption("always", "Allow from now on", PermissionKind.ALLOW_ALWAYS),
    PermissionOption("reject", "Refuse", PermissionKind.REJECT_ONCE),
)
"""What can be answered: no agent has made a list of it."""


def reading(session_id: str, path: str) -> Question:
    """May we read a file for the agent?"""
    return _question(session_id, "read", f"Read {path}", {"path": path})


def writing(session_id: str, path: str) -> Question:
    """May we write a file for the agent?"""
    return _question(session_id, "edit", f"Write {path}", {"path": path})


def running(
    session_id: str,
    command: str,
    args: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str] | Sequence[Any],
) -> Question:
    """May we run a command for the agent? Without arguments it may be a line for a shell."""
    told: dict[str, Any] = {"command": [command, *args] if args else command}
    if cwd is not None:
        told["cwd"] = cwd
    if env:
        # Their values may be secrets, and that there are some is what counts.
        told["env"] = True
    return _question(session_id, "execute", f"Run {' '.join((command, *args))}", told)


def _question(session_id: str, kind: str, title: str, told: dict[str, Any]) -> Question:
    path = told.get("path")
    call = acp.ToolCallUpdate(
        tool_call_id="",
        title=title,
        kind=kind,
        locations=None if path is None else [acp.ToolCallLocation(path=path)],
        raw_input=told,
    )
    return Question(
        session_id=session_id,
        tool_call_id="",
        title=title,
        kind=kind,
        options=OPTIONS,
        tool_call=call,
    )


async def decided(guard: Permit, question: Question) -> Decision:
    """What the guard says."""
    answer = guard(question)
    return await answer if inspect.isawaitable(answer) else answer


def require(question: Question, answer: Decision) -> None:
    """Raise `NotPermitted` for what the guard does not allow."""
    if not answer.allows:
        over = answer is Answer.CANCEL
        raise NotPermitted(question.title, "the turn is being cancelled" if over else "")


__all__ = ["OPTIONS", "decided", "reading", "require", "running", "writing"]
