"""Unsent review comments, stored in a file so that all browsers of a user show the same ones.

`review_routes` is their HTTP API, and `delegation.review` combines them into one prompt.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from dragoman.config.safe_files import locked, read_file, write_file
from dragoman.decoders import decode_typed
from dragoman.delegation.review.comments import MAX_COMMENT, MAX_QUOTE, ReviewComment
from dragoman.errors import PatchChanged, UsageError
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.paths import Paths

log: Final = logging.getLogger("dragoman.console")

MAX_COMMENTS: Final = 200
"""Maximum number of comments per session."""

MAX_SESSIONS: Final = 200
"""Maximum number of sessions with comments. The comments of the oldest sessions are dropped."""

MAX_PATH: Final = 4096

MAX_SIZE: Final = 16 * 1024 * 1024
"""Maximum size of the file, in bytes. More comments are refused: a file that is too large to read
would lock the user out of all of them."""

READ_SIZE: Final = 2 * MAX_SIZE
"""Maximum size that is read. Larger than `MAX_SIZE`, so that comments that could not be sent can be
restored."""


class DraftComment(Struct, frozen=True, kw_only=True):
    """An unsent comment with its id."""

    id: str
    comment: ReviewComment


class ReviewComments:
    """The comments of all sessions of one state directory. Several threads may use it."""

    FILE_NAME = "console-comments.json"

    def __init__(self, paths: Paths) -> None:
        self._path = paths.state / self.FILE_NAME
        self._changes = threading.RLock()
        self._unstored: dict[str, list[DraftComment]] = {}
        """Restored comments that are not in the file yet because it could not be written."""

    def of(self, session: str) -> list[DraftComment]:
        unstored = self._unstored.get(session, [])
        try:
            return [*unstored, *self._read().get(session, [])]
        except UNDECODABLE:
            # The next write moves the damaged file aside.
            return unstored

    def add(self, session: str, comment: ReviewComment) -> str:
        """Store a comment and return its id. Raises `UsageError` if it is empty or too long, or if
        there are too many comments. May drop the comments of the session that was longest without a
        new one."""
        if not comment.text.strip():
            raise UsageError("the comment is empty")
        if len(comment.text) > MAX_COMMENT:
            raise UsageError(f"a comment can have at most {MAX_COMMENT:,} characters")
        if len(comment.quote) > MAX_QUOTE or len(comment.path or "") > MAX_PATH:
            raise UsageError(
                f"a comment can quote at most {MAX_QUOTE} characters of a line, and its path can "
                f"have at most {MAX_PATH:,}"
            )
        draft = DraftComment(id=secrets.token_hex(4), comment=comment)
        with self._changing(max_size=MAX_SIZE) as drafts:
            kept = drafts.pop(session, [])
            if len(kept) >= MAX_COMMENTS:
                raise UsageError(
                    f"this session already has {MAX_COMMENTS} unsent comments, the maximum: "
                    "send or delete some before you add another"
                )
            drafts[session] = [*kept, draft]
            for oldest in list(drafts)[:-MAX_SESSIONS]:
                dropped = len(drafts.pop(oldest))
                log.warning("dropped the unsent comments of session %s: %d", oldest, dropped)
        return draft.id

    def delete(self, session: str, id: str) -> None:
        """Delete a comment. Does nothing if it does not exist."""
        with self._changing() as drafts:
            _put(drafts, session, [each for each in drafts.get(session, []) if each.id != id])

    def take(self, session: str, ids: Sequence[str]) -> list[DraftComment]:
        """Remove the comments with these ids from the file and return them, in the order in which
        they were added. Raises `PatchChanged` if one is missing, because another browser has sent
        or deleted it."""
        with self._changing() as drafts:
            kept = drafts.get(session, [])
            taken = [each for each in kept if each.id in ids]
            if len(taken) != len(set(ids)):
                raise PatchChanged("a comment was already sent or deleted; reload the review")
            _put(drafts, session, [each for each in kept if each.id not in ids])
        return taken

    def put_back(self, session: str, comments: Sequence[DraftComment]) -> None:
        """Restore comments that `take` removed and that could not be sent.

        If the file cannot be written, this raises the reason, and the comments are kept in memory
        until the next write.
        """
        with self._changes:
            self._unstored[session] = [*comments, *self._unstored.get(session, [])]
            with self._changing():
                pass

    def _read(self) -> dict[str, list[DraftComment]]:
        """Return the comments of all sessions. Raises one of `UNDECODABLE` if the file is
        damaged."""
        data = read_file(self._path, max_size=READ_SIZE)
        return {} if data is None else decode_typed(data, dict[str, list[DraftComment]])

    def _keep_damaged(self, error: BaseException) -> None:
        """Move a damaged file aside instead of overwriting it: it may contain the user's text."""
        aside = self._path.with_name(f"{self._path.name}.damaged-{secrets.token_hex(4)}")
        self._path.rename(aside)
        log.warning("cannot read the review comments; moved the file to %s: %s", aside, error)

    @contextmanager
    def _changing(self, *, max_size: int = READ_SIZE) -> Iterator[dict[str, list[DraftComment]]]:
        with self._changes, locked(self._path):
            try:
                drafts = self._read()
            except UNDECODABLE as error:
                self._keep_damaged(error)
                drafts = {}
            for session, comments in self._unstored.items():
                drafts[session] = [*comments, *drafts.get(session, [])]
            yield drafts
            data = msgspec.json.encode(drafts) + b"\n"
            if len(data) > max_size:
                raise UsageError("there are too many unsent comments: send or delete some first")
            write_file(self._path, data, mode=0o600)
            self._unstored.clear()


def _put(drafts: dict[str, list[DraftComment]], session: str, comments: list[DraftComment]) -> None:
    if comments:
        drafts[session] = comments
    else:
        drafts.pop(session, None)
