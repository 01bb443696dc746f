from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dragoman.rpc.tasks import Stopped
from dragoman.scout import file_walk, search
from dragoman.scout.hits import Hit
from dragoman.scout.terms import text_pattern
from tests.aio import aio
from tests.integration.scout_child import find_ripgrep, programs

FOO = r"\bfoo\b"
GO = threading.Event()

ENGINES = [
    "scout",
    pytest.param(
        "ripgrep",
        marks=pytest.mark.skipif(find_ripgrep() is None, reason="there is no ripgrep here"),
    ),
]


@pytest.fixture(params=ENGINES)
def engine(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    names = ("rg",) if request.param == "ripgrep" else ()
    monkeypatch.setenv("PATH", programs(tmp_path_factory.mktemp("bin"), *names))
    return str(request.param)


async def look(root: Path, pattern: str = FOO, under: str = "") -> tuple[list[Hit], str]:
    found = await search.find_files_with(str(root), pattern, under)
    return list(search.lines_with(str(root), pattern, found, GO)), found.engine


@aio
async def test_lines_are_found_with_their_numbers(tmp_path: Path, engine: str) -> None:
    (tmp_path / "a.py").write_text("one\nfoo foo\n\nfood\nlast foo")
    (tmp_path / "b.py").write_text("food\n")
    hits, used = await look(tmp_path)
    assert hits == [Hit("a.py", 2, "foo foo"), Hit("a.py", 5, "last foo")]
    assert used == engine


@aio
async def test_lines_are_counted_for_each_pattern_and_all_files_are_listed(
    tmp_path: Path, engine: str
) -> None:
    (tmp_path / "a.py").write_text("frame\nFRAMES and lines\nself.reFrame()\nlineFrame\naframe\n")
    (tmp_path / "b.py").write_text("nothing\n")
    (tmp_path / "many.py").write_text("line\n" * 100)
    patterns = {term: text_pattern(term) for term in ("fram", "line")}
    any_of = "(?i:fram|line)"
    found = await search.find_files_with(str(tmp_path), any_of, list_all=True)
    assert sorted(found.files) == ["a.py", "b.py", "many.py"]
    assert ("b.py" in found.matching) is (engine == "scout")
    assert search.count_lines(str(tmp_path), patterns, found, GO) == {
        "a.py": {"fram": 4, "line": 2},
        "many.py": {"line": search.MAX_COUNTED},
    }


@aio
async def test_a_line_is_found_once(tmp_path: Path, engine: str) -> None:
    (tmp_path / "a.py").write_text("# TODO FIXME\n# FIXME\n# todo\n")
    hits, _ = await look(tmp_path, r"\bTODO\b|\bFIXME\b")
    assert [hit.line for hit in hits] == [1, 2]


@aio
async def test_a_folder_can_be_searched_alone(tmp_path: Path, engine: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text("foo\n")
    hits, _ = await look(tmp_path, under="b")
    assert [hit.path for hit in hits] == ["b/x.py"]


@aio
async def test_files_that_are_not_text_or_ignored_are_passed_over(
    tmp_path: Path, engine: str
) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0foo")
    (tmp_path / "b.png").write_bytes(b"foo")
    (tmp_path / "c.dat").write_bytes(b"x" * 10 + b"\0 foo\n")
    (tmp_path / "d.log").write_text("foo\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert (await look(tmp_path))[0] == []


@aio
async def test_large_files_are_read_to_their_end_and_very_large_ones_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    (tmp_path / "a.py").write_text("x = 1\n" * 50_000 + "foo\n")
    assert (await look(tmp_path))[0] == [Hit("a.py", 50_001, "foo")]
    monkeypatch.setattr(file_walk, "MAX_FILE_SIZE", 100_000)
    found = await search.find_files_with(str(tmp_path), FOO)
    assert list(search.lines_with(str(tmp_path), FOO, found, GO)) == []
    assert found.unreadable == 1


@aio
async def test_one_file_cannot_drown_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_LINES_PER_FILE", 3)
    (tmp_path / "a.py").write_text("foo\n" * 100)
    (tmp_path / "b.py").write_text("foo\n")
    hits, _ = await look(tmp_path)
    assert [hit.path for hit in hits] == ["a.py"] * 3 + ["b.py"]


def test_a_search_ends_when_its_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCH_TIMEOUT", -1.0)
    (tmp_path / "a.py").write_text("foo\n")
    found = search.Found([], ["a.py"])
    assert list(search.lines_with(str(tmp_path), FOO, found, GO)) == []
    assert found.cut


def test_a_search_that_was_cancelled_ends(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("foo\n")
    stop = threading.Event()
    stop.set()
    found = search.Found([], ["a.py"])
    with pytest.raises(Stopped):
        search.count_lines(str(tmp_path), {"foo": FOO}, found, stop)
    with pytest.raises(Stopped):
        list(search.lines_with(str(tmp_path), FOO, found, stop))


@aio
async def test_a_ripgrep_that_does_not_know_our_options_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "rg").write_text("#!/bin/sh\necho 'unrecognized flag' >&2\nexit 2\n")
    (bin / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin))
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.py").write_text("foo\n")
    assert await look(root) == ([Hit("a.py", 1, "foo")], "scout")


@aio
async def test_files_that_ripgrep_names_in_vain_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rg").write_text("#!/bin/sh\nprintf './b.py\\0./gone.py\\0./a.py\\0nonsense'\n")
    (tmp_path / "rg").chmod(0o755)
    (tmp_path / "a.py").write_text("foo\n")
    (tmp_path / "b.py").write_text("bar\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert await look(tmp_path) == ([Hit("a.py", 1, "foo")], "ripgrep")


@aio
async def test_patterns_cannot_be_taken_for_options(tmp_path: Path, engine: str) -> None:
    (tmp_path / "a.py").write_text("--pre=sh\n")
    assert (await look(tmp_path, "--pre=sh"))[0] == [Hit("a.py", 1, "--pre=sh")]
