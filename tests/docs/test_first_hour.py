"""The page about the first hour shows what `dragoman init` prints, and its options exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragoman.cli.reference import helps
from tests.docs.markdown import ROOT, blocks, prose
from tests.unit.cli.calling import shell_in

PAGE = ROOT / "docs" / "tutorial" / "first-hour.md"


def test_the_beginning_of_init_is_as_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = [block.text for block in blocks(PAGE) if block.info == "text"]
    shell = shell_in(tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("PATH", str(shell.home / "no programs"))
    monkeypatch.setenv("DRAGOMAN_WARM", "0")
    said = shell("init", "--yes")
    assert said.code == 0, said.err
    assert said.out.startswith(shown), said.out


def test_the_options_that_it_names_are_there() -> None:
    text = "\n".join(line for _, line in prose(PAGE))
    known = "\n".join(help for _, help in helps())
    named = set(re.findall(r"`[^`]*?(--[a-z-]+)", text))
    assert {"--yes", "--turns", "--format"} <= named
    assert {option for option in named if option not in known} == set()


def test_the_steps_of_the_page_are_those_of_the_command() -> None:
    steps = [line for _, line in prose(PAGE) if re.match(r"\d\. \*\*", line)]
    assert len(steps) == 4
    source = (ROOT / "src/dragoman/cli/output/init_progress.py").read_text("utf-8")
    for step in steps:
        title = re.findall(r"\*\*(.+?)[.]?\*\*", step)[0]
        assert title in source, title
