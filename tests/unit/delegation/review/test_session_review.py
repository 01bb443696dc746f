"""The review of a stored session: sources, check, and a patch that is applied once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman.delegation.review import session_review
from dragoman.delegation.review.kept_report import KeptReport, as_note
from dragoman.delegation.review.session_review import apply_patch, review_of, run_session_check
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.errors import PatchChanged, StoreBusy, UnknownSession, UsageError
from dragoman.paths import VARIABLES, Paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import git as runs_git
from dragoman.store.open import open_store
from dragoman.store.records import REPORT
from tests.aio import aio
from tests.unit.console.place import short_paths
from tests.unit.delegation.review.test_changes import call, diff
from tests.unit.delegation.worktree.repositories import git, make
from tests.unit.store.stores import job, session


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with short_paths() as paths:
        for name, variable in VARIABLES.items():
            monkeypatch.setenv(variable, str(getattr(paths, name)))
        yield paths


@dataclass
class Reviewed:
    """A session in a repository."""

    folder: Path
    key: str
    paths: Paths

    def store(self, *lines: bytes, report: KeptReport | None = None) -> None:
        with open_store(paths=self.paths) as store:
            store.create_session(session(key=self.key, cwd=str(self.folder)))
            made = job(
                self.key,
                id="j-1-1",
                state="ended",
                outcome="ok",
                started_at=1.0,
                next_event=len(lines),
            )
            store.create_job(made)
            store.create_job(
                job(
                    self.key,
                    id="j-1",
                    state="ended",
                    outcome="ok",
                    started_at=1.0,
                    next_event=len(lines),
                )
            )
            store.append(self.key, 0, lines)
            if report is not None:
                store.note(self.key, len(lines), REPORT, as_note(report))

    async def isolated(self, **fields: Any) -> Path:
        """A patch of isolated work, with its report."""
        worktrees = self.paths.state / "worktrees"
        async with Isolation(self.folder, folder=worktrees) as isolation:
            text = (self.folder / "a.txt").read_text()
            (isolation.workspace / "a.txt").write_text(text.replace("two", "2"))
            kept = await isolation.save()
        assert kept is not None
        told: dict[str, Any] = {"job": "j-1-1", "isolated": True, "patch": str(kept)}
        self.store(report=KeptReport(**told | {"patch_top": str(self.folder)} | fields))
        return kept


@pytest.fixture
def here(paths: Paths, tmp_path: Path) -> Reviewed:
    return Reviewed(make(tmp_path / "repo"), "s-1", paths)


@aio
async def test_the_patch_of_isolated_work_is_applied_once(here: Reviewed) -> None:
    kept = await here.isolated()
    review = await review_of(here.key, paths=here.paths)
    assert review.source == "patch" and review.sources == ("patch", "reported", "workspace")
    assert [file.path for file in review.files] == ["a.txt"]
    assert [turn.job for turn in review.turns] == ["j-1-1"]
    assert review.patch is not None and review.patch.digest is not None
    tries = [apply_patch(here.key, review.patch.digest, paths=here.paths) for _ in range(2)]
    first, second = await asyncio.gather(*tries, return_exceptions=True)
    done, other = (first, second) if not isinstance(first, BaseException) else (second, first)
    assert not isinstance(done, BaseException) and done.ok
    assert isinstance(other, PatchChanged)
    assert "2\n" in (here.folder / "a.txt").read_text() and not kept.exists()
    after = await review_of(here.key, paths=here.paths)
    assert after.patch is not None and after.patch.state == "applied"
    # What was applied is seen in the workspace now.
    assert after.source == "workspace" and [file.path for file in after.files] == ["a.txt"]


@aio
async def test_a_patch_is_recorded_as_applied_although_its_caller_is_cancelled(
    here: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.isolated()
    review = await review_of(here.key, paths=here.paths)
    assert review.patch is not None and review.patch.digest is not None
    ask = runs_git.ask

    async def cancel_and_ask(words: Sequence[str], **more: Any) -> Any:
        if words[0] == "apply":
            applying.cancel()
        return await ask(words, **more)

    monkeypatch.setattr(runs_git, "ask", cancel_and_ask)
    tasks = TaskOwner("test")
    applying = tasks.start(apply_patch(here.key, review.patch.digest, paths=here.paths), "apply")
    with pytest.raises(asyncio.CancelledError):
        await applying
    monkeypatch.undo()
    after = await review_of(here.key, paths=here.paths)
    assert after.patch is not None and after.patch.state == "applied"


@aio
async def test_a_caller_that_is_cancelled_while_it_waits_for_the_lock_leaves_it_free(
    here: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.isolated()
    review = await review_of(here.key, paths=here.paths)
    assert review.patch is not None and review.patch.digest is not None
    waits, go_on = threading.Event(), threading.Event()
    told: list[str] = []

    @contextmanager
    def lock(path: Path) -> Iterator[None]:
        waits.set()
        go_on.wait()
        told.append("taken")
        yield
        told.append("released")

    monkeypatch.setattr(session_review, "locked", lock)
    tasks = TaskOwner("test")
    applying = tasks.start(apply_patch(here.key, review.patch.digest, paths=here.paths), "apply")
    await asyncio.to_thread(waits.wait)
    applying.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await applying
    assert told == ["taken", "released"]


@aio
async def test_a_patch_that_has_changed_since_it_was_shown_is_not_applied(here: Reviewed) -> None:
    kept = await here.isolated()
    review = await review_of(here.key, paths=here.paths)
    assert review.patch is not None and review.patch.digest is not None
    kept.write_bytes(kept.read_bytes().replace(b"+2", b"+3"))
    with pytest.raises(PatchChanged, match="has changed"):
        await apply_patch(here.key, review.patch.digest, paths=here.paths)
    assert git(here.folder, "status", "--porcelain") == ""
    kept.unlink()
    with pytest.raises(PatchChanged, match="already applied, or"):
        await apply_patch(here.key, review.patch.digest, paths=here.paths)
    gone = await review_of(here.key, paths=here.paths)
    assert gone.patch is not None and gone.patch.state == "gone" and gone.patch.digest is None


@aio
async def test_an_applied_patch_that_cannot_be_recorded_is_said_to_be_applied(
    here: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.isolated()
    review = await review_of(here.key, paths=here.paths)
    assert review.patch is not None and review.patch.digest is not None

    def busy(*args: object) -> None:
        raise StoreBusy("the store", "another process holds it")

    monkeypatch.setattr(session_review, "_note", busy)
    with pytest.raises(StoreBusy, match="the patch was applied, but .*another process") as caught:
        await apply_patch(here.key, review.patch.digest, paths=here.paths)
    assert (caught.value.may_have_run, caught.value.retryable) == (True, False)
    assert git(here.folder, "status", "--porcelain") != ""


@aio
async def test_a_patch_that_delegate_would_not_apply_is_not_applied_here(here: Reviewed) -> None:
    check = CheckResult(command="make test", ok=False, exit_code=2, tail="1 failed")
    await here.isolated(check=check, obstacle="the check failed: make test")
    review = await review_of(here.key, paths=here.paths)
    assert review.patch is not None and review.patch.obstacle == "the check failed: make test"
    assert review.check is not None and (review.check.where, review.check.ok) == ("worktree", False)
    assert review.check_command == "make test"
    with pytest.raises(UsageError, match="the check failed"):
        await apply_patch(here.key, review.patch.digest or "", paths=here.paths)


@aio
async def test_conflicts_are_reported_and_the_patch_is_kept(here: Reviewed) -> None:
    kept = await here.isolated()
    (here.folder / "a.txt").write_text("mine\n")
    review = await review_of(here.key, paths=here.paths)
    assert review.patch is not None and review.patch.digest is not None
    applied = await apply_patch(here.key, review.patch.digest, paths=here.paths)
    assert not applied.ok and [one.path for one in applied.conflicts] == ["a.txt"]
    assert kept.exists() and (here.folder / "a.txt").read_text() == "mine\n"


@aio
async def test_the_changes_of_tool_calls_come_before_those_of_the_workspace(
    here: Reviewed,
) -> None:
    here.store(call("1", diff(here.folder / "a.txt", "two", "2")))
    (here.folder / "other").write_text("by a command\n")
    review = await review_of(here.key, paths=here.paths)
    assert review.source == "reported" and [file.path for file in review.files] == ["a.txt"]
    whole = await review_of(here.key, paths=here.paths, source="workspace")
    assert [file.path for file in whole.files] == ["other"]
    turn = await review_of(here.key, paths=here.paths, job="j-9")
    assert turn.source == "reported" and turn.files == ()


@aio
async def test_a_session_without_reported_changes_shows_those_of_the_workspace(
    here: Reviewed, tmp_path: Path
) -> None:
    here.store()
    (here.folder / "other").write_text("by a command\n")
    review = await review_of(here.key, paths=here.paths)
    assert review.source == "workspace" and [file.path for file in review.files] == ["other"]
    plain = Reviewed(tmp_path, "s-2", here.paths)
    with open_store(paths=here.paths) as store:
        store.create_session(session(key="s-2", cwd=str(tmp_path / "gone")))
    empty = await review_of(plain.key, paths=here.paths)
    assert empty.sources == ("reported",) and empty.files == () and empty.check_command is None


@aio
async def test_the_check_of_the_settings_is_run_in_the_workspace_and_kept(here: Reviewed) -> None:
    here.store()
    with pytest.raises(UsageError, match="no check command"):
        await run_session_check(here.key, paths=here.paths)
    here.paths.config.mkdir(parents=True)
    here.paths.config_file.write_text('check = "test -f a.txt && echo fine"\n')
    assert (await run_session_check(here.key, paths=here.paths)).ok
    review = await review_of(here.key, paths=here.paths)
    assert review.check is not None and review.check.ok and review.check.tail.strip() == "fine"
    assert review.check.where == "workspace"
    (here.folder / "a.txt").unlink()
    assert not (await run_session_check(here.key, paths=here.paths)).ok
    again = await review_of(here.key, paths=here.paths)
    assert again.check is not None and not again.check.ok


@aio
async def test_a_session_that_is_not_there_has_no_review(here: Reviewed) -> None:
    with pytest.raises(UnknownSession):
        await review_of("s-9", paths=here.paths)
    here.store()
    with pytest.raises(UsageError, match="no patch"):
        await apply_patch(here.key, "x", paths=here.paths)
