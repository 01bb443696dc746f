"""`dragoman chat` at a terminal with real agents, of which one takes over from the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.pty_terminal import CTRL_D, READY, Terminal, in_terminal
from tests.peers.agents import QWEN
from tests.peers.codex import CONFIG, WITH_KEY
from tests.peers.commands import COMMAND, living_in, surroundings
from tests.peers.programs import peer_environment

SETTINGS = 'enabled_peers = ["codex", "qwen"]\n[peer.codex]\nenv = ["FAKE_KEY"]\n'


@contextmanager
def fake_model() -> Iterator[str]:
    """The address of a model in a process of its own: this one waits for the terminal."""
    argv = [sys.executable, "-m", "dragoman.testing.fake_model", "--port", "0"]
    with subprocess.Popen(  # noqa: TID251 - it ends with its input
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as model:
        assert model.stdout is not None
        yield model.stdout.readline().strip()


def say(terminal: Terminal, line: str, then: str) -> str:
    """Type a line and wait for a text and the next prompt; what is between them."""
    terminal.type(line + "\r")
    terminal.expect(then)
    return terminal.expect(READY)


def test_qwen_goes_on_with_what_was_said_to_codex(home: Path, workspace: Path) -> None:
    (home / ".config" / "dragoman").mkdir(parents=True)
    (home / ".config" / "dragoman" / "config.toml").write_text(SETTINGS)
    (home / ".codex").mkdir()
    QWEN.configure(home)
    with fake_model() as url:
        (home / ".codex" / "config.toml").write_text(CONFIG.format(url=url, extra=WITH_KEY))
        environment = {**peer_environment(home), **QWEN.provider(url), "FAKE_KEY": "k"}
        environment |= {"TERM": "xterm"}
        argv = [*COMMAND, "chat", "codex"]
        with in_terminal(argv, cwd=workspace, env=surroundings(environment), columns=100) as shown:
            shown.expect(READY)
            say(shown, "/mode workspace-wrte", "did you mean workspace-write?")
            say(shown, "/model gpt-6-sol", "dragoman: model gpt-6-sol")
            say(shown, "the word is plum\nCHUNKS:3", "gpt-6-sol")
            say(shown, "/peer qwne", "did you mean qwen?")
            say(shown, "/peer qwen", "it gets a summary of the conversation")
            say(shown, "hello", "qwen gets a summary of the conversation: 1 message")
            say(shown, "/cost", "2 turns")
            shown.type(CTRL_D)
            assert shown.wait() == 0
    assert living_in(home) == []
