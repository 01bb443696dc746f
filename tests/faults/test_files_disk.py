"""A disk that fails at one call: the old text stays, no partial file is left, and the error says
why."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.services.files import Files
from dragoman.client.services.workspace import Workspace
from dragoman.errors import FileFailed
from tests.aio import aio
from tests.unit.client.services.hostile_tree import quick_folder

CHILD_TIMEOUT = 30.0
"""Seconds for a small Python program on a busy machine."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "f").write_text("old")
    return folder


def failing(call: str, error: OSError, *, when: Callable[..., bool] = lambda *_, **__: True) -> Any:
    real = getattr(os, call)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if when(*args, **kwargs):
            raise error
        return real(*args, **kwargs)

    return fail


def is_temporary(name: object, *_: object, **__: object) -> bool:
    return isinstance(name, str) and name.startswith(".dragoman-")


@pytest.mark.parametrize(
    ("call", "error", "when"),
    [
        ("open", OSError(errno.EROFS, "Read-only file system"), is_temporary),
        ("open", OSError(errno.EACCES, "Permission denied"), is_temporary),
        ("open", OSError(errno.EACCES, "Permission denied"), lambda name, *_, **__: name == "f"),
        ("fchmod", OSError(errno.EPERM, "Operation not permitted"), lambda *_: True),
        ("write", OSError(errno.ENOSPC, "No space left on device"), lambda *_: True),
        ("write", OSError(errno.EIO, "Input/output error"), lambda *_: True),
        ("fsync", OSError(errno.ENOSPC, "No space left on device"), lambda *_: True),
        ("fsync", OSError(errno.EDQUOT, "Disk quota exceeded"), lambda *_: True),
        ("replace", OSError(errno.EBUSY, "Device or resource busy"), lambda *_, **__: True),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@aio
async def test_a_write_that_fails_leaves_the_old_text_and_nothing_else(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    error: OSError,
    when: Callable[..., bool],
) -> None:
    files = Files(Workspace([root]))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(call, error, when=when))
        with pytest.raises(FileFailed) as caught:
            await files.write_text(root / "f", "new" * 1000)
    assert caught.value.errno == error.errno
    assert str(error.strerror) in str(caught.value)
    assert not caught.value.may_have_run
    assert (root / "f").read_text() == "old"
    assert os.listdir(root) == ["f"]


@aio
async def test_a_disk_that_fills_up_in_the_middle_leaves_the_old_text(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(Workspace([root]))
    real_write = os.write
    room = 300_000

    def short(fd: int, data: memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real_write(fd, data[: min(room, 7_000)])
        room -= taken
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        await files.write_text(root / "fits", "x" * 200_000)
        with pytest.raises(FileFailed, match="No space left"):
            await files.write_text(root / "f", "y" * 200_000)
    assert (root / "fits").read_text() == "x" * 200_000
    assert (root / "f").read_text() == "old"
    assert sorted(os.listdir(root)) == ["f", "fits"]


@aio
async def test_a_close_that_reports_a_lost_write_is_a_failed_write(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network file systems report lost data only when the file is closed."""
    files = Files(Workspace([root]))
    real_close, real_fsync = os.close, os.fsync
    written: list[int] = []

    def fsync(fd: int) -> None:
        written.append(fd)
        real_fsync(fd)

    def close(fd: int) -> None:
        real_close(fd)
        if written == [fd]:
            written.append(-1)
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "close", close)
        with pytest.raises(FileFailed, match="quota"):
            await files.write_text(root / "f", "new")
    assert (root / "f").read_text() == "old"
    assert os.listdir(root) == ["f"]


@aio
async def test_a_read_that_fails_says_why(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(Workspace([root]))
    for call, name in (("read", None), ("open", "f")):
        broken = OSError(errno.EIO, "Input/output error")
        with monkeypatch.context() as patch:
            patch.setattr(
                os,
                call,
                failing(
                    call, broken, when=lambda first, *_, name=name, **__: name in (None, first)
                ),
            )
            with pytest.raises(FileFailed, match="Input/output error"):
                await files.read_text(root / "f")


@aio
async def test_a_program_that_is_running_can_be_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(Workspace([root]))
    (root / "f").chmod(0o755)
    busy = OSError(errno.ETXTBSY, "Text file busy")
    monkeypatch.setattr(os, "open", failing("open", busy, when=lambda name, *_, **__: name == "f"))
    await files.write_text(root / "f", "new")
    monkeypatch.undo()
    assert (root / "f").read_text() == "new"
    assert (root / "f").stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the file size are set by a child")
def test_a_real_limit_of_the_system_stops_a_write_and_keeps_the_old_text(root: Path) -> None:
    program = textwrap.dedent(
        """
        import asyncio, resource, sys
        from dragoman.client.services.files import Files
        from dragoman.client.services.workspace import Workspace
        from dragoman.errors import FileFailed

        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        files = Files(Workspace([sys.argv[1]]))
        try:
            asyncio.run(files.write_text(sys.argv[1] + "/f", "x" * 200_000))
        except FileFailed as error:
            print(error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        capture_output=True,
        text=True,
        timeout=CHILD_TIMEOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert "File too large" in done.stdout
    assert (root / "f").read_text() == "old"
    assert os.listdir(root) == ["f"]


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Become an ordinary user for a while, because root may write anywhere."""
    privileged = os.geteuid() == 0
    if privileged:
        os.seteuid(65534)
    try:
        yield
    finally:
        if privileged:
            os.seteuid(0)


@aio
async def test_a_read_only_file_is_not_replaced_by_renaming() -> None:
    with quick_folder() as root:
        files = Files(Workspace([root]))
        root.chmod(0o777)
        (root / "f").write_text("old")
        (root / "f").chmod(0o444)
        await files.read_text(root / "f")
        with without_privileges():
            await files.write_text(root / "g", "the folder itself may be written to")
            with pytest.raises(FileFailed, match="Permission denied") as caught:
                await files.write_text(root / "f", "new")
        assert caught.value.errno == errno.EACCES
        assert (root / "f").read_text() == "old"
        assert sorted(os.listdir(root)) == ["f", "g"]


@aio
async def test_a_folder_that_may_not_be_written_is_a_clear_error() -> None:
    with quick_folder() as root:
        files = Files(Workspace([root]))
        (root / "f").write_text("old")
        (root / "f").chmod(0o666)
        root.chmod(0o555)
        with without_privileges():
            for name in ("f", "new", "folder/new"):
                with pytest.raises(FileFailed, match="Permission denied"):
                    await files.write_text(root / name, "new")
        root.chmod(0o777)
        assert (root / "f").read_text() == "old"
        assert os.listdir(root) == ["f"]


@aio
async def test_what_may_not_be_read_is_a_clear_error() -> None:
    with quick_folder() as root:
        files = Files(Workspace([root]))
        (root / "f").write_text("secret")
        (root / "f").chmod(0o000)
        (root / "closed").mkdir(mode=0o000)
        root.chmod(0o755)
        with without_privileges():
            for name in ("f", "closed/f"):
                with pytest.raises(FileFailed, match="Permission denied"):
                    await files.read_text(root / name)
