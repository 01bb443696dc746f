from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dragoman.rpc.tasks import Stopped
from dragoman.scout import file_walk
from dragoman.scout.file_walk import Walk


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x\n")


def files(root: Path, under: str = "") -> list[str]:
    return list(Walk(str(root), under).files(threading.Event()))


def test_files_come_folder_by_folder_with_paths_from_the_root_on(tmp_path: Path) -> None:
    make(tmp_path, "b.py", "a/c.py", "a/b/d.py", ".github/w.yml")
    assert files(tmp_path) == ["b.py", ".github/w.yml", "a/c.py", "a/b/d.py"]
    assert files(tmp_path, "a/b") == ["a/b/d.py"]


def test_histories_caches_and_packages_are_not_entered(tmp_path: Path) -> None:
    make(tmp_path, ".git/config", "x/node_modules/y.js", "__pycache__/z.pyc", "kept.py")
    assert files(tmp_path) == ["kept.py"]


def test_ignore_files_count_for_what_is_below_them(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "x/a.log", "x/keep.log", "x/y/b.log", "x/y/out/c.py", "out/d.py")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "x/.gitignore").write_text("!keep.log\nout/\n")
    assert sorted(files(tmp_path)) == [".gitignore", "out/d.py", "x/.gitignore", "x/keep.log"]
    assert files(tmp_path, "x/y") == [], "what stands above the folder counts, too"


def test_links_are_not_followed_and_loops_do_not_matter(tmp_path: Path) -> None:
    make(tmp_path, "root/a.py", "outside/secret.py")
    root = tmp_path / "root"
    (root / "loop").symlink_to(root)
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "secret.py").symlink_to(tmp_path / "outside/secret.py")
    os.mkfifo(root / "fifo")
    assert files(root) == ["a.py"]


def test_an_ignore_file_that_is_a_pipe_or_a_link_does_not_stop_the_walk(tmp_path: Path) -> None:
    make(tmp_path, "a/x.log", "b/x.log")
    (tmp_path / "rules").write_text("*.log\n")
    os.mkfifo(tmp_path / "a/.gitignore")
    (tmp_path / "b/.gitignore").symlink_to(tmp_path / "rules")
    assert files(tmp_path) == ["rules", "a/x.log", "b/x.log"]


def test_a_folder_that_is_gone_is_counted(tmp_path: Path) -> None:
    walk = Walk(str(tmp_path), "nowhere")
    assert list(walk.files(threading.Event())) == []
    assert walk.unreadable == 1


def test_an_abandoned_walk_ends(tmp_path: Path) -> None:
    make(tmp_path, "a/1.py", "b/2.py")
    stop = threading.Event()
    walk = Walk(str(tmp_path)).files(stop)
    assert next(walk) == "a/1.py"
    stop.set()
    with pytest.raises(Stopped):
        list(walk)


def test_the_limit_is_kept_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_walk, "MAX_FILES", 2)
    make(tmp_path, "a/1", "a/2", "a/3", "b/4")
    walk = Walk(str(tmp_path))
    assert len(list(walk.files(threading.Event()))) == 3
    assert walk.cut


def test_a_file_that_became_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        file_walk.read_text(str(tmp_path), "link")
    assert file_walk.read_text(str(tmp_path), "pipe") == b""
