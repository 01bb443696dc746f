from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.scout.answers.todos import is_mark
from tests.aio import aio
from tests.unit.scout.asking import Reply, answer


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("a.py", "# TODO: later"),
        ("a.py", "x = 1  # TODO later"),
        ("a.py", "# see below (TODO(ada): x)"),
        ("a.js", "// TODO"),
        ("a.js", "  /* TODO later */"),
        ("a.c", " * TODO: later"),
        ("a.html", "<!-- TODO -->"),
        ("a.md", "- TODO write this"),
        ("notes", "TODO"),
    ],
)
def test_a_mark_is_seen(path: str, line: str) -> None:
    assert is_mark(line, ("TODO",), path)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("a.py", "TODO = 1"),
        ("a.py", 'print("TODO")'),
        ("a.py", "# every TODO is a promise"),
        ("a.py", "# TODOS"),
        ("a.md", "`MY_TODO`"),
    ],
)
def test_a_word_that_is_not_a_mark_is_not(path: str, line: str) -> None:
    assert not is_mark(line, ("TODO",), path)


async def asked(folder: Path, question: str) -> Reply:
    return await answer(folder, folder / ".state", question)


@aio
async def test_todos_are_counted_by_kind_and_filtered(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("# TODO: one\n# FIXME: two\nTODO = 3\n")
    (tmp_path / "b.py").write_text("# TODO: three\n")
    everything = await asked(tmp_path, "list the TODOs")
    assert "There are 3 places in 2 files (2 TODO, 1 FIXME):" in everything.text
    some = await asked(tmp_path, "list the todos in src about ONE")
    assert "There is 1 place about `ONE` in `src` in 1 file" in some.text
    none = await asked(tmp_path, "/todo HACK")
    assert (none.stop, none.text) == ("end_turn", "I found no HACK.")


@aio
async def test_a_missing_directory_is_not_an_answer(tmp_path: Path) -> None:
    reply = await asked(tmp_path, "list the todos in nowhere")
    assert reply.stop == "refusal"
