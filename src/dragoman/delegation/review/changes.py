"""Find the changed files of a session, from its tool calls or from a patch.

Files are read only to find the line numbers of reported excerpts. `worktree.patch_files` splits
patches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from dragoman.delegation.worktree.outside_writes import written
from dragoman.delegation.worktree.patch_files import PatchFile
from dragoman.events import model
from dragoman.events.fold import apply
from dragoman.events.parts import FileChange
from dragoman.events.view import View
from dragoman.events.words import FileOp
from dragoman.store.history import history
from dragoman.store.store import Store

MAX_TEXT: Final = 200_000
"""Maximum length of each text and each diff of a change, in characters."""

MAX_TOTAL: Final = 4_000_000
"""Maximum total length of the changes in one review, in characters. Files beyond it are listed
without their changes."""

SEARCHED_SIZE: Final = 1024 * 1024
"""Maximum size of a file that is searched for a reported excerpt."""


class ReviewChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """One change to a file: two texts, or the hunks of a unified diff."""

    job: str | None = None
    """The turn that made it, if known."""
    tool: str = ""
    """The title of the tool call that reported it."""
    old_text: str | None = None
    new_text: str | None = None
    diff: str | None = None
    first_line: int | None = None
    """The line of the file at which `new_text` begins, if known."""
    cut: bool = False


class ReviewFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A changed file."""

    path: str
    op: FileOp
    old_path: str | None = None
    binary: bool = False
    changes: tuple[ReviewChange, ...] = ()
    """The changes in order. Empty for binary files, if only the path is known, or if `left_out`."""
    left_out: bool = False
    """Whether the changes were omitted because the review is too large."""


def reported(store: Store, key: str, *, root: Path, job: str | None = None) -> list[ReviewFile]:
    """Return the changes that the tool calls of a session report, or only those of the turn `job`.

    A command may change files without reporting them.
    """
    view, turns = View(), dict[str, str | None]()
    for event in history(store, key):
        if isinstance(event, model.ToolChanged | model.FilesChanged):
            apply(view, event)
            if event.tool_id is not None:
                turns.setdefault(event.tool_id, event.turn)
    found: dict[str, ReviewFile] = {}
    for id, tool in view.tools.items():
        turn = turns.get(id)
        if job is not None and turn != job:
            continue
        made = set(written(tool))
        for change in tool.changes:
            if change.path in made:
                _add(found, change, ReviewChange(job=turn, tool=tool.title), root)
    return list(_limited(_placed(each, root) for each in found.values()))


def of_patch(files: Iterable[PatchFile]) -> list[ReviewFile]:
    """Return the files of a patch with their changes, for a review."""
    found = (
        ReviewFile(
            path=each.path,
            op=each.op,
            old_path=each.old_path,
            binary=each.binary,
            changes=(ReviewChange(diff=each.diff, cut=each.cut),) if each.diff else (),
        )
        for each in files
    )
    return list(_limited(found))


def _add(found: dict[str, ReviewFile], change: FileChange, about: ReviewChange, root: Path) -> None:
    path = _relative(change.path, root)
    old_path = None if change.old_path is None else _relative(change.old_path, root)
    new = structs.replace(
        about, old_text=change.old_text, new_text=change.new_text, diff=change.diff
    )
    if new.old_text is None and new.new_text is None and new.diff is None:
        new_changes: tuple[ReviewChange, ...] = ()
    else:
        new_changes = (new,)
    op = change.op
    if op is FileOp.UNKNOWN:
        op = FileOp.ADD if change.old_text is None and change.diff is None else FileOp.MODIFY
    before = found.get(path)
    if before is None:
        found[path] = ReviewFile(path=path, op=op, old_path=old_path, changes=new_changes)
        return
    changes = before.changes
    last = changes[-1] if changes else None
    if last is not None and new_changes and _continues(last, new):
        # Show two consecutive edits of a whole file as one.
        merged = structs.replace(new, old_text=last.old_text)
        changes, new_changes = changes[:-1], (merged,)
    kept = before.op if before.op is FileOp.ADD and op is not FileOp.DELETE else op
    found[path] = structs.replace(before, op=kept, changes=(*changes, *new_changes))


def _continues(last: ReviewChange, new: ReviewChange) -> bool:
    return (
        last.diff is None
        and new.diff is None
        and last.new_text is not None
        and last.new_text == new.old_text
    )


def _placed(file: ReviewFile, root: Path) -> ReviewFile:
    """Return the file with its texts truncated and the line numbers of its excerpts set."""
    text = _contents(root / file.path, root) if file.changes else None
    return structs.replace(file, changes=tuple(_shortened(one, text) for one in file.changes))


def _shortened(change: ReviewChange, text: str | None) -> ReviewChange:
    first = None
    if text is not None and change.new_text and text.count(change.new_text) == 1:
        first = text[: text.index(change.new_text)].count("\n") + 1
    texts = (change.old_text, change.new_text, change.diff)
    return structs.replace(
        change,
        old_text=_cut(change.old_text),
        new_text=_cut(change.new_text),
        diff=_cut(change.diff),
        first_line=first,
        cut=any(each is not None and len(each) > MAX_TEXT for each in texts),
    )


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:MAX_TEXT]


def _contents(path: Path, root: Path) -> str | None:
    """Return the text of a file in the workspace, or None if it is missing, too large or not text.
    The path comes from the agent, so links out of the workspace are not followed, and only regular
    files are opened."""
    real = os.path.realpath(path)
    if not real.startswith(os.path.realpath(root) + os.sep):
        return None
    try:
        if not os.path.isfile(real) or os.path.getsize(real) > SEARCHED_SIZE:
            return None
        with open(real, encoding="utf-8") as file:
            return file.read(SEARCHED_SIZE)
    except (OSError, UnicodeDecodeError):
        return None


def _relative(path: str, root: Path) -> str:
    """Return a path relative to the workspace. A path outside of it is returned unchanged."""
    try:
        return os.path.normpath(path if not os.path.isabs(path) else Path(path).relative_to(root))
    except ValueError:
        return path


def _limited(files: Iterable[ReviewFile]) -> Iterator[ReviewFile]:
    left = MAX_TOTAL
    for file in files:
        size = sum(
            len(each.old_text or "") + len(each.new_text or "") + len(each.diff or "")
            for each in file.changes
        )
        if size > left:
            yield structs.replace(file, changes=(), left_out=True)
            continue
        left -= size
        yield file
