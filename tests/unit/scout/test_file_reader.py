from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dragoman.errors import FileMissing, NotText, PathRefused, UsageError
from dragoman.rpc.tasks import Stopped
from dragoman.scout import file_reader
from dragoman.scout.file_reader import FileReader

GO = threading.Event()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "src").mkdir(parents=True)
    (folder / "src/a.py").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    (tmp_path / "secret").write_text("secret\n")
    return folder


def test_lines_are_counted_from_one(root: Path) -> None:
    part = FileReader(str(root)).part("src/a.py", 3, 4, GO)
    assert (part.path, part.first, part.last, part.total) == ("src/a.py", 3, 4, 10)
    assert part.lines == ["line 3", "line 4"]


def test_only_what_is_shown_is_decoded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bytes] = []
    monkeypatch.setattr(file_reader, "_shown", shown.append)
    reader = FileReader(str(root))
    for first, last, wanted in ((2, 3, 2), (100, 200, 0)):
        shown.clear()
        assert reader.part("src/a.py", first, last, GO).total == 10
        assert len(shown) == wanted


def test_what_is_behind_the_end_is_nothing(root: Path) -> None:
    part = FileReader(str(root)).part("src/a.py", 100, 200, GO)
    assert (part.lines, part.total) == ([], 10)


def test_much_is_cut_and_the_total_is_right(root: Path) -> None:
    (root / "many").write_text("x\n" * 5000)
    part = FileReader(str(root)).part("many", None, None, GO)
    assert (len(part.lines), part.total) == (file_reader.MAX_LINES, 5000)


def test_a_line_of_megabytes_is_cut_and_the_next_one_is_right(root: Path) -> None:
    (root / "wide").write_bytes(b"x" * 3_000_000 + b"\nnext\n")
    part = FileReader(str(root)).part("wide", None, None, GO)
    assert len(part.lines[0]) == file_reader.MAX_LINE_SIZE + 1
    assert part.lines[1:] == ["next"]
    assert part.total == 2


def test_bytes_that_are_not_text_are_shown_and_binaries_are_not(root: Path) -> None:
    (root / "latin").write_bytes(b"caf\xe9\x1b\r\nlast")
    (root / "binary").write_bytes(b"a\0b")
    assert FileReader(str(root)).part("latin", None, None, GO).lines == ["caf\ufffd\ufffd", "last"]
    with pytest.raises(NotText):
        FileReader(str(root)).part("binary", None, None, GO)


@pytest.mark.parametrize("path", ["../secret", "src/../../secret", "link", "src", "~/x"])
def test_nothing_outside_and_nothing_that_is_not_a_file_is_read(path: str, root: Path) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    with pytest.raises((PathRefused, FileMissing)):
        FileReader(str(root)).part(path, None, None, GO)


def test_paths_are_reported_from_the_root_on_however_they_were_written(root: Path) -> None:
    reader = FileReader(str(root))
    assert reader.file(str(root / "src/a.py")) == "src/a.py"
    assert reader.folder(".") == ""
    assert reader.folder("src/") == "src"


def test_a_root_that_is_a_link_is_its_target(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    reader = FileReader(str(tmp_path / "alias"))
    assert reader.file("src/a.py") == "src/a.py"
    assert reader.root == os.path.realpath(root)


def test_a_root_that_is_none_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        FileReader(str(tmp_path / "nowhere"))


def test_an_abandoned_read_ends(root: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        FileReader(str(root)).all_lines("src/a.py", stop)


def test_all_lines_have_a_bound(root: Path) -> None:
    assert len(FileReader(str(root)).all_lines("src/a.py", GO, limit=4)) == 4
