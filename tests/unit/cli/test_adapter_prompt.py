"""`dragoman run` with an adapter: what it is handed, and what becomes of its end."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.calling import Shell

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


def peer(shell: Shell, body: str) -> None:
    folder = shell.config / "peers"
    folder.mkdir(parents=True)
    (folder / "tool.toml").write_text(DESCRIPTOR)
    (folder / "tool.py").write_text(ADAPTER.format(body=body))


def test_an_adapter_is_handed_what_the_plan_says(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer(shell, TOLD)
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
    peer(shell, "return Result(Outcome.OK, launch.way.env.get('DRAGOMAN_CEILING', 'none'))")
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
    peer(shell, body)
    assert shell("run", "tool", "a house").code == code


@pytest.mark.parametrize("words", [("-s", "one"), ("--no-wait",), ("--image", "x.png")])
def test_what_an_adapter_cannot_be_handed_is_refused_before_it_is_loaded(
    shell: Shell, words: tuple[str, ...]
) -> None:
    peer(shell, "return 1 / 0")
    (shell.config / "peers" / "tool.py").write_text("1 / 0")
    said = shell("run", "tool", "a house", *words)
    assert said.code == 2
    assert "tool is run by its Python adapter" in said.err and words[0].strip("-") in said.err
