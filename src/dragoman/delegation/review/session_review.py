"""Build the review of a session, run the check in its workspace, and apply its patch.

Used by the console. `changes` finds the files, `kept_report` defines what a delegation stores, and
`worktree` runs the check and applies the patch.
"""

from __future__ import annotations

import hashlib
import shlex
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.client.folders import absolute
from dragoman.config.safe_files import locked
from dragoman.decoders import convert_typed
from dragoman.delegation.review.changes import ReviewFile, of_patch, reported
from dragoman.delegation.review.kept_report import (
    KeptApplication,
    KeptCheck,
    KeptReport,
    as_note,
    latest_report,
)
from dragoman.delegation.worktree import patch as worktree_patch
from dragoman.delegation.worktree.check_command import CheckResult, run_check
from dragoman.delegation.worktree.patch import Applied
from dragoman.delegation.worktree.patch_files import files_in
from dragoman.delegation.worktree.uncommitted import uncommitted
from dragoman.errors import (
    DragomanError,
    FileFailed,
    PatchChanged,
    StoreError,
    UnknownSession,
    UsageError,
)
from dragoman.events.parts import FileChange
from dragoman.rpc.tasks import finish, in_thread
from dragoman.runs.context import load_context
from dragoman.store.open import open_store
from dragoman.store.records import APPLIED, CHECK, REPORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.paths import Paths
    from dragoman.store.records import JobRecord, Note, SessionRecord

ReviewSource: TypeAlias = Literal["patch", "reported", "workspace"]
"""The source of the changes: the patch of isolated work, the tool calls of the session, or all
files of the workspace that differ from its last commit."""

PatchState: TypeAlias = Literal["kept", "applied", "gone"]

SHOWN_PROMPT: Final = 300
"""Maximum length of a prompt in the list of turns, in characters."""


class ReviewTurn(Struct, frozen=True, kw_only=True, rename="camel"):
    """A turn of the session, used to filter reported changes."""

    job: str
    prompt: str
    outcome: str | None
    ended_at: float | None


class ReviewCheck(Struct, frozen=True, kw_only=True, rename="camel"):
    """The latest result of the check."""

    command: str
    ok: bool
    exit_code: int | None
    timed_out: bool
    tail: str
    seconds: float
    problem: str
    where: Literal["worktree", "workspace"]
    """Where it ran: in the worktree of the isolated work, or in the user's workspace."""
    at: float


class ReviewPatch(Struct, frozen=True, kw_only=True, rename="camel"):
    """The patch of isolated work."""

    state: PatchState
    digest: str | None
    """SHA-256 of the current file, to pass to `apply_patch`; None if the file is gone."""
    file: str
    top: str
    """Top-level directory of the repository that the patch is for."""
    obstacle: str
    """Why it must not be applied; empty if it may."""
    command: str
    """Shell command that applies it manually."""


class Review(Struct, frozen=True, kw_only=True, rename="camel"):
    """The review of a session's changes."""

    session: str
    peer: str
    workspace: str
    source: ReviewSource
    sources: tuple[ReviewSource, ...]
    """The available sources. `workspace` requires a git repository."""
    turns: tuple[ReviewTurn, ...]
    job: str | None
    """The turn that the changes belong to; None for all turns."""
    files: tuple[ReviewFile, ...]
    problem: str = ""
    """Why the files are unknown or incomplete."""
    check: ReviewCheck | None = None
    check_command: str | None = None
    """The command that `run_session_check` would run; None if neither the delegation nor the
    settings specify one."""
    patch: ReviewPatch | None = None


async def review_of(
    key: str, *, paths: Paths, source: ReviewSource | None = None, job: str | None = None
) -> Review:
    """Return the review of a stored session.

    Without `source`, or if that source is not available, the review shows the patch if its file
    still exists, otherwise the reported changes if there are any or `job` is given, otherwise the
    workspace if it is in a repository. `job` restricts reported changes to those of one turn.
    Raises `UnknownSession`.
    """
    record, jobs, notes = await in_thread(key, lambda _: _load(key, paths))
    report = latest_report(notes)
    patch = await in_thread(key, lambda _: _patch(report, notes))
    told = await in_thread(key, lambda _: _reported(record, job, paths))
    sources: list[ReviewSource] = ["reported"]
    if patch is not None and patch.state == "kept":
        sources.insert(0, "patch")
    if is_repository(Path(record.cwd)):
        sources.append("workspace")
    if source not in sources or source is None:
        source = sources[0]
        if source == "reported" and not told and job is None:
            # A command may have changed files without reporting them.
            source = sources[-1]
    files, problem = await _files(source, told, record, patch)
    return Review(
        session=key,
        peer=record.peer,
        workspace=record.cwd,
        source=source,
        sources=tuple(sources),
        turns=_turns(jobs),
        job=job,
        files=tuple(files),
        problem=problem,
        check=_check(report, notes),
        check_command=await in_thread(key, lambda _: _check_command(record, report)),
        patch=patch,
    )


async def run_session_check(key: str, *, paths: Paths) -> CheckResult:
    """Run the check in the workspace of a session, and store the result with the session.

    The command is that of the delegation's check, else that of the settings. Raises `UsageError` if
    there is none, and `UnknownSession`.
    """
    record, _, notes = await in_thread(key, lambda _: _load(key, paths))
    report = latest_report(notes)
    command = await in_thread(key, lambda _: _check_command(record, report))
    if command is None:
        raise UsageError("no check command: set `check` in the project settings")
    result = await run_check(command, Path(record.cwd))
    kept = KeptCheck(result=result)
    await in_thread(key, lambda _: _note(record, CHECK, kept, paths), changes_disk=True)
    return result


async def apply_patch(key: str, digest: str, *, paths: Paths) -> Applied:
    """Apply the patch of a session's isolated work to the repository, completely or not at all.

    The same conditions apply as for `delegate --apply`. `digest` identifies the patch that the user
    saw. If the patch conflicts with the files, the conflicts are returned. Raises `PatchChanged` if
    the patch has changed since, or if its file no longer exists, for example because the patch was
    applied. Raises `UsageError` if the session has no patch or it must not be applied. An error's
    `may_have_run` says whether the repository may have been changed.
    """
    record, _, notes = await in_thread(key, lambda _: _load(key, paths))
    report = latest_report(notes)
    if report is None or report.patch is None or report.patch_top is None:
        raise UsageError(f"session {key} has no patch to apply")
    if report.obstacle:
        raise UsageError(f"the patch cannot be applied: {report.obstacle}")
    path = Path(report.patch)
    # Two processes may apply the patch at the same time. The lock is released if this one dies.
    lock = ExitStack()

    def take(stop: threading.Event) -> None:
        lock.enter_context(locked(path.parent / "applied"))
        if stop.is_set():
            # The caller has left, and may no longer release it.
            lock.close()

    try:
        await in_thread(str(path), take)
        data = await in_thread(str(path), lambda _: _read(path))
        if data is None:
            raise PatchChanged("the patch was already applied, or its file was deleted")
        if digest != hashlib.sha256(data).hexdigest():
            raise PatchChanged("the patch has changed since it was shown; review it again")
        work = _apply_noted(data, Path(report.patch_top), path, record, digest, paths)
        # A cancelled caller must not leave a patch that is applied and not recorded as applied.
        return await finish(work)
    finally:
        lock.close()


async def _apply_noted(
    data: bytes, top: Path, path: Path, record: SessionRecord, digest: str, paths: Paths
) -> Applied:
    """Apply a patch, and record in the session that it was applied. If only the record fails, the
    error says that the patch was applied."""
    applied = await worktree_patch.apply_patch(
        data,
        top,
        files=tuple(FileChange(each.path, each.op) for each in files_in(data)),
        patches=path.parent,
        name=path.stem,
    )
    if applied.ok:
        kept = KeptApplication(digest=digest)
        try:
            await in_thread(
                record.key, lambda _: _note(record, APPLIED, kept, paths), changes_disk=True
            )
        except (StoreError, FileFailed) as error:
            error.args = (f"the patch was applied, but that could not be recorded: {error}",)
            error.may_have_run, error.retryable = True, False
            raise
    return applied


def is_repository(folder: Path) -> bool:
    """Return whether a directory is in a git repository: whether it or a parent has `.git`."""
    return any((each / ".git").exists() for each in (folder, *folder.parents))


def _load(key: str, paths: Paths) -> tuple[SessionRecord, list[JobRecord], list[Note]]:
    with open_store(read_only=True, paths=paths) as store:
        record = store.session(key)
        if record is None:
            raise UnknownSession(f"there is no session {key[:100]!r}")
        return record, store.jobs(session_key=key, limit=-1, texts=False), store.notes(key)


def _reported(record: SessionRecord, job: str | None, paths: Paths) -> list[ReviewFile]:
    with open_store(read_only=True, paths=paths) as store:
        return reported(store, record.key, root=absolute(Path(record.cwd)), job=job)


def _note(
    record: SessionRecord, kind: str, value: KeptCheck | KeptApplication, paths: Paths
) -> None:
    with open_store(paths=paths) as store:
        store.note(record.key, record.next_event, kind, as_note(value))


async def _files(
    source: ReviewSource,
    told: list[ReviewFile],
    record: SessionRecord,
    patch: ReviewPatch | None,
) -> tuple[list[ReviewFile], str]:
    match source:
        case "reported":
            return told, ""
        case "patch":
            assert patch is not None
            file = Path(patch.file)
            data = await in_thread(patch.file, lambda _: _read(file))
            return of_patch(files_in(data or b"")), "" if data else "the patch file is gone"
        case "workspace":
            try:
                data, complete = await uncommitted(Path(record.cwd))
            except DragomanError as error:
                return [], str(error)
            problem = "" if complete else "there are more changes than shown here"
            return of_patch(files_in(data)), problem


def _patch(report: KeptReport | None, notes: Sequence[Note]) -> ReviewPatch | None:
    if report is None or report.patch is None or report.patch_top is None:
        return None
    path = Path(report.patch)
    data = _read(path)
    state: PatchState = "kept"
    if data is None:
        state = "applied" if any(note.kind == APPLIED for note in notes) else "gone"
    return ReviewPatch(
        state=state,
        digest=None if data is None else hashlib.sha256(data).hexdigest(),
        file=report.patch,
        top=report.patch_top,
        obstacle=report.obstacle,
        command=shlex.join(["git", "-C", report.patch_top, "apply", report.patch]),
    )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileFailed(str(path), error.strerror or str(error), error.errno) from error


def _turns(jobs: Sequence[JobRecord]) -> tuple[ReviewTurn, ...]:
    """Return the turns in order. A delegation is represented by its attempts."""
    parents = {job.id.rpartition("-")[0] for job in jobs}
    return tuple(
        ReviewTurn(
            job=job.id,
            prompt=job.prompt[:SHOWN_PROMPT],
            outcome=job.outcome,
            ended_at=job.ended_at,
        )
        for job in sorted(jobs, key=lambda job: (job.first_event, job.created_at))
        if job.started_at is not None and job.id not in parents
    )


def _check(report: KeptReport | None, notes: Sequence[Note]) -> ReviewCheck | None:
    found: ReviewCheck | None = None
    for note in notes:
        where: Literal["worktree", "workspace"] = "workspace"
        try:
            if note.kind == CHECK:
                result = convert_typed(note.data, KeptCheck).result
            elif note.kind == REPORT and report is not None:
                if report.check is None:
                    continue
                result, where = report.check, "worktree" if report.isolated else "workspace"
            else:
                continue
        except msgspec.ValidationError:
            continue
        if found is None or note.at >= found.at:
            found = ReviewCheck(
                command=result.command,
                ok=result.ok,
                exit_code=result.exit_code,
                timed_out=result.timed_out,
                tail=result.tail,
                seconds=result.seconds,
                problem=result.problem or (f"killed by {result.signal}" if result.signal else ""),
                where=where,
                at=note.at,
            )
    return found


def _check_command(record: SessionRecord, report: KeptReport | None) -> str | None:
    if report is not None and report.check is not None:
        return report.check.command
    folder = Path(record.cwd)
    if not folder.is_dir():
        return None
    return load_context(folder).config.settings.check or None
