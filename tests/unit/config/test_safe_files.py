"""Small files: read once and sanely, replaced whole, one writer at a time."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.config import safe_files
from dragoman.config.safe_files import (
    create_file,
    export_file,
    locked,
    read_file,
    write_file,
    write_whole,
)
from dragoman.errors import ConfigInvalid, FileFailed, UsageError

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes, links and pipes of POSIX")


def test_a_missing_file_is_none_and_an_odd_one_an_error(tmp_path: Path) -> None:
    assert read_file(tmp_path / "none") is None
    (tmp_path / "file").write_bytes(b"x")
    assert read_file(tmp_path / "file" / "below") is None
    with pytest.raises(ConfigInvalid, match="not a regular file|cannot be read"):
        read_file(tmp_path)


@posix
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigInvalid, match="not a regular file"):
        read_file(pipe)


def test_a_file_of_absurd_size_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    assert read_file(file, max_size=10) == b"x" * 10
    file.write_bytes(b"x" * 11)
    with pytest.raises(ConfigInvalid, match="larger than 10 bytes"):
        read_file(file, max_size=10)
    file.write_bytes(b"x" * (safe_files.MAX_FILE_SIZE + 1))
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


@pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")
def test_mode_and_link_are_kept(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"1")
    file.chmod(0o640)
    link.symlink_to("file")
    write_file(link, b"2")
    assert link.is_symlink()
    assert file.read_bytes() == b"2"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [file, link]


@pytest.mark.skipif(os.name != "posix", reason="owners of POSIX")
def test_a_file_whose_owner_cannot_be_kept_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a longer text")
    inode = file.stat().st_ino
    theirs = os.stat_result((0o100644, inode, 1, 1, 12345, 12345, 13, 0, 0, 0))
    asked: list[tuple[int, int]] = []

    def refuse(fd: int, uid: int, gid: int) -> None:
        asked.append((uid, gid))
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(os, "stat", lambda path, **_: theirs)
    write_file(file, b"short")
    monkeypatch.undo()
    assert asked == [(12345, 12345)]
    assert file.read_bytes() == b"short"
    assert file.stat().st_ino == inode
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_the_second_name_of_a_file_goes_on_naming_it(tmp_path: Path) -> None:
    file, twin = tmp_path / "file", tmp_path / "twin"
    file.write_bytes(b"1")
    os.link(file, twin)
    write_file(file, b"2")
    assert twin.read_bytes() == b"2"


def test_a_file_that_is_read_only_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1")
    # Root may write to everything, so the answer is made up.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(FileFailed, match="read-only"):
        write_file(file, b"2")
    assert file.read_bytes() == b"1"


def test_a_write_that_fails_half_way_leaves_the_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileFailed, match="No space left"):
        write_file(file, b"2")
    assert file.read_bytes() == b"1"
    assert list(tmp_path.iterdir()) == [file]


@posix
def test_a_new_file_never_takes_a_name_that_is_there(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    create_file(file, [b"1", b"2"], mode=0o640)
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"12", 0o640)
    link.symlink_to(tmp_path / "nothing")
    for there in (file, link):
        with pytest.raises(FileExistsError):
            create_file(there, [b"3"])
    assert file.read_bytes() == b"12" and not (tmp_path / "nothing").exists()
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_a_new_file_is_exclusive_without_hard_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    create_file(tmp_path / "file", [b"1"])
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "file", [b"2"])
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"1")]


@posix
def test_a_file_of_our_own_replaces_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"1")
    link.symlink_to(real)
    write_whole(link, b"2", sync=True)
    assert not link.is_symlink() and (link.read_bytes(), real.read_bytes()) == (b"2", b"1")


@posix
def test_a_lock_is_not_made_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / ".file.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileFailed), locked(tmp_path / "file"):
        raise AssertionError("it was locked")
    assert not (tmp_path / "elsewhere").exists()


# -- exports


def test_an_export_makes_a_new_file_and_replaces_one_only_when_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    export_file(file, [b"1"])
    with pytest.raises(UsageError, match="--force"):
        export_file(file, [b"2"])
    assert file.read_bytes() == b"1"
    export_file(file, [b"3"], replace=True)
    assert file.read_bytes() == b"3"
    assert list(tmp_path.iterdir()) == [file]


@posix
def test_an_export_keeps_the_mode_and_follows_links_also_to_what_is_not_there_yet(
    tmp_path: Path,
) -> None:
    file, link, dangling = tmp_path / "file", tmp_path / "link", tmp_path / "dangling"
    export_file(file, [b"1"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o664)
    link.symlink_to(file)
    with pytest.raises(UsageError, match="--force"):
        export_file(link, [b"2"])
    export_file(link, [b"2"], replace=True)
    assert link.is_symlink() and file.read_bytes() == b"2"
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    dangling.symlink_to(tmp_path / "new")
    export_file(dangling, [b"3"])
    assert dangling.is_symlink() and (tmp_path / "new").read_bytes() == b"3"


@posix
def test_an_export_that_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"1"
        raise UsageError("no such session")

    for replace, name in ((False, "new"), (True, "old")):
        (tmp_path / "old").write_bytes(b"old")
        with pytest.raises(UsageError, match="no such session"):
            export_file(tmp_path / name, broken(), replace=replace)
        assert [each.name for each in tmp_path.iterdir()] == ["old"]
        assert (tmp_path / "old").read_bytes() == b"old"


@posix
@pytest.mark.parametrize("name", ["", ".", "missing/file", "x" * 300, "loop", "socket", "file/x"])
@pytest.mark.parametrize("replace", [False, True])
def test_an_export_to_a_wrong_name_is_refused_in_one_sentence(
    tmp_path: Path, name: str, replace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        before = sorted(os.listdir())
        with pytest.raises(UsageError, match="cannot be written|is a directory") as refused:
            export_file(Path(name), [b"1"], replace=replace)
    assert "\n" not in str(refused.value)
    assert sorted(os.listdir()) == before


@posix
def test_an_export_goes_into_a_device_and_leaves_it_one(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.open("wb").close()
    except OSError as error:
        pytest.skip(f"no device can be made and opened here: {error}")
    export_file(device, [b"1"])
    export_file(device, [b"1"], replace=True)
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert list(tmp_path.iterdir()) == [device]


def test_a_reader_never_sees_half_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_whole(path, b"old")
    with path.open("rb") as reader:
        write_whole(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


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
        "import sys; from pathlib import Path; from dragoman.config.safe_files import locked\n"
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
