"""Send uncommitted changes to another machine and fetch the result, over a real sshd."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.far_machine import FarMachine, mounted
from tests.unit.delegation.worktree.repositories import git, make, tree


@pytest.fixture
def repo(far: FarMachine) -> Iterator[Path]:
    """A repository on this side, with changes of every kind."""
    folder = make(far.folder / "near" / f"repo-{os.urandom(4).hex()}")
    (folder / "a.txt").write_text("changed\n")
    git(folder, "add", "a.txt")
    (folder / "a.txt").write_text("changed again\n")
    (folder / "untracked file").write_bytes(b"\0\1\2")
    (folder / "src" / "b.py").unlink()
    (folder / ".env").write_text("SECRET=1\n")
    before = far.cli.cwd
    far.cli.cwd = folder
    yield folder
    far.cli.cwd = before


def send(far: FarMachine, *words: str) -> Path:
    sent = far.cli("hosts", "send", "box", *words)
    assert sent.code == 0, sent.err
    return Path(sent.out.strip())


def work(far: FarMachine, there: Path) -> str:
    """Run a job on the far machine in a directory. Returns its id."""
    words = ("run", "far", "write made.txt", "--approve-all", "--cold", "--format", "quiet")
    far.far_dragoman(*words, "--cwd", str(there))
    listed = far.far_dragoman("jobs", "list", "--all", "--format", "json").out
    job: str = json.loads(listed.splitlines()[0])["job"]
    return job


def status(folder: Path) -> list[str]:
    return git(folder, "status", "--porcelain", "-z").split("\0")


def test_uncommitted_changes_are_sent_unchanged_and_the_result_is_applied(
    far: FarMachine, repo: Path
) -> None:
    before = status(repo)
    there = send(far)
    assert there.is_relative_to(far.home) and there.stat().st_uid == far.uid
    assert not (there / ".env").exists()
    assert (
        far.as_far("git", "-C", str(there), "status", "--porcelain", "-z").out.split("\0") == before
    )
    job = work(far, there)
    far.write(there / "made there", "new\n")
    far.write(there / "a.txt", "changed there\n")
    far.as_far("git", "-C", str(there), "add", "-A")
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    far.as_far("git", "-C", str(there), *identity, "commit", "-qm", "work")
    done = far.cli("hosts", "fetch", "box", job)
    assert done.code == 0, done.err
    for line in ("add     made there", "add     made.txt", "modify  a.txt"):
        assert line in done.out
    (repo / ".env").unlink()
    assert (repo / "untracked file").read_bytes() == b"\0\1\2"
    (repo / "untracked file").unlink()
    (there / "untracked file").unlink()
    assert tree(repo) == tree(there)


def test_the_second_bundle_contains_only_what_is_new(far: FarMachine, repo: Path) -> None:
    (repo / "large").write_bytes(os.urandom(300_000))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "large")
    sizes = []
    for _ in range(2):
        sent = far.cli("hosts", "send", "box")
        assert sent.code == 0, sent.err
        sizes.append(sent.err.split(" to box")[0].split("sent ")[1])
    assert sizes[0].endswith(" MB") and sizes[1].endswith(" kB"), sizes


def test_a_patch_that_no_longer_applies_changes_no_files(far: FarMachine, repo: Path) -> None:
    there = send(far)
    job = work(far, there)
    far.write(there / "a.txt", "theirs\n")
    (repo / "a.txt").write_text("mine, later\n")
    before = status(repo)
    done = far.cli("hosts", "fetch", "box", job)
    assert done.code == 1 and "conflict a.txt" in done.out
    assert (repo / "a.txt").read_text() == "mine, later\n" and status(repo) == before


def test_a_branch_contains_the_sent_files_and_the_changes(far: FarMachine, repo: Path) -> None:
    there = send(far)
    job = work(far, there)
    far.write(there / "new", "new\n")
    before = status(repo)
    done = far.cli("hosts", "fetch", "box", job, "--fetch-branch", "from-box")
    assert done.code == 0, done.err
    assert git(repo, "show", "from-box:new", "from-box:a.txt") == "new\nchanged again\n"
    assert status(repo) == before


def test_a_listed_ignored_file_is_sent_if_the_user_agrees(far: FarMachine, repo: Path) -> None:
    (repo / ".worktreeinclude").write_text(".env\n")
    assert (send(far, "--send-ignored") / ".env").read_text() == "SECRET=1\n"


def test_a_full_disk_on_the_host_is_reported_and_nothing_is_left(
    far: FarMachine, repo: Path
) -> None:
    state = far.home / ".local" / "state" / "dragoman" / "sent"
    far.as_far("mkdir", "-p", str(state))
    (repo / "large").write_bytes(os.urandom(300_000))
    with mounted(state, "-t", "tmpfs", "-o", f"size=64k,uid={far.uid}", "tmpfs"):
        done = far.cli.child("hosts", "send", "box")
        left = list(state.iterdir())
    assert done.code != 0 and "box: the disk there is full" in done.err, done
    assert "free some space there" in done.err
    assert left == []
