"""`--send` and `--fetch` with commands on another machine, typed as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hosts.far_machine import FarMachine
from tests.hosts.test_hosts_files import repo as repo
from tests.unit.delegation.worktree.repositories import git, make

WRITE = "write made.txt"


def test_a_run_works_on_the_sent_files_and_its_changes_are_applied(
    far: FarMachine, repo: Path
) -> None:
    before = git(repo, "status", "--porcelain")
    words = ("run", "far", WRITE, "--approve-all", "--send", "--fetch", "--format", "quiet")
    done = far.cli.child("--host", "box", *words)
    assert done.code == 0, done.err
    assert done.out == "wrote made.txt\n"
    assert "add     made.txt" in done.err
    assert (repo / "made.txt").read_text() == "written on the far machine\n"
    assert (repo / "a.txt").read_text() == "changed again\n"
    after = git(repo, "status", "--porcelain")
    assert set(after.splitlines()) - set(before.splitlines()) == {"?? made.txt", "?? prompts"}


def test_a_delegation_works_on_the_sent_files_and_becomes_a_branch(
    far: FarMachine, repo: Path
) -> None:
    words = ("delegate", "review", WRITE, "--approve-all", "--send", "--fetch-branch", "from-box")
    done = far.cli.child(*words, "--host", "box")
    assert done.code == 0, (done.out, done.err)
    assert git(repo, "show", "from-box:made.txt") == "written on the far machine\n"
    assert not (repo / "made.txt").exists()


def test_a_branch_that_cannot_be_created_is_rejected_before_the_work(
    far: FarMachine, repo: Path
) -> None:
    git(repo, "branch", "taken")
    words = ("run", "far", WRITE, "--approve-all", "--send", "--host", "box")
    done = far.cli.child(*words, "--fetch-branch", "taken")
    assert done.code == 2 and "already exists" in done.err
    origin = make(far.folder / "near" / f"{repo.name}-origin")
    git(repo, "submodule", "add", "-q", str(origin), "lib")
    git(repo, "commit", "-qm", "a submodule")
    done = far.cli.child(*words, "--fetch-branch", "new")
    assert done.code == 2 and "can only be fetched as a patch" in done.err
    assert far.prompts() == []
    assert not any(far.home.glob(".local/state/dragoman/sent/trees/*/repo*/lib"))


def test_the_changes_of_a_job_without_wait_are_fetched_later(far: FarMachine, repo: Path) -> None:
    words = ("run", "far", WRITE, "--approve-all", "--send", "--no-wait")
    done = far.cli.child(*words, "--host", "box")
    assert done.code == 0, done.err
    job = done.out.split()[0]
    waited = far.cli.child("jobs", "result", job, "--wait", "--host", "box")
    assert waited.code == 0, waited.err
    fetched = far.cli.child("--host", "box", "jobs", "fetch", job)
    assert fetched.code == 0, fetched.err
    assert (repo / "made.txt").exists()


def test_the_changes_of_a_running_job_are_not_fetched(far: FarMachine, repo: Path) -> None:
    done = far.cli.child("run", "far", "wait", "--send", "--no-wait", "--host", "box")
    job = done.out.split()[0]
    try:
        fetched = far.cli.child("jobs", "fetch", job, "--host", "box")
        assert fetched.code == 2 and "is still running" in fetched.err
    finally:
        assert far.cli.child("jobs", "cancel", job, "--host", "box").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "far", "x", "--send"), "add --host"),
        (("run", "far", "x", "--fetch", "--host", "box"), "--fetch needs --send"),
        (("chat", "far", "--send", "--host", "box"), "can only be used with run and delegate"),
    ],
)
def test_file_options_without_the_options_they_need_are_rejected(
    far: FarMachine, repo: Path, words: tuple[str, ...], said: str
) -> None:
    done = far.cli(*words)
    assert done.code == 2 and said in done.err


def test_json_output_is_not_mixed_with_the_report_of_fetch(far: FarMachine, repo: Path) -> None:
    words = ("run", "far", WRITE, "--approve-all", "--send", "--fetch", "--format", "json")
    done = far.cli.child(*words, "--host", "box")
    assert done.code == 0, done.err
    assert [json.loads(line)["type"] for line in done.out.splitlines()][-1] == "Result"
