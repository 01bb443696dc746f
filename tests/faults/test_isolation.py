"""Isolation under sudden death: kill -9 at every stage, and cancellation in the middle.

The process that is killed is real, so that it leaves behind what a killed process leaves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from dragoman.delegation.worktree.bundle import pack
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.delegation.worktree.sent_tree import remove_old, unpack
from dragoman.delegation.worktree.sweep import Swept, sweep
from dragoman.errors import ConnectionLost
from dragoman.runs import git as git_module
from dragoman.transports import spawn
from dragoman.transports.process.stream import ProcessStream
from tests.aio import aio
from tests.faults.children import CHILD_TIMEOUT, child, go, heard
from tests.unit.delegation.worktree.repositories import git, make, tree, with_submodule

READY_TIMEOUT = 20.0
"""Seconds for a Python process to start on a busy machine."""

MAKER = """
import asyncio, sys
from pathlib import Path
from dragoman.delegation.worktree import isolation
from dragoman.delegation.worktree.isolation import Isolation

async def main():
    workspace, folder, stage = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    real = isolation.git.demand

    async def demand(args, **options):
        if args[0] == stage:
            print("there", flush=True)
            await asyncio.sleep(600)
        return await real(args, **options)

    isolation.git.demand = demand
    async with Isolation(workspace, folder=folder) as made:
        (made.workspace / "a.txt").write_text("half done\\n")
        (made.workspace / "new.txt").write_text("new\\n")
        if (made.workspace / "lib").exists():
            (made.workspace / "lib" / "a.txt").write_text("half done\\n")
        print("there", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


class Heard:
    def __init__(self) -> None:
        self.there = asyncio.Event()
        self.text = b""

    def data_received(self, data: bytes) -> None:
        self.text += data
        if b"there" in self.text:
            self.there.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.there.set()


async def killed_maker(workspace: Path, folder: Path, stage: str = "") -> None:
    """Let another process make a copy and work in it, then kill that process."""
    source = Path(git_module.__file__).parents[3]
    stream: ProcessStream = await spawn(
        [sys.executable, "-c", MAKER, str(workspace), str(folder), stage],
        env={"PYTHONPATH": str(source)},
    )
    try:
        heard = Heard()
        stream.start(heard)
        async with asyncio.timeout(READY_TIMEOUT):
            await heard.there.wait()
        assert heard.text == b"there\n", stream.stderr_tail()
        os.kill(stream.pid, signal.SIGKILL)
        async with asyncio.timeout(READY_TIMEOUT):
            await stream.wait_exited()
    finally:
        await stream.aclose()


async def swept_in(folder: Path) -> list[Swept]:
    swept: list[Swept] = []
    await sweep(folder, swept.append)
    return swept


@aio
async def test_after_kill_9_a_sweep_removes_the_worktrees_and_keeps_the_work(
    tmp_path: Path,
) -> None:
    folder = with_submodule(tmp_path / "repo")
    (folder / "mine.txt").write_text("uncommitted\n")
    before = tree(folder)
    await killed_maker(folder, tmp_path / "worktrees")
    assert git(folder, "worktree", "list").count("\n") == 2
    swept = await swept_in(tmp_path / "worktrees")
    assert [one.workspace for one in swept] == [str(folder)]
    assert os.listdir(tmp_path / "worktrees") == []
    for repository in (folder, folder / "lib"):
        assert git(repository, "worktree", "list").count("\n") == 1
    assert tree(folder) == before
    assert swept[0].patch is not None
    git(folder, "apply", str(swept[0].patch))
    assert tree(folder) == {
        **before,
        "a.txt": "half done\n",
        "new.txt": "new\n",
        "lib/a.txt": "half done\n",
    }
    assert await swept_in(tmp_path / "worktrees") == []


REMOVER = """
import asyncio, shutil, sys, threading
from pathlib import Path
from dragoman.delegation.worktree import records
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.sent_tree import remove_old
from dragoman.delegation.worktree.sweep import sweep

stage, action, folder, workspace = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
real = records.remove_tree

def remove_tree(path):
    if not (path / "a.txt").exists():
        return real(path)
    # The files of the worktree.
    if stage == "halfway":
        (path / "a.txt").unlink()
    else:
        shutil.rmtree(path)
    print('{"there": true}', flush=True)
    threading.Event().wait()

records.remove_tree = remove_tree

async def isolate():
    async with Isolation(workspace, folder=folder) as made:
        (made.workspace / "a.txt").write_text("half done\\n")
        await made.save()

asyncio.run({
    "isolate": isolate,
    "sweep": lambda: sweep(folder, print),
    "remove old": lambda: remove_old(folder, patches=folder.parent / "patches", max_age=-1),
}[action]())
"""


def killed_remover(stage: str, action: str, folder: Path, workspace: Path) -> None:
    """Let another process begin to remove a worktree, then kill that process."""
    with child(REMOVER, stage, action, folder, workspace) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "there" in line:
                break
        process.kill()
        assert process.wait(CHILD_TIMEOUT) == -signal.SIGKILL


@pytest.mark.parametrize("stage", ["halfway", "deleted"])
@pytest.mark.parametrize("action", ["isolate", "sweep"])
@aio
async def test_after_kill_9_during_a_removal_a_sweep_completes_it_and_reports_the_patch(
    tmp_path: Path, action: str, stage: str
) -> None:
    folder, worktrees = make(tmp_path / "repo"), tmp_path / "worktrees"
    if action == "sweep":
        await killed_maker(folder, worktrees)
    killed_remover(stage, action, worktrees, folder)
    (home,) = (path for path in worktrees.iterdir() if path.is_dir())
    assert len(os.listdir(home)) == (2 if stage == "halfway" else 1)
    (swept,) = await swept_in(worktrees)
    assert swept.workspace == str(folder) and swept.patch is not None
    assert "+half done" in await asyncio.to_thread(swept.patch.read_text)
    assert "deleted file" not in await asyncio.to_thread(swept.patch.read_text)
    assert os.listdir(worktrees) == []
    assert git(folder, "worktree", "list").count("\n") == 1
    assert await swept_in(worktrees) == []


@pytest.mark.parametrize("stage", ["halfway", "deleted"])
@aio
async def test_after_kill_9_during_the_removal_of_a_sent_worktree_it_is_completed(
    tmp_path: Path, stage: str
) -> None:
    far, file, patches = tmp_path / "far", tmp_path / "it.bundle", tmp_path / "patches"
    bundle = await pack(make(tmp_path / "repo"), file)
    sent = await unpack(file, bundle, folder=far)
    (Path(sent.workspace) / "a.txt").write_text("half done\n")
    killed_remover(stage, "remove old", far, Path())
    assert await remove_old(far, patches=patches) == [sent.id]
    assert os.listdir(far / "trees") == []
    (kept,) = patches.iterdir()
    assert "+half done" in kept.read_text() and "deleted file" not in kept.read_text()
    assert await remove_old(far, patches=patches) == []


@pytest.mark.parametrize("stage", ["write-tree", "worktree", "read-tree"])
@aio
async def test_kill_9_while_the_copy_is_made_leaves_nothing_after_a_sweep(
    tmp_path: Path, stage: str
) -> None:
    folder = make(tmp_path / "repo")
    before = tree(folder)
    await killed_maker(folder, tmp_path / "worktrees", stage)
    swept = await swept_in(tmp_path / "worktrees")
    assert [one.patch for one in swept] == [None]
    assert os.listdir(tmp_path / "worktrees") == []
    assert not (folder / ".git" / "worktrees").exists()
    assert tree(folder) == before
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        assert tree(isolation.workspace) == before


@aio
async def test_a_sweep_leaves_the_worktree_of_a_living_process_alone(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        assert await swept_in(tmp_path / "worktrees") == []
        assert tree(isolation.workspace) == tree(folder)


@aio
async def test_two_jobs_in_one_repository_do_not_see_each_other(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    state = tmp_path / "worktrees"
    async with Isolation(folder, folder=state) as one, Isolation(folder, folder=state) as other:
        (one.workspace / "a.txt").write_text("first\n")
        (other.workspace / "a.txt").write_text("second\n")
        assert (await one.apply()).ok
        lost = await other.apply()
    assert [conflict.path for conflict in lost.conflicts] == ["a.txt"]
    assert (folder / "a.txt").read_text() == "first\n"
    assert lost.kept is not None
    assert "+second" in await asyncio.to_thread(Path(lost.kept).read_text)
    assert git(folder, "worktree", "list").count("\n") == 1


@pytest.mark.parametrize("stage", ["write-tree", "worktree", "read-tree"])
@aio
async def test_a_cancellation_while_the_copy_is_made_leaves_nothing(
    tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    reached = asyncio.Event()
    real = git_module.demand

    async def demand(args: tuple[str, ...], **options: object) -> object:
        answer = await real(args, **options)  # type: ignore[arg-type]
        if args[0] == stage:
            reached.set()
            await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(git_module, "demand", demand)

    async def work() -> None:
        async with Isolation(folder, folder=tmp_path / "worktrees"):
            raise AssertionError("it must not come so far")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(work())
        async with asyncio.timeout(READY_TIMEOUT):
            await reached.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # A second cancel must not break the clean-up of the first.
    assert task.cancelled()
    assert os.listdir(tmp_path / "worktrees") == []
    assert git(folder, "worktree", "list").count("\n") == 1


@aio
async def test_a_cancelled_job_keeps_its_work_as_a_patch(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    working = asyncio.Event()

    async def work() -> None:
        async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
            (isolation.workspace / "a.txt").write_text("half done\n")
            working.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(work())
        async with asyncio.timeout(READY_TIMEOUT):
            await working.wait()
        task.cancel()
    assert os.listdir(tmp_path / "worktrees") == []
    (kept,) = (tmp_path / "patches").iterdir()
    assert "+half done" in kept.read_text()
    assert "half done" not in (folder / "a.txt").read_text()


HOLDER = """
import asyncio, sys
from dragoman.delegation.worktree.scratch import scratch_folder

async def hold():
    async with scratch_folder("copy") as folder:
        (folder / "index").write_text("x")
        print('{"there": true}', flush=True)
        sys.stdin.readline()

asyncio.run(hold())
"""


@aio
async def test_the_scratch_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with child(HOLDER) as killed:
        heard(killed)
        first = tmp_path / os.listdir(tmp_path)[0]
        with child(HOLDER) as living:
            heard(living)
            assert first.exists()
            killed.kill()
            killed.wait(CHILD_TIMEOUT)
            assert first.exists()
            (second,) = {tmp_path / name for name in os.listdir(tmp_path)} - {first}
            async with scratch_folder("copy"):
                assert (first.exists(), second.exists()) == (False, True)
            go([living])
            assert living.wait(CHILD_TIMEOUT) == 0
    assert os.listdir(tmp_path) == []
