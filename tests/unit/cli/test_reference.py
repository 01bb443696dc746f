"""The page that is made of help texts."""

from __future__ import annotations

import pytest

from dragoman.cli.reference import helps, page


def test_every_command_and_subcommand_has_its_section() -> None:
    paths = [" ".join(path) for path, _ in helps()]
    assert paths[:2] == ["dragoman", "dragoman run"]
    assert {"dragoman peers", "dragoman peers add", "dragoman agents set"} < set(paths)
    text = page()
    assert all(f"\n## {path}\n" in text for path in paths)


def test_the_page_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    before = page()
    monkeypatch.setenv("COLUMNS", "40")
    assert page() == before


def test_the_index_leads_to_every_command_with_one_sentence() -> None:
    index = page().partition("## Index\n")[2].partition("\n## ")[0]
    for path, _ in list(helps())[1:]:
        (row,) = [
            each for each in index.splitlines() if each.startswith(f"| [`{' '.join(path[1:])}`]")
        ]
        assert f"](#{'-'.join(path)}) | " in row and row.count(" | ") == 1
