from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dragoman.client.services.worker_thread import Stopped
from dragoman.scout import ripgrep, search
from dragoman.scout.hits import Hit, Query
from tests.aio import aio


def look(root: Path, query: Query, limit: int = 1000) -> tuple[list[Hit], search.Searched]:
    hits: list[Hit] = []

    def sink(hit: Hit) -> bool:
        hits.append(hit)
        return len(hits) < limit

    searched = search.search_files(str(root), query, sink, threading.Event())
    return sorted(hits), searched


def keep(hits: list[Hit]) -> search.Sink:
    def sink(hit: Hit) -> bool:
        hits.append(hit)
        return True

    return sink


def test_lines_are_found_with_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\nfoo foo\n\nfood\nlast foo")
    hits, searched = look(tmp_path, Query(("foo",)))
    assert hits == [Hit("a.py", 2, "foo foo"), Hit("a.py", 5, "last foo")]
    assert (searched.engine, searched.files, searched.cut) == ("scout", 1, False)


def test_any_of_several_terms_is_found_once_per_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("# TODO FIXME\n# FIXME\n# todo\n")
    hits, _ = look(tmp_path, Query(("TODO", "FIXME")))
    assert [hit.line for hit in hits] == [1, 2]


def test_a_folder_can_be_searched_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text("foo\n")
    hits, _ = look(tmp_path, Query(("foo",), under="b"))
    assert [hit.path for hit in hits] == ["b/x.py"]


def test_files_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0foo")
    (tmp_path / "b.png").write_bytes(b"foo")
    (tmp_path / "c.dat").write_bytes(b"x" * 10 + b"\0 foo\n")
    assert look(tmp_path, Query(("foo",)))[0] == []


def test_large_files_are_read_to_their_end_and_very_large_ones_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("x = 1\n" * 50_000 + "foo\n")
    hits, _ = look(tmp_path, Query(("foo",)))
    assert hits == [Hit("a.py", 50_001, "foo")]
    monkeypatch.setattr(ripgrep, "MAX_FILE_SIZE", 100_000)
    hits, searched = look(tmp_path, Query(("foo",)))
    assert (hits, searched.large) == ([], 1)


def test_one_file_cannot_drown_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ripgrep, "MAX_LINES_PER_FILE", 3)
    (tmp_path / "a.py").write_text("foo\n" * 100)
    (tmp_path / "b.py").write_text("foo\n")
    hits, _ = look(tmp_path, Query(("foo",)))
    assert [hit.path for hit in hits] == ["a.py"] * 3 + ["b.py"]


def test_a_search_ends_when_enough_was_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("foo\n" * 100)
    hits, searched = look(tmp_path, Query(("foo",)), limit=5)
    assert (len(hits), searched.cut) == (5, True)


def test_a_search_ends_when_its_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCH_TIMEOUT", -1.0)
    for number in range(300):
        (tmp_path / f"{number}.py").touch()
    _, searched = look(tmp_path, Query(("foo",)))
    assert (searched.cut, searched.files) == (True, 256)


def test_a_search_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("foo\n")
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        search.search_files(str(tmp_path), Query(("foo",)), lambda hit: True, stop)


def test_a_file_that_became_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        search.read_text(str(tmp_path / "link"))
    assert search.read_text(str(tmp_path / "pipe")) == b""


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
    hits: list[Hit] = []
    searched = await search.search(str(root), Query(("foo",)), keep(hits))
    assert (searched.engine, hits) == ("scout", [Hit("a.py", 1, "foo")])


@aio
async def test_ripgrep_is_used_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rg").write_text(
        "#!/bin/sh\ncat <<'END'\n"
        """{"type":"match","data":{"path":{"text":"./a.py"},"lines":{"text":"foo\\n"},"""
        """"line_number":7,"submatches":[{"start":0}]}}\n"""
        """{"data":{"stats":{"searches":3}},"type":"summary"}\nEND\n"""
    )
    (tmp_path / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    hits: list[Hit] = []
    searched = await search.search(str(tmp_path), Query(("foo",)), keep(hits))
    assert (searched.engine, searched.files, searched.cut) == ("ripgrep", 3, False)
    assert hits == [Hit("a.py", 7, "foo")]
