"""Every command on the page "Work on another machine" works, in the order of the page."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from dragoman.catalogue.load import built_in
from tests.docs.markdown import ROOT, blocks
from tests.hosts.far_machine import FarMachine
from tests.hosts.test_hosts_command import INSTALLED
from tests.hosts.test_hosts_command import empty as empty
from tests.hosts.test_hosts_files import repo as repo
from tests.hosts.test_hosts_wheels import prepared as prepared
from tests.unit.delegation.worktree.repositories import git

PAGE = ROOT / "docs" / "how-to" / "work-on-another-machine.md"

SKIPPED = ("--destination", "--ssh-option=-p")
"""Options in lines that do not apply to the test machine."""

STOP = ("broker", "stop", "--all")


def lines() -> list[list[str]]:
    """The commands of the page, in order."""
    found = [
        shlex.split(line, comments=True)
        for block in blocks(PAGE)
        if block.info == "sh"
        for line in block.text.splitlines()
    ]
    return [words for words in found if not any(each in words for each in SKIPPED)]


@pytest.mark.timeout(300)
def test_every_command_on_the_page_works_in_order(
    empty: FarMachine, repo: Path, prepared: Path
) -> None:
    far = empty
    project = far.home / "project"
    places = {"/home/me/project": str(project), ".": str(prepared)}
    far.write(project / "main.py", "def main():\n    pass\n")
    far.write(far.work / "empty", "")
    done: list[str] = []
    try:
        for words in lines():
            words = [places.get(word, word) for word in words]
            out = _follow(far, repo, words, done)
            if words[1:3] == ["hosts", "send"]:
                places["WORKTREE"] = out.strip()
            done.append(" ".join(words[:4]))
    finally:
        far.as_far(str(far.home / INSTALLED / "current" / "bin" / "dragoman"), *STOP, check=False)
    assert len(done) >= 14, done
    assert "No machines are set up" in far.cli("hosts").err


def _follow(far: FarMachine, repo: Path, words: list[str], before: list[str]) -> str:
    """Run one line, check what it did, and return what it printed."""
    if words[0] == "ssh":
        subprocess.run(["ssh", "-F", str(far.ssh_config), *words[1:]], check=True)
        return ""
    words = [_said(word) for word in words[1:]]
    if words[:2] == ["hosts", "bootstrap"]:
        words += ["--python", far.python]
    if "run" in words or "delegate" in words:
        # There is no terminal at which to ask.
        words.append("--approve-all")
    said = far.cli.child(*words)
    # The first check runs before dragoman is installed, and says so.
    first_check = words[1] == "check" and "dragoman hosts check box" not in before
    assert said.code == int(first_check), (words, said.out, said.err)
    if words[:2] == ["hosts", "bootstrap"]:
        _add_agent(far)
    if "--no-wait" in words:
        job = said.out.split()[0]
        assert far.cli.child("jobs", "result", job, "--wait", "--host", "box").code == 0
    if words[0] == "explain":
        assert "1. mine@box: it claims execute; on the host box" in said.out
    if "delegate" in words:
        assert "attempt 1: mine" in said.err
    if "--fetch" in words:
        assert (repo / "made.txt").read_text() == "written on the far machine\n"
        git(repo, "clean", "-fdq", "made.txt", "prompts")
    return said.out


def _said(word: str) -> str:
    """Replace the agent by the one of the tests, and tasks by a prompt that it understands."""
    if word in ("codex", "codex@box"):
        return word.replace("codex", "mine")
    tasks = ("fix the failing test", "port it to the new API")
    return "write made.txt" if word in tasks else word


def _add_agent(far: FarMachine) -> None:
    """Install an agent on the machine, with the roles of the one that the page names."""
    known = {each.descriptor.name: each.descriptor for each in built_in()}
    roles = json.dumps(known["codex"].roles)
    python = far.home / INSTALLED / "current" / "bin" / "python"
    agent = far.write(far.home / "agent.py", (Path(__file__).with_name("far_agent.py")).read_text())
    command = f'["{python}", "{agent}", "{far.home}"]'
    far.write(
        far.home / ".config" / "dragoman" / "peers" / "mine.toml",
        f'name = "mine"\ntitle = "mine"\nprotocol = "acp"\nroles = {roles}\n'
        f"[[launch]]\ncommand = {command}\n",
    )
