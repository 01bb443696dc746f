"""The option table of `run`, `chat`, `delegate` and `explain`, its checks, and completion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import typer

from dragoman.cli.app import app
from dragoman.cli.prompt_options import (
    COMMANDS,
    MAX_NUMBER,
    checked,
    complete_peer,
    complete_variable,
)
from tests.unit.cli.calling import Shell

BAD = os.fsdecode(b"h\xff")


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


def test_peers_and_variables_are_completed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "scout" in complete_peer("sc") and "codex" not in complete_peer("sc")
    monkeypatch.setenv("MY_OWN_KEY", "x")
    assert complete_variable("MY_OWN") == ["MY_OWN_KEY"]


def test_a_broken_configuration_completes_what_it_can(shell: Shell) -> None:
    shell.config.mkdir(parents=True)
    (shell.config / "config.toml").write_text("= broken")
    assert complete_peer("sc") in ([], ["scout"])
