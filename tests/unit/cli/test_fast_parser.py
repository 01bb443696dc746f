"""What is read without typer is what typer reads; the rest is left to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest

from dragoman.cli import fast_parser, run_prompt
from dragoman.cli.app import call
from dragoman.cli.prompt_options import COMMANDS, FORMATS, CommandOption, Duration

OPTIONS: Final = [option for option in COMMANDS["run"] if not option.argument]

BAD: Final = os.fsdecode(b"h\xff")
"""A word that is not UTF-8 text."""

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
    ["codex", "x", "--no-such"],
    ["codex", "x", "-s"],
    ["codex", "x", "-s", "--cold"],
    ["codex", "x", "-sname"],
    ["codex", "x", "-vs", "name"],
    ["codex", "x", "-s=name"],
    ["codex", "x", "--cold=yes"],
    ["codex", "x", "--timeout", "soon"],
    ["codex", "x", "--format", "TEXT"],
    [BAD, "x"],
]


VALUES: Final[dict[object, tuple[list[str], list[str]]]] = {
    str: (["name", "", "a=b", "ü"], [BAD]),
    Path: (["some/file", "-", BAD], [""]),
    Duration: (["2.5", "90s", "1.5h", "1e3", " 7 "], ["soon", "", "inf", "nan", "1,5", "2y"]),
    float: (["2.5", "1e3", " 7 "], ["soon", "", "inf", "nan", "1,5"]),
    FORMATS: (["text", "json", "quiet"], ["TEXT", "", "xml"]),
}
"""Words for each kind of option, or its choices: those that make a value, and those that do not."""


class FullParser:
    """Typer, with the values that it makes instead of a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._runs: list[dict[str, Any]] = []
        self._capsys = capsys

        def run(**given: Any) -> int:
            self._runs.append(given)
            return 0

        monkeypatch.setattr(run_prompt, "run", run)

    def values(self, words: list[str]) -> dict[str, Any] | None:
        """The values of a `run` line; None if it is refused."""
        self._runs.clear()
        with pytest.raises(SystemExit) as left:
            call(["run", *words])
        assert left.value.code == (0 if self._runs else 2)
        return self._runs[0] if self._runs else None

    def refusal(self, words: list[str]) -> str:
        """What is said of a `run` line that cannot be parsed."""
        self._capsys.readouterr()
        assert self.values(words) is None
        return self._capsys.readouterr().err


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> FullParser:
    return FullParser(monkeypatch, capsys)


def fast(words: list[str]) -> dict[str, Any] | None:
    return fast_parser.read(["run", *words])


def option_id(option: CommandOption) -> str:
    return option.name


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_the_values_are_those_of_typer(full: FullParser, words: list[str]) -> None:
    given = fast(words)
    assert given is not None
    assert given == full.values(words)


@pytest.mark.parametrize("option", OPTIONS, ids=option_id)
def test_every_option_has_the_same_value_in_both_parsers(
    full: FullParser, option: CommandOption
) -> None:
    spellings: list[list[str]] = []
    if option.kind is bool:
        spellings += [[word] for word in option.words]
    else:
        good, _ = VALUES[option.choices or option.kind]
        spellings += [[word, value] for word in option.words for value in good]
        spellings += [[f"{option.words[0]}={value}"] for value in good]
    lines = [
        *([*words, "codex", "x"] for words in spellings),
        *(["codex", *words, "x"] for words in spellings),
        *(["x", *words, "--", "agent", *words] for words in spellings),
        # Repeated: each counts, or the last one does.
        *(["codex", "x", *words, *spellings[-1]] for words in spellings),
    ]
    for words in lines:
        given = fast(words)
        assert given is not None, words
        assert given == full.values(words), words
        assert given[option.name] != option.initial, words


@pytest.mark.parametrize("option", OPTIONS, ids=option_id)
def test_what_typer_refuses_of_an_option_is_never_taken(
    full: FullParser, option: CommandOption
) -> None:
    long = option.words[0]
    if option.kind is bool:
        lines = [["codex", "x", f"{long}={value}"] for value in ("yes", "")]
    else:
        _, bad = VALUES[option.choices or option.kind]
        lines = [["codex", "x", word, value] for word in option.words for value in bad]
        lines += [["codex", "x", f"{long}={value}"] for value in bad]
        lines += [["codex", "x", word] for word in option.words]
        lines += [["codex", word, "--", "x"] for word in option.words]
        lines += [
            ["codex", "x", word, VALUES[option.choices or option.kind][0][0], word]
            for word in option.words
        ]
    for words in lines:
        assert fast(words) is None, words
        refusal = full.refusal(words)
        assert any(word in refusal for word in option.words), (words, refusal)


@pytest.mark.parametrize("option", OPTIONS, ids=option_id)
def test_unusual_spellings_have_the_value_of_typer_or_none(
    full: FullParser, option: CommandOption
) -> None:
    values = [] if option.kind is bool else VALUES[option.choices or option.kind][0]
    lines = [[word[:-1]] for word in option.words]
    lines += [[f"{word}{value}"] for word in option.words for value in values]
    lines += [[f"{word}={value}"] for word in option.words for value in values]
    lines += [[word, other] for word in option.words for other in ("--cold", "-v", "-x", "-1")]
    lines += [[f"-v{option.short[1:]}", *values[:1]]] if option.short else []
    for words in (["codex", "x", *line] for line in lines):
        given = fast(words)
        assert given is None or given == full.values(words), words


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
