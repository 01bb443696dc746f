"""A job works in a copy: what comes along, what comes back, and that the copy goes."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.snapshot import Snapshot, changes
from dragoman.errors import FilterFailed, IsolationFailed, UsageError
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import git as runs_git
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import commit_all, git, make, tree, with_submodule


def worktrees(folder: Path) -> int:
    return git(folder, "worktree", "list", "--porcelain").count("worktree ")


def in_state(tmp_path: Path) -> list[str]:
    folder = tmp_path / "state" / "worktrees"
    return os.listdir(folder) if folder.exists() else []


def isolated(tmp_path: Path, workspace: Path) -> Isolation:
    return Isolation(workspace, folder=tmp_path / "state" / "worktrees")


@aio
async def test_staged_changed_deleted_and_untracked_files_come_along_as_they_are(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("staged\n")
    git(folder, "add", "a.txt")
    (folder / "a.txt").write_text("staged, then changed\n")
    (folder / "src" / "b.py").unlink()
    (folder / "new.txt").write_text("untracked\n")
    (folder / ".env").write_text("SECRET\n")
    status = git(folder, "status", "--porcelain")
    async with isolated(tmp_path, folder) as isolation:
        expected = tree(folder)
        del expected[".env"]
        assert tree(isolation.workspace) == expected
        assert git(isolation.workspace, "status", "--porcelain") == status
        assert await isolation.patch() == b""
    assert git(folder, "status", "--porcelain") == status


@aio
async def test_the_workspace_is_untouched_until_the_patch_is_applied(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    before = tree(folder)
    async with isolated(tmp_path, folder) as isolation:
        work = isolation.workspace
        (work / "a.txt").write_text("changed\n")
        (work / "src" / "b.py").unlink()
        (work / "new").write_bytes(b"\0binary\xff")
        assert tree(folder) == before
        assert b"a/src/b.py" in await isolation.patch()
        applied = await isolation.apply()
    assert applied.ok
    assert {change.path for change in applied.files} == {"a.txt", "src/b.py", "new"}
    assert (folder / "a.txt").read_text() == "changed\n"
    assert (folder / "new").read_bytes() == b"\0binary\xff"
    assert not (folder / "src" / "b.py").exists()
    assert worktrees(folder) == 1
    assert in_state(tmp_path) == []
    assert list((tmp_path / "state" / "patches").iterdir()) == []


@aio
async def test_commits_made_in_the_copy_are_in_the_patch_and_on_no_branch(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    branches = git(folder, "for-each-ref")
    async with isolated(tmp_path, folder) as isolation:
        (isolation.workspace / "a.txt").write_text("committed\n")
        commit_all(isolation.workspace)
        assert (await isolation.apply()).ok
    assert (folder / "a.txt").read_text() == "committed\n"
    assert git(folder, "for-each-ref") == branches


@aio
async def test_a_change_elsewhere_in_the_same_file_is_kept_beside_the_patch(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    text = (folder / "a.txt").read_text()
    async with isolated(tmp_path, folder) as isolation:
        (isolation.workspace / "a.txt").write_text(text.replace("seven", "SEVEN"))
        (folder / "a.txt").write_text(text.replace("one", "ONE"))
        assert (await isolation.apply()).ok
    assert (folder / "a.txt").read_text() == "ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n"


@aio
async def test_a_subfolder_is_a_subfolder_in_the_copy(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "elsewhere").write_text("untracked, and not in the workspace\n")
    async with isolated(tmp_path, folder / "src") as isolation:
        assert isolation.workspace.name == "src"
        assert (isolation.workspace.parent / "a.txt").exists()
        (isolation.workspace / "b.py").write_text("b = 2\n")
        (isolation.workspace.parent / "top").write_text("x\n")
        assert (await isolation.apply()).ok
    assert (folder / "src" / "b.py").read_text() == "b = 2\n"
    assert (folder / "top").exists()
    assert (folder / "elsewhere").exists()


@aio
async def test_submodules_come_along_with_their_changes_and_are_applied_to(tmp_path: Path) -> None:
    folder = with_submodule(tmp_path / "repo")
    (folder / "lib" / "a.txt").write_text("uncommitted in the submodule\n")
    async with isolated(tmp_path, folder) as isolation:
        work = isolation.workspace
        assert (work / "lib" / "a.txt").read_text() == "uncommitted in the submodule\n"
        (work / "lib" / "a.txt").write_text("done\n")
        (work / "lib" / "new").write_text("new\n")
        commit_all(work / "lib")
        (work / "a.txt").write_text("done\n")
        assert (folder / "lib" / "a.txt").read_text() == "uncommitted in the submodule\n"
        applied = await isolation.apply()
    assert applied.ok
    assert {change.path for change in applied.files} == {"a.txt", "lib/a.txt", "lib/new"}
    assert (folder / "lib" / "a.txt").read_text() == "done\n"
    assert (folder / "lib" / "new").read_text() == "new\n"
    assert (folder / "a.txt").read_text() == "done\n"
    assert worktrees(folder / "lib") == 1
    assert git(folder, "submodule", "status")[0] == " "


@aio
async def test_a_copy_waits_for_another_process_that_is_creating_a_worktree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    other = folder / ".git" / "worktrees" / "other"
    other.mkdir(parents=True)
    (other / "gitdir").write_text(f"{tmp_path}/other/.git\n")
    (other / "commondir").touch()
    (other / "HEAD").write_text("ref: refs/heads/main\n")
    ask, tries = runs_git.ask, list[Sequence[str]]()

    async def finish_after_the_first_try(args: Sequence[str], **more: Any) -> Any:
        answer = await ask(args, **more)
        if "worktree" in args:
            tries.append(args)
            (other / "commondir").write_text("../..\n")
        return answer

    monkeypatch.setattr(runs_git, "ask", finish_after_the_first_try)
    async with isolated(tmp_path, folder) as isolation:
        assert (isolation.workspace / "a.txt").exists()
    assert len(tries) == 2


@aio
async def test_the_files_of_a_removed_submodule_are_deleted_by_the_patch(tmp_path: Path) -> None:
    folder = with_submodule(tmp_path / "repo")
    async with isolated(tmp_path, folder) as isolation:
        (isolation.workspace / "a.txt").write_text("changed\n")
        shutil.rmtree(isolation.workspace / "lib")
        applied = await isolation.apply()
    assert applied.ok
    assert (folder / "a.txt").read_text() == "changed\n"
    assert {path for path in tree(folder) if path.startswith("lib/")} == set()
    assert in_state(tmp_path) == []


@aio
async def test_a_repository_made_in_the_copy_comes_back_with_its_files(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    async with isolated(tmp_path, folder) as isolation:
        make(isolation.workspace / "unborn", commit=False)
        make(isolation.workspace / "app")
        assert (await isolation.apply()).ok
    assert (folder / "app" / "src" / "b.py").read_text() == "b = 1\n"
    assert (folder / "unborn" / "a.txt").exists()


@aio
async def test_a_repository_inside_that_has_no_commit_comes_along(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    make(folder / "unborn", commit=False)
    async with isolated(tmp_path, folder) as isolation:
        assert (isolation.workspace / "unborn" / "a.txt").exists()
        (isolation.workspace / "unborn" / "a.txt").write_text("x\n")
        assert (await isolation.apply()).ok
    assert (folder / "unborn" / "a.txt").read_text() == "x\n"


@aio
async def test_a_clean_up_of_the_repository_meanwhile_loses_nothing(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("uncommitted\n")
    (folder / "mine").write_text("untracked\n")
    references = git(folder, "for-each-ref")
    async with isolated(tmp_path, folder) as isolation:
        assert git(folder, "for-each-ref") == references
        (isolation.workspace / "a.txt").write_text("done\n")
        (isolation.workspace / "mine").unlink()
        git(folder, "gc", "-q", "--prune=now")
        git(isolation.workspace, "gc", "-q", "--prune=now")
        assert (await isolation.apply()).ok
    assert (folder / "a.txt").read_text() == "done\n"
    assert not (folder / "mine").exists()
    assert git(folder, "for-each-ref") == references


@aio
async def test_hooks_of_the_repository_do_not_run(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    trace = tmp_path / "ran"
    (folder / ".git" / "hooks").mkdir(exist_ok=True)
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {trace}\n")
    hook.chmod(0o755)
    async with isolated(tmp_path, folder):
        pass
    assert not trace.exists()


@aio
async def test_an_exception_keeps_the_work_as_a_patch_and_removes_the_copy(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    with pytest.raises(ZeroDivisionError):
        async with isolated(tmp_path, folder) as isolation:
            (isolation.workspace / "a.txt").write_text("half\n")
            raise ZeroDivisionError
    kept = tmp_path / "state" / "patches" / f"{isolation.id}.patch"
    assert in_state(tmp_path) == []
    assert kept.stat().st_mode & 0o077 == 0
    git(folder, "apply", str(kept))
    assert (folder / "a.txt").read_text() == "half\n"


@aio
async def test_a_caller_that_is_cancelled_while_git_applies_knows_that_it_was_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    ask = runs_git.ask

    async def cancel_and_ask(words: Sequence[str], **more: Any) -> Any:
        if words[0] == "apply":
            applying.cancel()
        return await ask(words, **more)

    monkeypatch.setattr(runs_git, "ask", cancel_and_ask)
    tasks = TaskOwner("test")
    isolation = isolated(tmp_path, folder)

    async def work() -> None:
        async with isolation:
            (isolation.workspace / "a.txt").write_text("two\n")
            await isolation.apply()

    applying = tasks.start(work(), "apply")
    with pytest.raises(asyncio.CancelledError):
        await applying
    assert (folder / "a.txt").read_text() == "two\n"
    assert isolation.applied is not None and isolation.applied.ok
    assert isolation.kept is None
    assert not list((tmp_path / "state" / "patches").glob("*.patch"))


@aio
async def test_outside_a_repository_and_in_an_ignored_folder_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(UsageError, match="without a git repository"):
        async with isolated(tmp_path, tmp_path / "plain"):
            pass
    folder = make(tmp_path / "repo")
    (folder / "cache").mkdir()
    with pytest.raises(UsageError, match="ignored"):
        async with isolated(tmp_path, folder / "cache"):
            pass
    git(tmp_path, "init", "-q", "--bare", "bare")
    with pytest.raises(UsageError, match="must be run in a work tree"):
        async with isolated(tmp_path, tmp_path / "bare"):
            pass
    assert in_state(tmp_path) == []


@aio
async def test_a_copy_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    git(folder, "config", "filter.broken.clean", "cat")
    (folder / ".gitattributes").write_text("a.txt filter=broken\n")
    with pytest.raises(FilterFailed, match="'broken' is defined only by the repository"):
        async with isolated(tmp_path, folder):
            pass
    assert in_state(tmp_path) == []
    assert worktrees(folder) == 1
    (tmp_path / "file").touch()
    with pytest.raises(IsolationFailed, match="copying "):
        async with Isolation(folder, folder=tmp_path / "file" / "worktrees"):
            pass


@aio
async def test_an_isolation_is_used_once_and_only_inside_its_block(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    isolation = isolated(tmp_path, folder)
    for ask in (isolation.patch, isolation.files, isolation.apply, isolation.save):
        with pytest.raises(UsageError, match="async with"):
            await ask()
    async with isolation:
        pass
    with pytest.raises(UsageError, match="once"):
        await isolation.__aenter__()
    with pytest.raises(UsageError, match="async with"):
        _ = isolation.workspace


@aio
async def test_a_linked_worktree_and_one_in_a_merge_with_conflicts_can_be_copied(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    linked = tmp_path / "linked"
    git(folder, "worktree", "add", "-q", "-b", "side", str(linked))
    (linked / "a.txt").write_text("side\n")
    commit_all(linked)
    (folder / "a.txt").write_text("main\n")
    commit_all(folder)
    with pytest.raises(subprocess.CalledProcessError):
        git(linked, "merge", "main")
    async with isolated(tmp_path, linked) as isolation:
        assert "<<<<<<<" in (isolation.workspace / "a.txt").read_text()
        (isolation.workspace / "a.txt").write_text("merged\n")
        assert (await isolation.apply()).ok
    assert (linked / "a.txt").read_text() == "merged\n"
    assert worktrees(folder) == 2


@aio
async def test_line_ends_modes_and_links_come_back_as_they_are_in_the_copy(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    git(folder, "config", "core.autocrlf", "true")
    (folder / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    commit_all(folder)
    async with isolated(tmp_path, folder) as isolation:
        assert (isolation.workspace / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
        (isolation.workspace / "a.txt").write_bytes(b"one\r\n2\r\n")
        (isolation.workspace / "src" / "b.py").chmod(0o755)
        (isolation.workspace / "link").symlink_to("a.txt")
        assert (await isolation.apply()).ok
    assert (folder / "a.txt").read_bytes() == b"one\r\n2\r\n"
    assert os.access(folder / "src" / "b.py", os.X_OK)
    assert os.readlink(folder / "link") == "a.txt"


def disturb(folder: Path, dice: random.Random) -> None:
    """Do to a folder what people and programs do: make, change, move, swap, remove."""
    names = ["a", "b", "c d", "e.txt", "ü", "x/y", "x/z", "deep/er/f", "src/b.py", "-q", "q'\"q"]
    for _ in range(12):
        path = folder / dice.choice(names)
        match dice.randrange(6):
            case 0 | 1 | 2:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                for above in reversed(path.relative_to(folder).parents[:-1]):
                    if (folder / above).is_file() or (folder / above).is_symlink():
                        (folder / above).unlink()
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.is_symlink():
                    path.unlink()
                path.write_bytes(dice.choice([b"", b"x", b"line\n" * 9, dice.randbytes(300)]))
            case 3 if path.is_file() or path.is_symlink():
                path.unlink()
            case 4 if path.is_file():
                path.chmod(dice.choice([0o644, 0o755]))
            case 5 if path.parent.is_dir() and not os.path.lexists(path):
                path.symlink_to(dice.choice(["a", "nowhere", "x"]))


def everything(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if ".git" in name.parts or (path.is_dir() and not path.is_symlink()):
            continue
        link = os.readlink(path) if path.is_symlink() else ""
        found[str(name)] = link or (path.read_bytes(), os.access(path, os.X_OK))
    return found


@pytest.mark.parametrize("seed", range(3))
@aio
async def test_whatever_is_done_in_the_copy_is_done_to_the_workspace(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    folder = make(tmp_path / "repo")
    disturb(folder, dice)
    git(folder, "add", "-A")
    disturb(folder, dice)
    before = await Snapshot.take(folder)
    async with isolated(tmp_path, folder) as isolation:
        assert everything(isolation.workspace) == everything(folder)
        disturb(isolation.workspace, dice)
        wanted = everything(isolation.workspace)
        applied = await isolation.apply()
    assert applied.ok
    assert everything(folder) == wanted
    # What the patch says that it changed is what the disk shows.
    changed = changes(before, await Snapshot.take(folder))
    assert sorted(one.path for one in changed.files) == sorted(one.path for one in applied.files)


POINTERS = """#!/bin/sh
# Keeps contents outside of the repository, as git-lfs does.
store={store}
if [ "$1" = clean ]; then
  cat > "$store/new" && id=$(cksum < "$store/new" | tr ' ' -) && mv "$store/new" "$store/$id"
  echo "pointer $id"
else
  read -r _ id && cat "$store/$id"
fi
"""


@aio
async def test_filters_of_the_user_run_in_the_copy_and_for_the_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    home.mkdir()
    store.mkdir()
    (home / "pointers").write_text(POINTERS.format(store=store))
    (home / "pointers").chmod(0o755)
    program = home / "pointers"
    (home / ".gitconfig").write_text(
        f'[filter "lfs"]\n\tclean = {program} clean\n\tsmudge = {program} smudge\n\trequired\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    folder = make(tmp_path / "repo")
    # What the repository says of the same filter does not count.
    git(folder, "config", "filter.lfs.clean", f"touch {tmp_path / 'ran'}; cat")
    (folder / ".gitattributes").write_text("*.bin filter=lfs\n")
    (folder / "large.bin").write_text("large\n")
    async with isolated(tmp_path, folder) as isolation:
        copy = isolation.workspace / "large.bin"
        assert copy.read_text() == "large\n"
        assert await isolation.patch() == b""
        copy.write_text("larger\n")
        patch = await isolation.patch()
        assert b"+pointer " in patch and b"larger" not in patch
        assert (await isolation.apply()).ok
    assert (folder / "large.bin").read_text() == "larger\n"
    assert not (tmp_path / "ran").exists()
