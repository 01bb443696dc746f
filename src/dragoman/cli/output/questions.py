"""Yes/no questions on a terminal, and the text of permission questions.

A permission question first shows the action as the policy evaluates it, then the agent's own title.
Without a terminal, `confirm` raises an error that names the option to use. The answer to a
permission question is read in `cli.permission_flags`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.cli.output import agent_changes
from dragoman.cli.output.escape import neutral, one_line
from dragoman.cli.output.terminal import drop_typed, is_interactive, put_err
from dragoman.client.tool_input import ToolInput, part, told_of
from dragoman.errors import UsageError
from dragoman.events.parts import FileChange
from dragoman.events.words import FileOp

if TYPE_CHECKING:
    from dragoman.client.permissions import Question

SHOWN_LINES: Final = 30
"""Maximum number of lines shown of a command, an input, or all paths together, so that a question
fits on the screen."""

SHOWN_WIDTH: Final = 2000
"""Maximum length of one line in a question, in characters."""

SHOWN_ENDS: Final = 4
"""A shortened text has one part in this many from the end of the text, which may matter most, and
the others from its beginning."""

CONTINUED: Final = "  | "
"""Prefix of continuation rows and of further lines of a command."""

MIN_WIDTH: Final = 20
SCREEN_ROWS: Final = 18
"""Number of rows of a question that fit on a small terminal with its answers. A longer question
says at its end that it is longer."""

SHOWN_FILES: Final = 4
"""Maximum number of files whose changes are shown line by line."""


def confirm(question: str, *, instead: str, default: bool = False) -> bool:
    """Ask a yes/no question; `instead` is the option that answers it in advance, such as ``--yes``.

    An empty answer means `default`, the end of input no. Raises `KeyboardInterrupt` for Ctrl-C, and
    `UsageError` if there is no terminal.
    """
    if not is_interactive():
        raise UsageError(f"{question} There is no terminal to ask on: add {instead}")
    choices = "[Y/n]" if default else "[y/N]"
    while True:
        drop_typed(sys.stdin)
        # On stderr: redirected output of a command must not contain our questions.
        put_err(f"{neutral(question)} {choices} ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            put_err("\n")
            return False
        match line.strip().lower():
            case "":
                return default
            case "y" | "yes":
                return True
            case "n" | "no":
                return False


def permission(question: Question, *, titled: bool = False) -> list[str]:
    """Format a permission question as lines. `titled`: whether the agent writes a command as the
    title of its question."""
    told = told_of(question.tool_call)
    if titled and question.kind == "execute" and not told.runs and question.title.strip():
        told.lines.append(question.title)
    title = one_line(question.title, width=160)
    called = f", which the agent calls {title!r}" if title else ""
    lines = [f"[permission] {_act(question.kind, told)}{called}"]
    details = list(_details(question, told))
    if not details:
        details = ["the agent does not report what it would do"]
    return [*lines, *(f"  {line}" for line in details)]


def rows(lines: Sequence[str], answers: Sequence[str], *, width: int) -> list[str]:
    """Wrap a question and its answers into terminal rows of `width` columns (0: unwrapped).

    Continuation rows start with a mark, so agent text never starts a row and cannot imitate a
    question of ours. A question that might not fit on the screen says so at its end.
    """
    if not width:
        return [*lines, *answers]
    # A double-width character may be at the end of a row.
    columns = max(width - 1, MIN_WIDTH)
    shown = [row for line in lines for row in _wrapped(line, columns)]
    if len(shown) > SCREEN_ROWS:
        shown.append(f"  ({len(shown)} lines: scroll up to read the question from its beginning)")
    return [*shown, *(row for line in answers for row in _wrapped(line, columns))]


def _wrapped(line: str, width: int) -> Iterator[str]:
    rest = line.expandtabs()
    while True:
        taken = columns = 0
        while taken < len(rest) and columns < width:
            # Two columns if in doubt: terminals disagree about the width of many characters.
            columns += 1 if rest[taken].isascii() else 2
            taken += 1
        if taken == len(rest):
            yield rest
            return
        # Between two words, unless the row would be half empty.
        space = rest.rfind(" ", 0, taken)
        if space >= taken // 2:
            taken = space + 1
        yield rest[:taken]
        rest = CONTINUED + rest[taken:]


def _act(kind: str, told: ToolInput) -> str:
    """Return a short description of the action."""
    acts = []
    if told.runs or "execute" in told.kinds or kind == "execute":
        acts.append("run a command")
    if "edit" in told.kinds or kind == "edit":
        acts.append("change files")
    if "fetch" in told.kinds or kind == "fetch":
        acts.append("make a network request")
    if not acts and not told.shows_reading(kind):
        return f"do something ({one_line(kind, width=40)})"
    return " and ".join(acts) or one_line(kind, width=40)


def _details(question: Question, told: ToolInput) -> Iterator[str]:
    for line in told.lines:
        yield from _bounded(f"$ {line}")
    if told.argv is not None:
        # As a list, to show where each word begins and ends.
        yield from _bounded(f"$ {msgspec.json.encode(told.argv).decode()}")
    if told.hidden or (question.kind == "execute" and not told.runs):
        yield "a command that the agent does not show"
    if told.tainted:
        yield "with its own environment or input"
    if told.cwd is not None:
        yield f"in {one_line(told.cwd, width=SHOWN_WIDTH)}"
    changes = list(_changes(question.tool_call))
    changed = {change.path for change in changes}
    paths = [path for path in dict.fromkeys(told.paths) if path not in changed]
    for path in paths[:SHOWN_LINES]:
        yield one_line(path, width=SHOWN_WIDTH)
    if len(paths) > SHOWN_LINES:
        yield f"… {len(paths) - SHOWN_LINES} more paths"
    for change in changes[:SHOWN_FILES]:
        head, *rest = agent_changes.lines_of(change, limit=None)
        yield head
        yield from (f"  {_cut(line)}" for line in _ends(rest, agent_changes.SHOWN_LINES))
    for change in changes[SHOWN_FILES:]:
        yield f"{agent_changes.lines_of(change, limit=0)[0]}: its lines are omitted"
    given = part(question.tool_call, "raw_input", "rawInput", "input")
    texts = [
        text
        for change in changes[:SHOWN_FILES]
        for text in (change.old_text, change.new_text)
        if text is not None
    ]
    if given is not None and not told.is_shown_by(texts):
        # Unknown input is shown as received, and so is input that the changes do not cover.
        yield from _bounded(f"input: {_json(given)}")


def _changes(call: Any) -> Iterator[FileChange]:
    for content in part(call, "content") or ():
        if isinstance(content, FileChange):
            yield content
            continue
        path, new = part(content, "path"), part(content, "new_text", "newText")
        if isinstance(path, str):
            old = part(content, "old_text", "oldText")
            op = FileOp.MODIFY if isinstance(old, str) else _op_without_old_text(path)
            yield FileChange(
                path=path,
                op=op,
                old_text=old if isinstance(old, str) else None,
                new_text=new if isinstance(new, str) else None,
            )


def _op_without_old_text(path: str) -> FileOp:
    """Return the kind of a change without old text: `ADD` if `path` is absolute and does not exist
    yet, otherwise `UNKNOWN`.

    A question must not call a file new if the agent would overwrite it.
    """
    return FileOp.ADD if os.path.isabs(path) and not os.path.lexists(path) else FileOp.UNKNOWN


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):
        return "(cannot be shown)"


def _bounded(text: str) -> Iterator[str]:
    first, *others = neutral(text).splitlines() or [""]
    lines = [first, *(f"{CONTINUED.lstrip()}{line}" for line in others)]
    yield from map(_cut, _ends(lines))


def _ends(lines: list[str], limit: int = SHOWN_LINES) -> list[str]:
    """Return lines with a note in place of the middle ones if there are more than `limit`."""
    over = len(lines) - limit
    if over <= 0:
        return lines
    last = limit // SHOWN_ENDS
    return [*lines[: limit - last], f"… {over} lines omitted …", *lines[-last:]]


def _cut(line: str) -> str:
    """Return a line without its middle if it is too long."""
    over = len(line) - SHOWN_WIDTH
    if over <= 0:
        return line
    last = SHOWN_WIDTH // SHOWN_ENDS
    middle = f" … {over} characters omitted … "
    return line[: SHOWN_WIDTH - last] + middle + line[-last:]
