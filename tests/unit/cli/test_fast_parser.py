"""What is read without typer is what typer reads; the rest is left to it."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from dragoman.cli import fast_parser, run_prompt
from dragoman.cli.app import app, call
from dragoman.cli.shared_options import ListFormat

PLAIN = [
    ["scout", "where is it?"],
    ["scout"],
    ["scout", "-"],
    ["scout", ""],
    [],
    ["hello", "--", "agent", "--acp", "-s", "--"],
    ["--", "agent"],
    ["hello", "--"],
    ["-s", "one", "codex", "-s", "two", "go on", "--session", "three"],
    ["codex", "--session=a=b", "x"],
    ["codex", "x", "--model=", "--mode", ""],
    ["codex", "x", "-f", "-", "-m", "big", "--timeout", "1e3", "--ttl", "2h", "-v"],
    ["codex", "x", "--image", "a.png", "--image=b.png", "--env", "A", "--env", "B*"],
    ["codex", "x", "--format", "json", "--json-strict", "--cold", "--no-wait", "--fresh"],
    ["codex", "x", "--cwd", "some/where", "--mcp-config", "m.json", "--trace", "t.log"],
    ["codex", "x", "--approve-all", "--approve-reads", "--deny-all", "--verbose"],
    ["codex", "x", "--dialect", "acp", "--file", "notes.txt"],
    ["codex", "x", "--role", "review", "--role=plan"],
]

LEFT_TO_TYPER = [
    ["--help"],
    ["codex", "-h"],
    ["codex", "x", "y"],
    ["codex", "x", "--no-such"],
    ["codex", "x", "-s"],
    ["codex", "x", "-s", "--cold"],
    ["codex", "x", "-sname"],
    ["codex", "x", "-vs", "name"],
    ["codex", "x", "-s=name"],
    ["codex", "x", "--cold=yes"],
    ["codex", "x", "--timeout", "soon"],
    ["codex", "x", "--format", "TEXT"],
]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What typer would have run."""
    calls: list[dict[str, Any]] = []

    def run(**given: Any) -> int:
        calls.append(given)
        return 0

    monkeypatch.setattr(run_prompt, "run", run)
    return calls


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_the_values_are_those_of_typer(heard: list[dict[str, Any]], words: list[str]) -> None:
    given = fast_parser.read(["run", *words])
    assert given is not None
    with pytest.raises(SystemExit):
        call(["run", *words])
    (theirs,) = heard
    # What was not given is None, False or nothing at all.
    assert {name: value for name, value in given.items() if value not in (None, [], False)} == {
        name: value for name, value in theirs.items() if value not in (None, [], False)
    }
    assert given.keys() <= theirs.keys()


@pytest.mark.parametrize("words", LEFT_TO_TYPER, ids=" ".join)
def test_what_is_not_plain_is_left_to_typer(words: list[str]) -> None:
    assert fast_parser.read(["run", *words]) is None


def test_other_commands_and_shells_that_complete_words_are_left_to_typer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fast_parser.read([]) is None
    assert fast_parser.read(["chat", "scout"]) is None
    assert fast_parser.read(["--version"]) is None
    monkeypatch.setenv(fast_parser.COMPLETING, "complete_bash")
    assert fast_parser.read(["run", "scout", "x"]) is None


def test_every_option_of_the_command_is_known_here() -> None:
    group = typer.main.get_command(app)
    context = group.make_context("dragoman", [], resilient_parsing=True)
    command = group.get_command(context, "run")  # type: ignore[attr-defined]
    flags: dict[str, str] = {}
    options: dict[str, str] = {}
    repeated, places = set(), []
    for param in command.params:
        if param.param_type_name == "argument":
            places.append(param.name)
        elif param.is_flag:
            flags |= dict.fromkeys(param.opts, param.name)
        else:
            options |= dict.fromkeys(param.opts, param.name)
            repeated |= {param.name} if param.multiple else set()
    assert tuple(places) == fast_parser.PLACES
    assert flags == fast_parser.FLAGS
    assert options == {word: name for word, (name, _) in fast_parser.OPTIONS.items()}
    assert repeated == fast_parser.REPEATED
    assert fast_parser.FORMATS == tuple(each.value for each in ListFormat)
