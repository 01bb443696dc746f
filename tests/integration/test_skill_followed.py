"""The skill is tried: a model that follows its text literally gets what the text promises.

Everything is real but the models behind the peers: `dragoman` in a shell, in folders of its own,
and peers that are programs on the PATH. What came of a command is looked up outside of dragoman
wherever that can be.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.delegated_peers import PROGRAM, read_lines
from tests.integration.skill_model import Model, shell

AGENT_FILE = "---\nname: painter  # kept\n---\nYou paint.\n"


@pytest.fixture(scope="module")
def machine() -> Iterator[Cli]:
    """A machine with Claude and Gemini, as far as dragoman can tell, and an agent nobody knows."""
    with warm_cli() as cli:
        programs = cli.home / "bin"
        programs.mkdir()
        # A broker takes a while to start, so only what cannot be done without one has it.
        cli.extra["DRAGOMAN_WARM"] = "0"
        # Agents that are really there shall be neither found nor asked.
        cli.extra["PATH"] = str(programs)
        git = shutil.which("git")
        assert git is not None
        install(programs / "git", git, arguments='"$@"')
        install(programs / "dragoman", sys.executable, "-m", "dragoman", arguments='"$@"')
        for name, program in (("claude", "claude-agent-acp"), ("gemini", "gemini")):
            install(programs / program, sys.executable, str(PROGRAM), name, str(cli.home), "ok")
        install(programs / "my-agent", sys.executable, "-m", "dragoman.testing.chaos")
        install(programs / "pytest", "/bin/sh", "-c", "test -f done.txt")
        (cli.cwd / "agents").mkdir()
        (cli.cwd / "agents" / "painter.md").write_text(AGENT_FILE)
        (cli.cwd / "app.py").write_text("old = 1\n")
        assert shell(cli, "git init -q && git add app.py").code == 0
        (cli.cwd / "app.py").write_text("new = 2\n")
        yield cli


@pytest.fixture(scope="module")
def knowing(machine: Cli) -> Model:
    """A model that has read the text, and has asked which peers there are."""
    model = Model(machine)
    model.begin()
    model.read("Discover")
    model.follow("dragoman peers --format json")
    return model


@pytest.fixture
def model(knowing: Model) -> Iterator[Model]:
    """One for each test. At the end of its section there is nothing that it has not done."""
    behave(knowing.cli, "ok")
    model = replace(knowing, rest=[*knowing.rest])
    yield model
    model.close()


def install(path: Path, *words: str, arguments: str = "") -> None:
    path.write_text(f"#!/bin/sh\nexec {shlex.join(words)} {arguments}\n")
    path.chmod(0o755)


def behave(cli: Cli, how: str) -> None:
    """Say how Claude does its work from now on."""
    (cli.home / "claude.how").write_text(how)


def prompts(cli: Cli, name: str) -> list[str]:
    return read_lines(cli.home / f"{name}.prompts")


def settings(cli: Cli) -> dict[str, Any]:
    return tomllib.loads((cli.home / "config_home" / "config.toml").read_text())


def test_every_section_of_the_text_is_tried_here(knowing: Model) -> None:
    tried = ["Discover", "Run", "Delegate", "Add a peer", "Change the peer of an agent file"]
    assert [*knowing.sections] == [*tried, "Exit codes"]


def test_it_discovers_who_is_there_and_who_would_be_asked(model: Model) -> None:
    installed = {name for name, peer in model.peers.items() if peer["installed"]}
    assert installed == {"claude", "gemini", "scout"}
    assert "Gemini CLI (gemini)" in model.follow("peers show gemini").out
    assert "claude" in model.follow("explain review").out
    assert "claude: " in model.follow("doctor").out


def test_it_runs_one_agent_with_leave_to_change_files_and_hears_the_answer(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.read("Run")
    behave(model.cli, "ask")
    done = model.follow('run codex "fix the failing test')
    assert done.out == "written\n"
    (model.cli.cwd / "done.txt").unlink()
    model.vary(" --approve-all", "", code=5)
    assert not (model.cli.cwd / "done.txt").exists()
    assert "+new = 2\n" in model.follow('git diff | dragoman run gemini "review this change"').out
    assert prompts(model.cli, "gemini")[-1].startswith("review this change")

    monkeypatch.setitem(model.cli.extra, "DRAGOMAN_WARM", "1")
    behave(model.cli, "ok")
    model.follow("--no-wait")
    assert model.job in model.follow("jobs list").out
    assert "claude did: write the changelog" in model.follow("jobs result JOB --wait").out
    behave(model.cli, "hang")
    model.job = model.cli("run", "claude", "think", "--no-wait").out.strip()
    model.follow("jobs cancel JOB")
    assert "[cancelled]" in model.cli("jobs", "result", model.job, "--wait").err


def test_it_delegates_to_who_was_enabled_and_the_check_decides(model: Model) -> None:
    model.read("Delegate")
    model.follow("peers enable codex")
    assert settings(model.cli)["enabled_peers"] == ["claude"]
    done = model.follow("delegate review")
    assert done.out == "claude did: look for races in src/pool.py\n"
    assert "attempt 1: claude [it claims review" in done.err
    nobody = model.vary("delegate review", "delegate debug", code=7)
    assert "no peer can be used for debug" in nobody.err

    behave(model.cli, "ask")
    done = model.follow("delegate execute")
    assert done.out == "written\n" and (model.cli.cwd / "done.txt").exists()
    (model.cli.cwd / "done.txt").unlink()
    behave(model.cli, "ok")
    assert "check failed" in model.vary("add a", "think of a", code=1).err


def test_it_adds_a_peer_which_is_verified_described_enabled_and_asked(model: Model) -> None:
    model.read("Add a peer")
    assert "ok    handshake" in model.follow("peers add mine").out
    written = tomllib.loads((model.cli.home / "config_home/peers/mine.toml").read_text())
    assert written["launch"] == [{"command": ["my-agent", "--acp"]}]
    assert (written["roles"], written["verified"]) == (["review", "research"], True)
    model.follow("peers enable mine")
    assert "mine" in settings(model.cli)["enabled_peers"]
    done = model.cli("delegate", "research", "hello", "--strict", "--format", "quiet")
    assert done.out == "You said: hello\n"


def test_it_rewires_an_agent_file_whose_work_then_goes_elsewhere(model: Model) -> None:
    file = model.cli.cwd / "agents" / "painter.md"
    assert model.cli("peers", "enable", "claude").code == 0
    model.read("Change the peer of an agent file")
    model.follow("agents list")
    model.follow("agents set codex-execute")
    assert file.read_text() == AGENT_FILE.replace("kept\n", "kept\ndelegate_to: claude-execute\n")
    model.follow("agents validate")
    assert "claude did: You paint." in model.follow("delegate --agent").out
    assert prompts(model.cli, "claude")[-1] == "You paint.\n\nadd a --dry-run flag"
    model.follow("agents unset")
    assert file.read_text() == AGENT_FILE
