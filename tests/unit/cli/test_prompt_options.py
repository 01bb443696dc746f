"""The options of `run`, `chat` and `delegate`, and what a shell completes."""

from __future__ import annotations

from typing import get_args

import pytest

from dragoman.cli import prompt_options
from dragoman.cli.prompt_options import complete_peer, complete_variable
from tests.unit.cli.calling import Shell


def test_every_option_has_a_help_text_that_is_a_sentence() -> None:
    infos = [
        info
        for value in vars(prompt_options).values()
        for info in get_args(value)[1:]
        if hasattr(info, "param_decls")
    ]
    assert len(infos) > 20
    assert all(info.help.endswith(".") for info in infos)


def test_peers_and_variables_are_completed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "scout" in complete_peer("sc") and "codex" not in complete_peer("sc")
    monkeypatch.setenv("MY_OWN_KEY", "x")
    assert complete_variable("MY_OWN") == ["MY_OWN_KEY"]


def test_a_broken_configuration_completes_what_it_can(shell: Shell) -> None:
    shell.config.mkdir(parents=True)
    (shell.config / "config.toml").write_text("= broken")
    assert complete_peer("sc") in ([], ["scout"])
