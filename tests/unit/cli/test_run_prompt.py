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
    def open_peer(*args: Any, **terms: Any) -> Any:
        agent = ActedAgent()
        agent.answers = answer
        return agent.open_peer(*args, **terms)

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
        ("run", "scout", "hello", "--trace", "missing/t"),
        ("run", "scout", "hello", "--trace", "."),
    ],
)
def test_what_cannot_be_meant_starts_nothing(
    shell: Shell, asked: Asked, words: tuple[str, ...]
) -> None:
    said = shell(*words)
    assert (said.code, said.out) == (2, "")
    assert "what next:" in said.err or "`dragoman " in said.err, "it says what to do"
    assert asked == []


def test_a_trace_that_cannot_be_written_is_named(shell: Shell, asked: Asked) -> None:
    said = shell("run", "scout", "hello", "--trace", "missing/t")
    assert "cannot write the trace file missing/t: No such file or directory" in said.err
    assert "Errno" not in said.err


def test_an_error_on_the_way_is_reported_in_the_format_that_was_asked_for(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **terms: Any) -> Any:
        raise ConnectError("nobody listens there")

    monkeypatch.setattr(run, "open_peer", refuse)
    said = shell("run", "scout", "hello", "--json-strict")
    assert (said.code, said.err) == (1, "")
    assert json.loads(said.out)["error"] == "connect_failed"
    assert "nobody listens there" in shell("run", "scout", "hello").err


# -- a peer with a Python adapter

DESCRIPTOR = """
name = "tool"
title = "Tool"
protocol = "acp"
roles = ["plan"]
adapter = "tool.py"
credentials = {env = ["TOOL_KEY"]}
[[launch]]
command = ["sh"]
"""

ADAPTER = """
import json
from dragoman.client.results import Result
from dragoman.errors import ConnectError
from dragoman.events.words import Outcome

name, protocol, ROLES_CLAIMED, ROLE_PREFIX = "tool", "acp", ["plan"], {{"plan": ""}}

def claims(role):
    return role in ROLES_CLAIMED

async def dispatch(launch, role, text, on_notification=None):
    {body}
"""

TOLD = """told = {
        "role": role, "text": text, "model": launch.model, "mode": launch.mode,
        "env": launch.env, "total": launch.budgets.total, "protocol": launch.way.protocol,
        "cwd": launch.cwd.name, "peer": launch.permit.peer, "for": launch.permit.role,
    }
    return Result(Outcome.OK, json.dumps(told))"""


def adapted(shell: Shell, body: str) -> None:
    folder = shell.config / "peers"
    folder.mkdir(parents=True)
    (folder / "tool.toml").write_text(DESCRIPTOR)
    (folder / "tool.py").write_text(ADAPTER.format(body=body))


def test_an_adapter_is_handed_what_the_plan_says(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted(shell, TOLD)
    monkeypatch.setenv("MINE", "1")
    words = ("--model", "big", "--mode", "code", "--env", "MINE", "--timeout", "7")
    said = shell("run", "tool", "a house", *words, "--dialect", "codex", "--format", "quiet")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert told == {
        "role": "plan",
        "text": "a house",
        "model": "big",
        "mode": "code",
        "env": ["MINE"],
        "total": told["total"],
        "protocol": "codex",
        "cwd": shell.cwd.name,
        "peer": "tool",
        "for": "plan",
    }
    assert 0 < told["total"] <= 7


def test_a_nested_delegation_is_bound_by_the_rules_of_the_role(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted(shell, "return Result(Outcome.OK, launch.way.env.get('DRAGOMAN_CEILING', 'none'))")
    assert shell("run", "tool", "a house", "--format", "quiet").out == "none\n"
    (shell.config / "config.toml").write_text(
        '[[policy.rules]]\naction = "deny"\nrole = "plan"\nkind = "edit"\n'
    )
    monkeypatch.setenv("DRAGOMAN_DEPTH", "1")
    said = shell("run", "tool", "a house", "--format", "quiet")
    assert said.code == 0, said.err
    (rule, *_) = json.loads(said.out)["rules"]
    assert (rule["action"], rule["role"]) == ("deny", [])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return Result(Outcome.OK, 'fine')", 0),
        ("return Result(Outcome.TIMED_OUT, '')", 3),
        ("return Result(Outcome.QUOTA, '')", 8),
        ("raise ConnectError('nobody listens')", 1),
        ("raise KeyError('x')", 1),
    ],
)
def test_the_end_of_an_adapter_has_the_usual_exit_code(shell: Shell, body: str, code: int) -> None:
    adapted(shell, body)
    assert shell("run", "tool", "a house").code == code


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-s", "one"), "opens a new session for every prompt"),
        (("--no-wait",), "a broker cannot continue it"),
    ],
)
def test_what_an_adapter_cannot_be_handed_is_refused_before_it_works(
    shell: Shell, words: tuple[str, ...], why: str
) -> None:
    adapted(shell, "raise SystemExit(7)")
    said = shell("run", "tool", "a house", *words)
    assert said.code == 2
    assert "tool is run by its Python adapter" in said.err and why in said.err


def test_a_file_that_is_mentioned_is_named_to_an_adapter_and_an_image_is_refused(
    shell: Shell,
) -> None:
    adapted(shell, "return Result(Outcome.OK, text)")
    file = shell.cwd / "notes.md"
    file.write_text("x")
    said = shell("run", "tool", "read @notes.md", "--format", "quiet")
    assert said.out == f"read @notes.md\n\n{file.resolve().as_uri()}\n", said.err
    (shell.cwd / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    said = shell("run", "tool", "look", "--image", "x.png")
    assert said.code != 0 and "tool does not accept images" in said.err
