from __future__ import annotations

from pathlib import Path

import pytest

from tests.aio import aio
from tests.unit.scout.asking import asked, project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "pkg/__init__.py": "from pkg.core import foo\n",
        "pkg/core.py": "class A:\n    def run(self): ...\n\n\ndef foo(x):\n    return x\n\n\n\n",
        "pkg/more.py": "class B:\n    def run(self): ...\n\n\ndef go():\n    foo(1)\n    A.run()\n",
        "tests/test_core.py": "def test_it():\n    assert foo(2) == 2\n",
        "lonely.py": "def alone(): ...\n",
    }
    return project(tmp_path, files)


@aio
async def test_a_definition_is_shown_with_its_first_lines(folder: Path) -> None:
    reply = await asked(folder, "where is foo defined?")
    assert reply.stop == "end_turn"
    assert reply.text.startswith("`foo` is defined in `pkg/core.py:5` (function, Python):")
    assert "```python\ndef foo(x):\n    return x\n```" in reply.text


@aio
async def test_several_definitions_are_listed_and_a_class_chooses_one(folder: Path) -> None:
    reply = await asked(folder, "where is run defined?")
    assert "defined in 2 places. The best match is `pkg/core.py:2`" in reply.text
    assert "- `pkg/more.py:2`" in reply.text
    one = await asked(folder, "where is B.run defined?")
    assert one.text.startswith("`B.run` is defined in `pkg/more.py:2`")
    none = await asked(folder, "where is C.run defined?")
    assert none.text.startswith(
        "I found no `C.run`; this is `run`.\n\n`run` is defined in 2 places."
    )


@aio
async def test_uses_leave_out_the_definition_and_tests_come_last(folder: Path) -> None:
    reply = await asked(folder, "where is foo used?")
    assert reply.text.startswith("`foo` is used in 3 places in 3 files:")
    listed = reply.text.partition("Defined in:")[0]
    assert "core.py:5" not in listed
    assert listed.index("pkg/more.py:6") < listed.index("tests/test_core.py:2")
    assert "Defined in:\n- `pkg/core.py:5`" in reply.text


@aio
async def test_a_name_without_uses_is_an_answer(folder: Path) -> None:
    for question in ("where is alone used?", "who calls alone?"):
        reply = await asked(folder, question)
        assert reply.stop == "end_turn"
        assert "`lonely.py:1`" in reply.text


@aio
async def test_callers_are_named_with_the_function_they_stand_in(folder: Path) -> None:
    reply = await asked(folder, "who calls foo?")
    assert "- `pkg/more.py:6` in `go`: `foo(1)`" in reply.text
    assert "- `tests/test_core.py:2` in `test_it`:" in reply.text


@pytest.mark.parametrize(
    "question", ["where is nothing_here defined?", "where is nothing_here used?",
                 "who calls nothing_here?"]
)  # fmt: skip
@aio
async def test_a_name_that_stands_nowhere_is_not_an_answer(question: str, folder: Path) -> None:
    reply = await asked(folder, question)
    assert reply.stop == "refusal"
    assert "I found no `nothing_here`" in reply.text


@aio
async def test_the_nearest_places_are_named_for_a_name_that_stands_nowhere(folder: Path) -> None:
    reply = await asked(folder, "where is LonelyThing defined?")
    assert reply.stop == "refusal"
    assert "The nearest places:\n1. `lonely.py:1` (by its name)" in reply.text


@aio
async def test_an_ordinary_word_without_a_definition_is_searched_for(folder: Path) -> None:
    (folder / "cache.py").write_text("# Caching of answers.\ndef keep_answers(): ...\n")
    (folder / "tests/test_cache.py").write_text("cache = 1\n")
    reply = await asked(folder, "where is caching implemented?")
    assert reply.stop == "end_turn"
    assert "1. `cache.py:1`" in reply.text
    assert "1. `cache.py:1`" in (await asked(folder, "where is the cache?")).text
    assert "`tests/test_cache.py:1`" in (await asked(folder, "where is cache defined?")).text


@aio
async def test_a_name_that_is_only_mentioned_is_not_an_answer_but_helps(folder: Path) -> None:
    (folder / "x.py").write_text("import else_where\n\nelse_where.go()\n")
    reply = await asked(folder, "where is else_where defined?")
    assert reply.stop == "refusal"
    assert "only mentions" in reply.text
    assert "`x.py:3`" in reply.text


@aio
async def test_words_are_found_as_they_stand(folder: Path) -> None:
    reply = await asked(folder, 'find the text "foo(1"')
    assert reply.text == "`foo(1` occurs in 1 line in 1 file:\n\n- `pkg/more.py:6` `foo(1)`"
    nowhere = await asked(folder, 'find the text "no such words"')
    assert nowhere.stop == "end_turn"
    assert "does not occur" in nowhere.text


@aio
async def test_many_places_are_counted_and_not_all_listed(folder: Path) -> None:
    (folder / "many.py").write_text("foo(0)\n" * 100)
    for question, number in (("where is foo used?", 103), ("who calls foo?", 102)):
        reply = await asked(folder, question)
        assert f"in {number} places" in reply.text
        assert f"… and {number - 30} more" in reply.text
