"""Small files: read once and sanely, replaced whole, one writer at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dragoman.errors import ConfigInvalid, FileFailed
from dragoman.hub.config import files
from dragoman.hub.config.files import locked, read_file, write_file

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes, links and pipes of POSIX")


def test_a_missing_file_is_none_and_an_odd_one_an_error(tmp_path: Path) -> None:
    assert read_file(tmp_path / "none") is None
    (tmp_path / "file").write_bytes(b"x")
    assert read_file(tmp_path / "file" / "below") is None
    with pytest.raises(ConfigInvalid, match="no ordinary file|cannot be read"):
        read_file(tmp_path)


@posix
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigInvalid, match="no ordinary file"):
        read_file(pipe)


def test_a_file_of_absurd_size_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    assert read_file(file, max_size=10) == b"x" * 10
    file.write_bytes(b"x" * 11)
    with pytest.raises(ConfigInvalid, match="more than 10 bytes"):
        read_file(file, max_size=10)
    file.write_bytes(b"x" * (files.MAX_FILE_SIZE + 1))
    with pytest.raises(FileFailed):
        read_file(file, invalid=FileFailed)


@posix
def test_a_new_file_is_for_its_owner_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    write_file(file, b"1")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    write_file(file, b"2")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"2", 0o644)
    write_file(file, b"3", mode=0o600)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@posix
def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"1")
    link.symlink_to(real)
    write_file(link, b"2")
    assert link.is_symlink() and real.read_bytes() == b"2"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileFailed, match="No space left"):
        write_file(file, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_bytes() == b"old"


def test_two_writers_take_turns(tmp_path: Path) -> None:
    file = tmp_path / "count"
    file.write_text("0")

    def count() -> None:
        for _ in range(20):
            with locked(file):
                write_file(file, str(int(file.read_text()) + 1).encode())

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.read_text() == "80"


def test_a_writer_that_hangs_is_waited_for_only_so_long_and_its_death_frees_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    code = (
        "import sys; from pathlib import Path; from dragoman.hub.config.files import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(  # noqa: TID251 - a writer that hangs has to be another process
        [sys.executable, "-c", code, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline().strip() == b"held"
        with pytest.raises(FileFailed, match="another program"), locked(file, timeout=0.05):
            raise AssertionError("two writers at once")
        other.kill()
        other.wait()
        with locked(file):
            pass
