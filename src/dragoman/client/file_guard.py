"""Ask for permission before the client reads or writes a file or runs a command for an agent.

Most agents ask first themselves, but some do not. This module builds the permission questions and
checks the answers of the client's `guard` callback; `client.services` does the file and terminal
work.
"""

from __future__ import annotations

import inspect
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dragoman.client.permissions import (
    Answer,
    Chosen,
    Decision,
    Permit,
    Question,
    failed_permit,
    wrong_answer,
)
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import DragomanError, NotPermitted, UsageError
from dragoman.events.parts import PermissionOption
from dragoman.events.words import PermissionKind
from dragoman.rpc.tasks import await_callback

OPTIONS: Final = (
    PermissionOption("allow", "Allow", PermissionKind.ALLOW_ONCE),
    PermissionOption("always", "Allow it for the whole session", PermissionKind.ALLOW_ALWAYS),
    PermissionOption("reject", "Refuse", PermissionKind.REJECT_ONCE),
)
"""The options of these questions, since the agent sent none."""


MAX_REMEMBERED: Final = 1024
"""Maximum number of allowed files, and of allowed commands, to remember on a connection. Older ones
are asked about again."""


def reading(session_id: str, path: str) -> Question:
    """Return the question of whether to read a file for the agent."""
    return _question(session_id, "read", f"Read {path}", {"path": path})


def writing(session_id: str, path: str, content: str | None = None) -> Question:
    """Return the question of whether to write a file for the agent. `content` is the text to write,
    if known."""
    return _question(session_id, "edit", f"Write {path}", {"path": path}, content)


def running(
    session_id: str,
    command: str,
    args: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str] | Sequence[Any],
) -> Question:
    """Return the question of whether to run a command for the agent.

    `command` may be a shell line if there are no arguments.
    """
    told: dict[str, Any] = {"command": [command, *args] if args else command}
    if cwd is not None:
        told["cwd"] = cwd
    if env:
        # The values may be secrets, so the question only says that variables are set.
        told["env"] = True
    return _question(session_id, "execute", f"Run {' '.join((command, *args))}", told)


def _question(
    session_id: str, kind: str, title: str, told: dict[str, Any], content: str | None = None
) -> Question:
    path = told.get("path")
    call = acp.ToolCallUpdate(
        tool_call_id="",
        title=title,
        kind=kind,
        locations=None if path is None else [acp.ToolCallLocation(path=path)],
        raw_input=told,
        content=None if content is None else [acp.Diff(path=str(path), new_text=content)],
    )
    return Question(
        session_id=session_id,
        tool_call_id="",
        title=title,
        kind=kind,
        options=OPTIONS,
        tool_call=call,
    )


class Asker:
    """A permit, and a guard derived from it.

    `permit` passes on the agent's questions and remembers what was allowed. `guard` decides when
    the client acts for the agent: it allows file reads, edits of files that were allowed before,
    and each allowed command once. It asks the permit about everything else.
    """

    def __init__(self, permit: Permit, workspace: Path) -> None:
        self._permit = self.handler = permit
        self._workspace = workspace
        self._edited: dict[str, None] = {}
        """The files that may be written, in the order in which they were last allowed."""
        self._commands: deque[object] = deque(maxlen=MAX_REMEMBERED)

    def decide_with(self, permit: Permit) -> None:
        """Use another permit from now on."""
        self._permit = self.handler = permit

    def permit(self, question: Question) -> Awaitable[Decision] | Decision:
        answer = self._permit(question)
        if inspect.isawaitable(answer):
            return self._later(question, answer)
        if getattr(answer, "allows", False):
            self._allowed(question)
        return answer

    async def _later(self, question: Question, answer: Awaitable[Decision]) -> Decision:
        decision = await answer
        if getattr(decision, "allows", False):
            self._allowed(question)
        return decision

    def _allowed(self, question: Question) -> None:
        # Not at the top: many turns have no questions.
        from dragoman.client.tool_input import told_of

        told = told_of(question.tool_call)
        # In another directory, a relative path is another file, and a command does other work.
        here = told.cwd is None or self._place(told.cwd) == self._place("")
        if question.kind == "edit" or "edit" in told.kinds:
            for place in (self._place(path) for path in told.paths if here or os.path.isabs(path)):
                self._edited.pop(place, None)
                self._edited[place] = None
                if len(self._edited) > MAX_REMEMBERED:
                    del self._edited[next(iter(self._edited))]
        if here:
            self._commands += told.lines if told.argv is None else [told.argv]

    def guard(self, question: Question) -> Awaitable[Decision] | Decision:
        if question.kind == "read":
            return Answer.ALLOW_ONCE
        from dragoman.client.tool_input import told_of

        told = told_of(question.tool_call)
        if question.kind == "edit":
            known = bool(told.paths) and self._edited.keys() >= set(map(self._place, told.paths))
        else:
            command = told.argv if told.argv is not None else "".join(told.lines)
            known = command in self._commands and not told.tainted and told.cwd is None
            if known:
                # A command allowed once runs once.
                self._commands.remove(command)
        return Answer.ALLOW_ONCE if known else self._permit(question)

    def _place(self, path: str) -> str:
        return os.path.normpath(self._workspace / path)


def guarded(permit: Permit, guard: Permit | None, workspace: Path) -> tuple[Permit, Permit]:
    """Return the permit and the guard to use. Without `guard`, the guard is the permit's attribute
    of that name, which an `Approver` has. If there is none, both are those of an `Asker`."""
    guard = guard or getattr(permit, "guard", None)
    if guard is not None:
        return permit, guard
    asker = Asker(permit, workspace)
    return asker.permit, asker.guard


def decide_with(guard: Permit | None, permit: Permit) -> bool:
    """If `guarded` derived the guard from a permit, make both use `permit` from now on, and return
    True; otherwise return False."""
    asker = getattr(guard, "__self__", None)
    if not isinstance(asker, Asker):
        return False
    asker.decide_with(permit)
    return True


async def decided(
    permit: Permit, question: Question, fail: Callable[[UsageError], None] | None = None
) -> Decision:
    """Call a permit or a guard and return its decision.

    If it raises, the exception is raised here; unless that is a `DragomanError`, `fail` is also
    called, with a `UsageError` about it. If it returns something other than a decision, `fail` gets
    a `UsageError` and the decision is a rejection; without `fail` that error is raised.
    """
    try:
        answer = permit(question)
        decision = await await_callback(answer) if inspect.isawaitable(answer) else answer
    except DragomanError:
        raise
    except Exception as error:
        if fail is not None:
            fail(failed_permit(permit, error))
        raise
    if isinstance(decision, Answer | Chosen):
        return decision
    wrong = wrong_answer(permit, decision)
    if fail is None:
        raise wrong
    fail(wrong)
    return Answer.REJECT_ONCE


def require(question: Question, answer: Decision) -> None:
    """Raise `NotPermitted` if the guard's answer does not allow the action in the question."""
    if not answer.allows:
        over = answer is Answer.CANCEL
        raise NotPermitted(question.title, "the turn is being cancelled" if over else "")


__all__ = [
    "OPTIONS",
    "Asker",
    "decide_with",
    "decided",
    "guarded",
    "reading",
    "require",
    "running",
    "writing",
]
