"""The option table of `run`, `chat`, `delegate` and `explain`, and its checks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from dragoman.cli import completions, prompt_options, run_prompt
from dragoman.cli.app import app, call
from dragoman.cli.prompt_options import (
    COMMANDS,
    FORMATS,
    MAX_NUMBER,
    CommandOption,
    Duration,
    checked,
)

BAD: Final = os.fsdecode(b"h\xff")
"""A word that is not UTF-8 text."""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_one_name_and_a_help_text_that_is_a_sentence(command: str) -> None:
    options = COMMANDS[command]
    assert all(option.help.endswith(".") for option in options)
    names = [option.name for option in options]
    words = [word for option in options if not option.argument for word in option.words]
    assert len(set(names)) == len(names) and len(set(words)) == len(words)


@pytest.mark.parametrize("command", COMMANDS)
def test_typer_has_the_options_of_the_table_and_no_others(command: str) -> None:
    group = typer.main.get_command(app)
    context = group.make_context("dragoman", [], resilient_parsing=True)
    params = group.get_command(context, command).params  # type: ignore[attr-defined]
    assert [
        (param.name, param.param_type_name == "argument", param.help, param.metavar)
        for param in params
    ] == [
        (option.name, option.argument, option.help, option.metavar) for option in COMMANDS[command]
    ]
    for param, option in zip(params, COMMANDS[command], strict=True):
        if not option.argument:
            assert tuple(param.opts) == option.words and not param.secondary_opts
            assert (param.is_flag, param.multiple) == (option.kind is bool, option.repeat)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("text", "text"),
        ("", ""),
        ("\u00fc", "\u00fc"),
        (MAX_NUMBER - 1, "9"),
        (1.5, "1.5"),
        (True, True),
        (Path(BAD), BAD),
        (Path(), "."),
    ],
)
def test_what_can_be_used_stays_as_it_is(value: Any, word: object) -> None:
    assert checked(value, word) == value


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (BAD, BAD),
        (MAX_NUMBER, "1"),
        (-MAX_NUMBER, "1"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (Path(), ""),
    ],
)
def test_what_no_command_can_use_is_refused(value: Any, word: object) -> None:
    with pytest.raises(ValueError):
        checked(value, word)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_completion_of_the_table_is_a_function(command: str) -> None:
    named = [option.complete for option in COMMANDS[command] if option.complete]
    assert named and all(callable(getattr(completions, f"complete_{name}")) for name in named)


OPTIONS: Final = [option for option in COMMANDS["run"] if not option.argument]

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
    int: (["7", " 7 ", "0"], ["soon", "", "1.5", "1" * 30]),
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
    return prompt_options.parse_run(["run", *words])


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
    assert prompt_options.parse_run(["run", *words]) is None


def test_other_commands_and_shells_that_complete_words_are_left_to_typer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert prompt_options.parse_run([]) is None
    assert prompt_options.parse_run(["chat", "scout"]) is None
    assert prompt_options.parse_run(["--version"]) is None
    monkeypatch.setenv(prompt_options.COMPLETING, "complete_bash")
    assert prompt_options.parse_run(["run", "scout", "x"]) is None
