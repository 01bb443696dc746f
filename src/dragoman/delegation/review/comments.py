"""Turn the user's comments on changed lines into one prompt.

Text only: `session_review` finds the changes. The surface, such as the console, stores the comments
and sends the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from dragoman.delegation.review.changes import ReviewFile

MAX_COMMENT: Final = 10_000
"""Maximum length of one comment, in characters."""

MAX_QUOTE: Final = 400
"""Maximum length of the quoted line, in characters."""

MAX_PATCH: Final = 60_000
"""Maximum total length of the hunks in the prompt, in characters, for an agent that cannot see the
changes."""

FENCE: Final = "````"
"""A code fence longer than those usually found in files."""


class ReviewComment(Struct, frozen=True, kw_only=True):
    """A comment on a line, on a file, or on the whole review."""

    text: str
    path: str | None = None
    line: int | None = None
    side: Literal["old", "new"] = "new"
    """Whether the line is from before or after the change."""
    quote: str = ""
    """The text of the line."""


def review_prompt(
    comments: Sequence[ReviewComment], *, own: bool, unapplied: Iterable[ReviewFile] = ()
) -> str:
    """Return all comments as one prompt.

    `own`: whether the prompt goes to the session that made the changes. `unapplied`: changes that
    are not in the workspace; the prompt includes their hunks, as far as `MAX_PATCH` allows, for
    the files with comments, or for all files if a comment is on the whole review.
    """
    whose = "your changes" if own else "changes that another agent made in this project"
    lines = [
        f"Review of {whose}: {len(comments)} comment{'' if len(comments) == 1 else 's'}. "
        "Address each of them, and say in one line each what you did."
    ]
    for number, comment in enumerate(comments, 1):
        lines += ["", f"{number}. {_place(comment)}"]
        if comment.quote.strip():
            lines.append(f"   > {comment.quote[:MAX_QUOTE]}")
        lines += [f"   {line}" for line in comment.text.strip()[:MAX_COMMENT].splitlines()]
    named = {comment.path for comment in comments}
    hunks = list(_hunks([file for file in unapplied if file.path in named or None in named]))
    if hunks:
        lines += [
            "",
            "The changes are not in the workspace. They were made in a separate worktree; this is "
            "the patch:",
            f"{FENCE}diff",
            *hunks,
            FENCE,
        ]
    return "\n".join(lines)


def _place(comment: ReviewComment) -> str:
    if comment.path is None:
        return "In general:"
    if comment.line is None:
        removed = " (a removed line)" if comment.side == "old" and comment.quote else ""
        return f"{comment.path}{removed}:"
    removed = " before the change" if comment.side == "old" else ""
    return f"{comment.path}, line {comment.line}{removed}:"


def _hunks(files: Iterable[ReviewFile]) -> Iterable[str]:
    left = MAX_PATCH
    for file in files:
        for change in file.changes:
            if change.diff is None or len(change.diff) > left:
                continue
            left -= len(change.diff)
            yield f"--- a/{file.old_path or file.path}"
            yield f"+++ b/{file.path}"
            yield change.diff
