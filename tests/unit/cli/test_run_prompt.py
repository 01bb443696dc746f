"""What `dragoman run` does: which words are the peer, the prompt, the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.client.results import Result
from dragoman.errors import ConnectError
from dragoman.events.words import Outcome
from dragoman.runs import run
from tests.unit.cli.acting import ActedAgent, ActedTurn
from tests.unit.cli.calling import Shell

Asked = list[Any]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What acted agents were asked for: the way to each and the prompt."""
    heard: Asked = []

    def answer(turn: ActedTurn) -> Result:
        (way,) = turn.agent.ways
        heard.append((way.name, turn.prompt[0].text))
        return Result(Outcome.OK, "fine")

    monkeypatch.setattr(run, "open_peer", _opener(answer))
    return heard


def _opener(answer: Callable[[ActedTurn], Result]) -> Callable[..., Any]:
    def open_peer(way: Any, **terms: Any) -> Any:
        agent = ActedAgent()
        agent.answers = answer
        return agent.open_peer(way, **terms)

    return open_peer


def test_a_peer_comes_first_and_then_the_prompt(shell: Shell, asked: Asked) -> None:
    said = shell("run", "scout", "where is it?", "--format", "quiet")
    assert (said.code, said.out) == (0, "fine\n")
    assert asked == [("scout", "where is it?")]


def test_with_a_command_line_the_only_word_is_the_prompt(shell: Shell, asked: Asked) -> None:
    assert shell("run", "hello", "--", "my-agent", "--acp", "hello").code == 0
    assert asked == [("my-agent", "hello")]


def test_a_role_is_one_of_the_peers(shell: Shell, asked: Asked) -> None:
    assert shell("run", "scout", "where is it?", "--role", "exploration").code == 0
    assert asked == [("scout", "where is it?")]
    said = shell("run", "scout", "where is it?", "--role", "nonesuch")
    assert said.code == 2 and "does not claim the role 'nonesuch'" in said.err
    said = shell("run", "hello", "--role", "plan", "--", "my-agent")
    assert said.code == 2 and "--role needs a peer that has roles" in said.err
    assert len(asked) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--"),
        ("run", "hello", "--"),
        ("run", "codex", "hello", "--", "agent"),
        ("run", "scout", ""),
        ("run", "scout", "hello", "--image", "missing.png"),
    ],
)
def test_what_cannot_be_meant_starts_nothing(
    shell: Shell, asked: Asked, words: tuple[str, ...]
) -> None:
    said = shell(*words)
    assert (said.code, said.out) == (2, "")
    assert "what next:" in said.err
    assert asked == []


def test_an_error_on_the_way_is_told_in_the_format_that_was_asked_for(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(way: Any, **terms: Any) -> Any:
        raise ConnectError("nobody listens there")

    monkeypatch.setattr(run, "open_peer", refuse)
    said = shell("run", "scout", "hello", "--json-strict")
    assert (said.code, said.err) == (1, "")
    assert json.loads(said.out)["error"] == "connect_failed"
    assert "nobody listens there" in shell("run", "scout", "hello").err
