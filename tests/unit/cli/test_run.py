"""`dragoman run` as typer has it: what is written in an unusual way arrives anyway."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.cli import run_prompt
from tests.unit.cli.calling import Shell


def test_options_that_are_written_together_arrive(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: dict[str, Any] = {}

    def run(**given: Any) -> int:
        heard.update(given)
        return 5

    monkeypatch.setattr(run_prompt, "run", run)
    said = shell("run", "-vsname", "scout", "--timeout=5", "where?", "--", "agent", "-v")
    assert (said.code, said.out, said.err) == (5, "", "")
    assert (heard["peer"], heard["prompt"], heard["command"]) == (
        "scout",
        ["where?"],
        ("agent", "-v"),
    )
    assert (heard["verbose"], heard["session"], heard["timeout"]) == (True, "name", 5.0)


def test_what_typer_does_not_understand_is_wrong_usage(shell: Shell) -> None:
    said = shell("run", "scout", "hi", "--nope")
    assert (said.code, said.out) == (2, "")
    assert "Usage: dragoman run" in said.err
