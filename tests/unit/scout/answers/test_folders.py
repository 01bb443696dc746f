from __future__ import annotations

from pathlib import Path

import pytest

from tests.aio import aio
from tests.unit.scout.asking import asked, project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "README.md": "# Demo\n\n[![badge](x)]\n\nIt is for looking at.\nAnd more.\n\nRest.\n",
        "src/app.py": "".join(f"line_{n} = {n}\n" for n in range(1, 1001)),
        "src/empty.py": "",
        "src/one/same.py": "x = 1\n",
        "src/two/same.py": "y = 1\n",
        "tests/test_app.py": "from src import app\n",
    }
    return project(tmp_path, files)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("where is app.py?", "1. `src/app.py:1` (by its name"),
        ("read src/empty.py", "`src/empty.py` is empty."),
        ("read src/app.py:3-4", "`src/app.py:3` to line 4 of 1,000:\n\n```python\nline_3"),
        ("read app.py:999", "to line 1,000 of 1,000"),
        ("read src/app.py", "More: `/read src/app.py:401-600`"),
        (
            "read src",
            "- `src/one/`: 1 file\n- `src/two/`: 1 file\n- `src/app.py`\n- `src/empty.py`",
        ),
        ("what is in src/app.py", "`src/app.py:1` to line 400"),
        ("what is in src/one", "- `src/one/same.py`"),
        ("summarise the layout", "`README.md` says: It is for looking at. And more."),
        ("summarise the layout", "- `src/`: 4 files"),
        ("/layout src", "`src` has 4 files."),
        ("how big is this repo?", "Languages: Python (5 files), Markdown (1 file)."),
        ("show me the README", "`README.md` (8 lines):"),
        ("what are the entry points?", "- `src/app.py:1` (by its name)"),
        ("where are the tests?", "Tests: `tests` (1 file)."),
        ("which tests are there for app?", "1. `tests/test_app.py:1` (by its name"),
    ],
)
@aio
async def test_what_is_there_is_reported(question: str, words: str, folder: Path) -> None:
    reply = await asked(folder, question)
    assert reply.stop == "end_turn", reply.text
    assert words in reply.text


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("read same.py", "may be any of 2 files; say which:"),
        ("read nothing.py", "There is no file or directory `nothing.py`"),
        ("read src/app.py:5000", "has only 1,000 lines"),
        ("read src/app.py:20-10", "20-10 is not a range of lines: they are counted from 1"),
        ("read src/app.py:0-0", "0-0 is not a range of lines"),
        ("what is in nowhere/", "There is no file or directory `nowhere/` here."),
        ("read ../outside.py", "outside"),
        ("what is in ..", "outside"),
        ("/layout nowhere", "does not exist"),
    ],
)
@aio
async def test_a_missing_path_is_not_an_answer(question: str, words: str, folder: Path) -> None:
    reply = await asked(folder, question)
    assert reply.stop == "refusal", reply.text
    assert words in reply.text


@aio
async def test_an_empty_folder_has_little_to_tell(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert (await asked(folder, "summarise the layout")).text == "There are no files here."
    assert (await asked(folder, "show me the README")).stop == "refusal"
    assert (await asked(folder, "what are the entry points?")).stop == "refusal"
    assert "There are no files here." in (await asked(folder, "where are the tests?")).text
