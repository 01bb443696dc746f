"""What changed on the disk is found, and what did not change is not told of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.delegation.worktree.snapshot import Changed, Snapshot, changes
from dragoman.errors import UsageError
from dragoman.events.words import FileOp
from dragoman.runs import changed_files
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import commit_all, git, make, with_submodule

ADD, MODIFY, DELETE = FileOp.ADD, FileOp.MODIFY, FileOp.DELETE


async def after(folder: Path, work: Callable[[], object]) -> Changed:
    before = await Snapshot.take(folder)
    work()
    return changes(before, await Snapshot.take(folder))


def told(changed: Changed) -> dict[str, FileOp]:
    return {change.path: change.op for change in changed.files}


@aio
async def test_a_look_changes_nothing_and_two_looks_are_the_same(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("uncommitted\n")
    (folder / "new.txt").write_text("untracked\n")
    index = (folder / ".git" / "index").read_bytes()
    objects = sorted((folder / ".git" / "objects").rglob("*"))
    changed = await after(folder, lambda: None)
    assert changed == Changed()
    assert (folder / ".git" / "index").read_bytes() == index
    assert sorted((folder / ".git" / "objects").rglob("*")) == objects


@aio
async def test_added_modified_and_deleted_files_are_reported(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")

    def work() -> None:
        (folder / "a.txt").unlink()
        (folder / "src" / "b.py").write_text("b = 2\n")
        (folder / "näu e.txt").write_text("x")

    changed = await after(folder, work)
    assert told(changed) == {"a.txt": DELETE, "src/b.py": MODIFY, "näu e.txt": ADD}


@pytest.mark.parametrize("failing", ["ls-files --stage", "ls-files --others"])
@aio
async def test_files_that_git_does_not_list_may_have_changed(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    script = tmp_path / "bin" / "git"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *"{failing}"*) echo "fatal: broken" >&2; exit 128;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    changed = await after(folder, lambda: (folder / "a.txt").write_text("changed"))
    assert not changed.complete
    assert any(
        "git could not inspect all of" in note and "broken" in note for note in changed.notes
    )


@aio
async def test_a_change_on_top_of_uncommitted_work_is_seen_and_the_work_itself_is_not(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("mine\n")
    (folder / "mine.txt").write_text("mine\n")
    (folder / "other.txt").write_text("mine\n")

    def work() -> None:
        (folder / "mine.txt").write_text("ours\n")
        git(folder, "checkout", "-q", "--", "a.txt")

    changed = await after(folder, work)
    assert told(changed) == {"mine.txt": MODIFY, "a.txt": MODIFY}


@aio
async def test_a_commit_changes_no_file_but_is_reported(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("mine\n")
    changed = await after(folder, lambda: commit_all(folder))
    assert told(changed) == {}
    assert changed.repository == ("the branches and tags", "the staging area")


@aio
async def test_a_commit_of_new_work_tells_the_files_in_it(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")

    def work() -> None:
        (folder / "src" / "b.py").write_text("b = 2\n")
        commit_all(folder)

    changed = await after(folder, work)
    assert told(changed) == {"src/b.py": MODIFY}


@aio
async def test_a_named_pipe_among_the_files_of_git_is_not_read(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    changed = await after(folder, lambda: os.mkfifo(folder / ".git" / "config.worktree"))
    assert changed.repository == ()


@aio
async def test_a_planted_hook_and_a_changed_configuration_are_reported(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")

    def work() -> None:
        (folder / ".git" / "hooks").mkdir(exist_ok=True)
        (folder / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
        git(folder, "config", "core.pager", "evil")
        git(folder, "checkout", "-q", "--detach")

    changed = await after(folder, work)
    assert changed.repository == ("HEAD", "the configuration", "the hooks")


@aio
async def test_no_program_that_the_repository_names_is_run_by_a_look(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    trace = tmp_path / "ran"
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {trace}\n")
    spy.chmod(0o755)
    git(folder, "config", "core.fsmonitor", str(spy))
    git(folder, "config", "core.hooksPath", str(tmp_path))
    (tmp_path / "post-index-change").symlink_to(spy)
    await Snapshot.take(folder)
    assert not trace.exists()


@aio
async def test_a_single_ignored_file_counts_and_an_ignored_folder_is_distinguished(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    (folder / ".env").write_text("SECRET=1\n")
    (folder / "cache").mkdir()

    def work() -> None:
        (folder / ".env").write_text("SECRET=2\n")
        (folder / "cache" / "x").write_text("x")

    changed = await after(folder, work)
    assert told(changed) == {".env": MODIFY}
    assert [(one.path, one.op) for one in changed.ignored] == [("cache/x", ADD)]


@aio
async def test_caches_alone_leave_a_workspace_untouched(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "cache").mkdir()
    changed = await after(folder, lambda: (folder / "cache" / "x").write_text("x"))
    assert changed.complete and not changed.files and not changed.repository
    assert changed.ignored != ()


@aio
async def test_a_subdirectory_is_reported_relative_to_itself(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")

    def work() -> None:
        (folder / "a.txt").write_text("outside\n")
        (folder / "src" / "b.py").write_text("b = 2\n")
        (folder / "src" / "new.py").write_text("n = 1\n")

    changed = await after(folder / "src", work)
    assert told(changed) == {"../a.txt": MODIFY, "b.py": MODIFY, "new.py": ADD}


@aio
async def test_an_ignored_workspace_is_looked_at_without_git(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "cache").mkdir()
    changed = await after(folder / "cache", lambda: (folder / "cache" / "x").write_text("x"))
    assert told(changed) == {"x": ADD}


@aio
async def test_a_repository_without_commits_and_one_that_is_detached_are_seen(
    tmp_path: Path,
) -> None:
    unborn = make(tmp_path / "unborn", commit=False)
    changed = await after(unborn, lambda: (unborn / "a.txt").write_text("x"))
    assert told(changed) == {"a.txt": MODIFY}
    detached = make(tmp_path / "detached")
    git(detached, "checkout", "-q", "--detach")
    changed = await after(detached, lambda: (detached / "a.txt").write_text("x"))
    assert told(changed) == {"a.txt": MODIFY}
    assert changed.complete


@aio
async def test_submodules_and_embedded_repositories_are_looked_into(tmp_path: Path) -> None:
    folder = with_submodule(tmp_path / "repo")
    make(folder / "embedded")
    make(folder / "unborn", commit=False)

    def work() -> None:
        (folder / "lib" / "a.txt").write_text("x")
        (folder / "embedded" / "a.txt").unlink()
        (folder / "unborn" / "new").write_text("x")
        git(folder / "lib", "tag", "seen")

    changed = await after(folder, work)
    assert told(changed) == {"lib/a.txt": MODIFY, "embedded/a.txt": DELETE, "unborn/new": ADD}
    assert changed.repository == ("the branches and tags of lib",)
    assert changed.complete


@aio
async def test_a_folder_outside_git_is_compared_by_its_contents(tmp_path: Path) -> None:
    (tmp_path / "same").write_text("same")
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").symlink_to("same")

    def work() -> None:
        os.utime(tmp_path / "same", (1, 1))
        (tmp_path / "old").write_text("new")
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("olds")
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "x").write_text("x")

    changed = await after(tmp_path, work)
    assert told(changed) == {"old": MODIFY, "link": MODIFY, "more/x": ADD}


@aio
async def test_more_files_than_are_looked_at_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_text("x")
    walk = changed_files.walk
    monkeypatch.setattr(
        changed_files, "walk", lambda folder, stop: walk(folder, stop, max_entries=3)
    )
    changed = await after(tmp_path, lambda: None)
    assert changed.files == ()
    assert not changed.complete
    assert "more files than are checked" in changed.notes[0]


@aio
async def test_a_repository_that_git_does_not_read_is_compared_without_it(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / ".git" / "HEAD").write_text("nonsense")
    changed = await after(folder, lambda: (folder / "a.txt").write_text("x"))
    assert told(changed) == {"a.txt": MODIFY}
    assert "git cannot read" in changed.notes[0]


@aio
async def test_names_that_are_not_utf8_can_be_reported(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    name = os.fsdecode(b"caf\xe9")
    changed = await after(folder, lambda: (folder / name).write_text("x"))
    assert told(changed) == {"caf\\xe9": ADD}


@aio
async def test_two_workspaces_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = await Snapshot.take(tmp_path / "a"), await Snapshot.take(tmp_path / "b")
    with pytest.raises(UsageError, match="different workspaces"):
        changes(one, other)
    with pytest.raises(UsageError, match="no directory"):
        await Snapshot.take(tmp_path / "c")


@aio
async def test_a_filter_that_was_planted_meanwhile_is_reported_and_not_run(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    trace = tmp_path / "ran"

    def work() -> None:
        with (folder / ".git" / "config").open("a") as config:
            config.write(f'[filter "x.y"]\n\tclean = "touch {trace}; cat"\n\trequired = true\n')
        (folder / ".gitattributes").write_text("* filter=x.y\n")
        (folder / "a.txt").write_text("x")

    changed = await after(folder, work)
    assert told(changed) == {".gitattributes": ADD, "a.txt": MODIFY}
    assert changed.repository == ("the configuration",)
    assert not trace.exists()
    # The trap is one: the user's own git would have gone into it.
    git(folder, "status")
    assert trace.exists()


@aio
async def test_a_submodule_that_was_made_to_point_elsewhere_has_nothing_of_it_run(
    tmp_path: Path,
) -> None:
    folder = with_submodule(tmp_path / "repo")
    trap = make(tmp_path / "trap")
    trace = tmp_path / "ran"

    def work() -> None:
        with (trap / ".git" / "config").open("a") as config:
            config.write(f'[filter "x"]\n\tclean = "touch {trace}; cat"\n')
            config.write(f'[core]\n\tfsmonitor = "touch {trace}; false"\n')
        (folder / "lib" / ".gitattributes").write_text("* filter=x\n")
        (folder / "lib" / "a.txt").write_text("x")
        (folder / "lib" / ".git").write_text(f"gitdir: {trap}/.git\n")

    changed = await after(folder, work)
    assert told(changed) == {"lib/.gitattributes": ADD, "lib/a.txt": MODIFY}
    assert "the configuration of lib" in changed.repository
    assert not trace.exists()
