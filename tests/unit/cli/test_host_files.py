"""`dragoman hosts send` and `fetch` as a user types them, with a fake ssh."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli.output import questions, terminal
from tests.unit.broker.client.fake_ssh import fake_ssh
from tests.unit.cli.calling import FOLDERS, Shell
from tests.unit.delegation.worktree.repositories import git, make, tree


@pytest.fixture
def repo(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local repository, and the host `box`, which is this machine with other directories."""
    program = tmp_path / "dragoman"
    lines = [f"export DRAGOMAN_{name}='{tmp_path / 'far' / name.lower()}'" for name in FOLDERS]
    lines.append("export DRAGOMAN_WARM=0")
    program.write_text(
        "\n".join(["#!/bin/sh", *lines, f"exec '{sys.executable}' -m dragoman \"$@\"", ""])
    )
    program.chmod(0o755)
    fake_ssh(tmp_path, monkeypatch)
    assert shell("hosts", "add", "box", "--dragoman", str(program)).code == 0
    folder = make(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder


def send(shell: Shell, *words: str) -> Path:
    said = shell("hosts", "send", "box", *words)
    assert said.code == 0, said
    return Path(said.out.strip())


def work(shell: Shell, there: Path) -> None:
    """Run a job on the host; the fake ssh runs the remote dragoman."""
    program = shell.home.parent / "dragoman"
    words = [str(program), "run", "scout", "--cold", "--format", "quiet", "/help"]
    done = subprocess.run(words, cwd=there, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done


def test_changes_on_the_host_are_applied_here(shell: Shell, repo: Path) -> None:
    (repo / "a.txt").write_text("dirty\n")
    there = send(shell)
    work(shell, there)
    (there / "src" / "b.py").write_text("b = 2\n")
    said = shell("hosts", "fetch", "box")
    assert said.code == 0 and "modify  src/b.py" in said.out, said
    assert tree(repo) == tree(there)
    assert git(repo, "status", "--porcelain").split() == ["M", "a.txt", "M", "src/b.py"]


def test_changes_that_do_not_apply_leave_the_files_unchanged(shell: Shell, repo: Path) -> None:
    there = send(shell)
    work(shell, there)
    (there / "a.txt").write_text("theirs\n")
    (repo / "a.txt").write_text("mine\n")
    said = shell("hosts", "fetch", "box", "last")
    assert said.code == 1 and "conflict a.txt" in said.out and "the patch is saved in" in said.out
    assert (repo / "a.txt").read_text() == "mine\n"


def test_changes_become_a_branch(shell: Shell, repo: Path) -> None:
    there = send(shell)
    work(shell, there)
    (there / "new").write_text("new\n")
    said = shell("hosts", "fetch", "box", "last", "--fetch-branch", "from-box")
    assert said.code == 0 and "branch from-box: " in said.out
    assert git(repo, "show", "from-box:new") == "new\n" and not (repo / "new").exists()


def test_an_empty_result_is_reported(shell: Shell, repo: Path) -> None:
    work(shell, send(shell))
    assert "nothing has changed on box" in shell("hosts", "fetch", "box").err


def test_ignored_files_are_sent_only_if_the_user_agrees(shell: Shell, repo: Path) -> None:
    (repo / ".worktreeinclude").write_text(".env\n")
    (repo / ".env").write_text("PORT=1\n")
    said = shell("hosts", "send", "box")
    assert "not sent: 1 ignored file (.env)" in said.err
    assert not (Path(said.out.strip()) / ".env").exists()
    assert (send(shell, "--send-ignored") / ".env").read_text() == "PORT=1\n"


def test_an_interrupt_ends_the_question_whether_to_send_ignored_files(
    shell: Shell, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / ".worktreeinclude").write_text(".env\n")
    (repo / ".env").write_text("PORT=1\n")

    class Terminal:
        def isatty(self) -> bool:
            return False

        def readline(self) -> str:
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("Ctrl-C did not end the question")

    monkeypatch.setattr(sys, "stdin", Terminal())
    for module in (terminal, questions):
        monkeypatch.setattr(module, "is_interactive", lambda: True)
    said = shell("hosts", "send", "box")
    assert (said.code, said.out) == (130, "")


def test_a_job_that_worked_elsewhere_has_nothing_to_fetch(shell: Shell, repo: Path) -> None:
    work(shell, repo)
    said = shell("hosts", "fetch", "box")
    assert said.code == 2 and "did not work on sent files" in said.err


def test_a_directory_without_a_repository_cannot_be_sent(
    shell: Shell, repo: Path, tmp_path: Path
) -> None:
    said = shell("hosts", "send", "box", "--cwd", str(shell.cwd))
    assert said.code == 2 and "is not in a git repository" in said.err
