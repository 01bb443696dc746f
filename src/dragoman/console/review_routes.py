"""HTTP API of the review screen: changed files, comments on lines, the check, and apply.

`delegation.review` does the work. `review_comments` stores unsent comments.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct
from starlette.routing import Route

from dragoman.console.actions import continue_session, start_run
from dragoman.console.json_routes import (
    INTERNAL_PROBLEM,
    body_of,
    failure,
    json_route,
    query_of,
    session_of,
)
from dragoman.console.review_comments import DraftComment, ReviewComments
from dragoman.delegation.review.comments import ReviewComment, review_prompt
from dragoman.delegation.review.session_review import (
    ReviewSource,
    apply_patch,
    review_of,
    run_session_check,
)
from dragoman.errors import BrokerError, DragomanError, FileFailed, UsageError
from dragoman.rpc.tasks import TaskOwner, finish, in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from dragoman.console.live_state import LiveState

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.console")


class _NewComment(Struct):
    text: str
    path: str | None = None
    line: int | None = None
    side: Literal["old", "new"] = "new"
    quote: str = ""


class _Send(Struct):
    comments: list[str]
    to: Literal["session", "new"] = "session"
    peer: str | None = None


class _Apply(Struct):
    digest: str


class _Query(Struct):
    source: ReviewSource | None = None
    job: str | None = None


class ReviewRoutes:
    """Handles the requests of the review screen. Always call `aclose`: it ends running checks."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._comments = ReviewComments(state.paths)
        self._tasks = TaskOwner("checks of the console")
        self._checking: set[str] = set()
        self._problems: dict[str, str] = {}
        """Why the last check of a session could not be run or stored, by session."""
        state.on_state_file(self._file_changed)

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def routes(self) -> Sequence[Route]:
        at = "/api/v1/sessions/{key}"
        return [
            Route(f"{at}/review", json_route(self._review)),
            Route(f"{at}/review/comments", json_route(self._comment), methods=["POST"]),
            Route(
                f"{at}/review/comments/{{id}}/delete", json_route(self._delete), methods=["POST"]
            ),
            Route(f"{at}/review/send", json_route(self._send), methods=["POST"]),
            Route(f"{at}/check", json_route(self._check), methods=["POST"]),
            Route(f"{at}/apply", json_route(self._apply), methods=["POST"]),
        ]

    def _file_changed(self, name: str) -> None:
        if name == ReviewComments.FILE_NAME:
            self._state.tell({"type": "review", "session": None})

    async def _review(self, request: Request) -> Any:
        record = await session_of(request, self._state)
        asked = query_of(request, _Query)
        review = await review_of(
            record.key, paths=self._state.paths, source=asked.source, job=asked.job
        )
        comments = await self._on_disk(lambda: self._comments.of(record.key))
        drafts = [{"id": each.id, **msgspec.to_builtins(each.comment)} for each in comments]
        return {
            **msgspec.to_builtins(review),
            "comments": drafts,
            "checking": record.key in self._checking,
            "checkProblem": self._problems.get(record.key, ""),
        }

    async def _comment(self, request: Request) -> Any:
        record = await session_of(request, self._state)
        asked = await body_of(request, _NewComment)
        comment = ReviewComment(
            text=asked.text, path=asked.path, line=asked.line, side=asked.side, quote=asked.quote
        )
        return {"id": await self._on_disk(lambda: self._comments.add(record.key, comment))}

    async def _delete(self, request: Request) -> Any:
        record = await session_of(request, self._state)
        id = request.path_params["id"]
        await self._on_disk(lambda: self._comments.delete(record.key, id))
        return {}

    async def _send(self, request: Request) -> Any:
        record = await session_of(request, self._state)
        asked = await body_of(request, _Send)
        if not asked.comments:
            raise UsageError("no comments to send")
        review = await review_of(record.key, paths=self._state.paths)
        unapplied = review.files if review.source == "patch" else ()
        own = asked.to == "session"
        taken: list[DraftComment] = []

        def take(stop: threading.Event) -> None:
            found = self._comments.take(record.key, asked.comments)
            if stop.is_set():
                # The disk was slow, and the request has failed meanwhile.
                self._comments.put_back(record.key, found)
            else:
                # Into a list from outside, so that they are restored even if this is cancelled now.
                taken.extend(found)

        try:
            await in_thread(ReviewComments.FILE_NAME, take, changes_disk=True)
            comments = [each.comment for each in taken]
            prompt = review_prompt(comments, own=own, unapplied=unapplied)
            if own:
                return await continue_session(record, prompt)
            return await start_run(asked.peer or record.peer, prompt, Path(record.cwd))
        except BaseException as error:
            # A prompt that the broker did not confirm may still run; the error names its job. If
            # the comments were restored then, they could be sent twice.
            if taken and not (isinstance(error, BrokerError) and error.may_have_run):
                await finish(self._put_back(record.key, taken, error))
            raise

    async def _on_disk(self, work: Callable[[], T]) -> T:
        """Call `work`, which uses the comments, in a thread, because another process may hold the
        lock of their file. Returns its result."""
        file = ReviewComments.FILE_NAME
        return await in_thread(file, lambda _: work(), changes_disk=True)

    async def _put_back(
        self, key: str, comments: Sequence[DraftComment], unsent: BaseException
    ) -> None:
        """Restore comments that could not be sent because of `unsent`. If they are only in memory
        now, log that, and raise `FileFailed` if `unsent` is a `DragomanError`."""
        try:
            await self._on_disk(lambda: self._comments.put_back(key, comments))
        except (DragomanError, OSError) as error:
            log.error("cannot store the unsent comments of session %s: %s", key, error)
            # Without a change of the file, browsers would not show them again.
            self._tell(key)
            if not isinstance(unsent, DragomanError):
                return
            raise FileFailed(
                ReviewComments.FILE_NAME,
                f"the comments were not sent: {unsent}. They could not be stored either: {error}. "
                "They are lost if the console is stopped now: copy them, or send them again",
            ) from unsent

    async def _check(self, request: Request) -> Any:
        record = await session_of(request, self._state)
        if record.key in self._checking:
            return failure(409, "check_running", "the check of this session is already running")
        self._checking.add(record.key)
        self._problems.pop(record.key, None)
        self._tasks.start(self._run_check(record.key), f"check {record.key}")
        self._tell(record.key)
        return {"started": True}

    async def _run_check(self, key: str) -> None:
        try:
            await run_session_check(key, paths=self._state.paths)
        except DragomanError as error:
            log.warning("cannot run the check of session %s: %s", key, error)
            self._problems[key] = str(error)
        except Exception:
            self._problems[key] = INTERNAL_PROBLEM
            raise
        finally:
            self._checking.discard(key)
            self._tell(key)

    async def _apply(self, request: Request) -> Any:
        record = await session_of(request, self._state)
        asked = await body_of(request, _Apply)
        try:
            applied = await apply_patch(record.key, asked.digest, paths=self._state.paths)
        finally:
            self._tell(record.key)
        return {
            "applied": applied.ok,
            "files": [{"path": each.path, "op": each.op} for each in applied.files],
            "conflicts": msgspec.to_builtins(applied.conflicts),
        }

    def _tell(self, key: str) -> None:
        self._state.tell({"type": "review", "session": key})
