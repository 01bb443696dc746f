"""Reading and writing text: lines, sizes, encodings, and that a write is whole or nothing."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.services import files as module
from dragoman.client.services.files import Files
from dragoman.client.services.workspace import Workspace
from dragoman.errors import (
    ArgumentInvalid,
    FileFailed,
    FileMissing,
    NotText,
    PathRefused,
    ServiceError,
    TooLarge,
)
from dragoman.rpc import tasks
from tests.aio import aio
from tests.unit.client.services.hostile_tree import CANARY, build, quick_folder
from tests.unit.client.services.test_workspace import HOSTILE, short

TIMEOUT = 10.0
"""Far more than anything here takes; a test that waits so long has failed."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def files(root: Path) -> Files:
    return Files(Workspace([root]))


def leftovers(root: Path) -> list[Path]:
    return list(root.rglob(".dragoman-*"))


THREE = "one\ntwo\nthree\n"
ODD = "one\r\n\n\u2028two\x0b\x0c\x85\rthree"


@pytest.mark.parametrize(
    ("text", "line", "limit", "expected"),
    [
        (THREE, None, None, THREE),
        (THREE, 1, None, THREE),
        (THREE, 0, None, THREE),
        (THREE, 2, None, "two\nthree\n"),
        (THREE, 3, None, "three\n"),
        (THREE, 4, None, ""),
        (THREE, 2**32 - 1, None, ""),
        (THREE, None, 1, "one\n"),
        (THREE, None, 2, "one\ntwo\n"),
        (THREE, None, 3, THREE),
        (THREE, None, 1000, THREE),
        (THREE, None, 2**32 - 1, THREE),
        (THREE, None, 0, ""),
        (THREE, 2, 0, ""),
        (THREE, 2, 1, "two\n"),
        (THREE, 3, 5, "three\n"),
        (THREE, 4, 5, ""),
        ("one\ntwo", None, None, "one\ntwo"),
        ("one\ntwo", 2, None, "two"),
        ("one\ntwo", 2, 1, "two"),
        ("one\ntwo", 1, 2, "one\ntwo"),
        ("one\ntwo", 3, None, ""),
        ("", None, None, ""),
        ("", 1, None, ""),
        ("", 2, 1, ""),
        ("\n\n\n", 2, 1, "\n"),
        ("\n\n\n", 3, None, "\n"),
        ("\n\n\n", 4, None, ""),
        (ODD, None, None, ODD),
        (ODD, 1, 1, "one\r\n"),
        (ODD, 2, 1, "\n"),
        (ODD, 3, 1, "\u2028two\x0b\x0c\x85\rthree"),
        ("\ufeffmark\nend", None, None, "\ufeffmark\nend"),
        ("\ufeffmark\nend", 1, 1, "\ufeffmark\n"),
        ("\ufeffmark\nend", 2, 1, "end"),
        ("\0null\0", None, None, "\0null\0"),
        ("ä\nö\n\U0001f600\n", 3, 1, "\U0001f600\n"),
    ],
)
@aio
async def test_lines_are_counted_from_one_and_returned_as_they_are(
    root: Path, files: Files, text: str, line: int | None, limit: int | None, expected: str
) -> None:
    (root / "f").write_bytes(text.encode())
    assert await files.read_text(root / "f", line=line, limit=limit) == expected


@pytest.mark.parametrize(
    "arguments", [{"line": -1}, {"limit": -1}, {"line": True}, {"limit": False}]
)
@aio
async def test_a_line_that_is_not_a_number_from_zero_on_is_invalid(
    root: Path, files: Files, arguments: dict[str, int]
) -> None:
    (root / "f").write_text(THREE)
    with pytest.raises(ArgumentInvalid, match="non-negative integer"):
        await files.read_text(root / "f", **arguments)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfeU\0T\0F\0",
        b"caf\xe9\n",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"cut \xe2\x82",
        b"\x89PNG\r\n",
    ],
)
@aio
async def test_what_is_not_utf8_is_not_text(root: Path, files: Files, data: bytes) -> None:
    (root / "f").write_bytes(data)
    with pytest.raises(NotText, match="UTF-8"):
        await files.read_text(root / "f")


@aio
async def test_only_the_lines_asked_for_have_to_be_text(root: Path, files: Files) -> None:
    (root / "f").write_bytes(b"good\n\xff bad\ngood again\n")
    assert await files.read_text(root / "f", line=1, limit=1) == "good\n"
    assert await files.read_text(root / "f", line=3) == "good again\n"
    with pytest.raises(NotText, match="byte 0 of the requested part"):
        await files.read_text(root / "f", line=2)


@aio
async def test_a_file_over_the_limit_is_refused_unless_the_part_asked_for_fits(root: Path) -> None:
    files = Files(Workspace([root]), max_file_size=100)
    (root / "f").write_text("0123456789abcde\n" * 100)
    with pytest.raises(TooLarge, match="it is 1600 bytes long") as caught:
        await files.read_text(root / "f")
    assert caught.value.limit == 100
    assert await files.read_text(root / "f", line=90, limit=6) == "0123456789abcde\n" * 6
    assert await files.read_text(root / "f", line=96) == "0123456789abcde\n" * 5
    for arguments in ({"line": 90, "limit": 7}, {"line": 90}, {"limit": 7}):
        with pytest.raises(TooLarge):
            await files.read_text(root / "f", **arguments)
    (root / "f").write_text("x" * 100)
    assert await files.read_text(root / "f") == "x" * 100
    (root / "f").write_text("x" * 101)
    with pytest.raises(TooLarge):
        await files.read_text(root / "f", limit=1)


@aio
async def test_a_file_that_grows_while_it_is_read_is_still_bounded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(Workspace([root]), max_file_size=1000)
    (root / "f").write_text("x")
    monkeypatch.setattr(os, "read", lambda fd, size: b"y" * 600)
    with pytest.raises(TooLarge, match="the requested part has more than"):
        await files.read_text(root / "f")


@aio
async def test_lines_are_not_looked_for_without_end(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SCAN_SIZE", 1_000_000)
    files = Files(Workspace([root]))
    (root / "f").touch()
    os.truncate(root / "f", 2**40)
    with pytest.raises(TooLarge, match="too far into the file"):
        await files.read_text(root / "f", line=2)


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7, 1000])
@aio
async def test_the_borders_of_chunks_are_invisible(
    root: Path, files: Files, monkeypatch: pytest.MonkeyPatch, chunk_size: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_SIZE", chunk_size)
    text = "ä\r\n\n\U0001f600 two\nlast"
    await files.write_text(root / "f", text)
    lines = text.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + [lines[-1]]
    for first in range(6):
        for limit in (None, 0, 1, 2, 3, 9):
            start = max(first, 1) - 1
            expected = lines[start : None if limit is None else start + limit]
            assert await files.read_text(root / "f", line=first, limit=limit) == "".join(expected)


@aio
async def test_a_missing_file_is_an_error_or_empty_as_the_peer_needs(
    root: Path, files: Files
) -> None:
    lenient = Files(Workspace([root]), missing_file_is_empty=True)
    for name in ("missing", "no/such/folder"):
        with pytest.raises(FileMissing):
            await files.read_text(root / name)
        assert await lenient.read_text(root / name) == ""
    for refused in (root, root.parent / "missing", "relative"):
        with pytest.raises(ServiceError):
            await lenient.read_text(refused)


@aio
async def test_a_fifo_is_refused_and_never_waited_for(root: Path, files: Files) -> None:
    os.mkfifo(root / "fifo")
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(PathRefused, match="FIFO"):
            await files.read_text(root / "fifo")
        with pytest.raises(PathRefused, match="FIFO"):
            await files.write_text(root / "fifo", "x")


@aio
async def test_a_file_that_becomes_a_fifo_between_look_and_opening_is_not_waited_for(
    root: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "f"
    path.write_text("x")
    real_open = os.open

    def swapping(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if name == "f" and not stat.S_ISFIFO(path.lstat().st_mode):
            path.unlink()
            os.mkfifo(path)
        return real_open(name, flags, mode, dir_fd=dir_fd)

    for attempt in (files.read_text(path), files.write_text(path, "y")):
        path.unlink()
        path.write_text("x")
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", swapping)
            async with asyncio.timeout(TIMEOUT):
                with pytest.raises(ServiceError):
                    await attempt
    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert leftovers(root) == []


@aio
async def test_a_file_replaced_without_end_is_given_up(
    root: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("x")
    real_open = os.open

    def vanishing(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if name == "f":
            raise FileNotFoundError(2, "No such file or directory")
        return real_open(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", vanishing)
    with pytest.raises(FileFailed, match="repeatedly"):
        await files.read_text(root / "f")


@aio
async def test_unsaved_text_of_an_editor_comes_before_the_disk(root: Path) -> None:
    (root / "saved").write_text("on disk\n")
    (root / "link").symlink_to("open")
    asked: list[Path] = []

    def overlay(path: Path) -> str | None:
        asked.append(path)
        return {"open": "first\nunsaved ä\n", "bad": "\ud800", "big": "x" * 101}.get(path.name)

    files = Files(Workspace([root]), read_overlay=overlay, max_file_size=100)
    assert await files.read_text(root / "open") == "first\nunsaved ä\n"
    assert await files.read_text(root / "link", line=2, limit=1) == "unsaved ä\n"
    assert await files.read_text(root / "open", line=3) == ""
    assert await files.read_text(root / "saved") == "on disk\n"
    assert asked == [root / "open", root / "open", root / "open", root / "saved"]
    with pytest.raises(FileMissing):
        await files.read_text(root / "missing")
    with pytest.raises(NotText):
        await files.read_text(root / "bad")
    with pytest.raises(TooLarge):
        await files.read_text(root / "big")
    asked.clear()
    for refused in (root.parent / "open", "open"):
        with pytest.raises(ServiceError):
            await files.read_text(refused)
    assert asked == []


TEXTS = [
    "",
    "plain\n",
    "no end",
    "a\r\nb\rc\n\n",
    "\ufeffmark\r\n",
    "ä\U0001f600\0\u2028\n",
    "x" * 300_000,
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:10]))
@aio
async def test_what_was_written_is_what_is_read(root: Path, files: Files, text: str) -> None:
    await files.write_text(root / "f", text)
    assert (root / "f").read_bytes() == text.encode()
    assert await files.read_text(root / "f") == text
    assert leftovers(root) == []


@aio
async def test_missing_folders_are_made_for_a_new_file(root: Path, files: Files) -> None:
    await files.write_text(root / "a" / "b" / "c.txt", "deep")
    assert (root / "a" / "b" / "c.txt").read_text() == "deep"


@aio
async def test_the_permissions_of_an_existing_file_are_kept(root: Path, files: Files) -> None:
    for mode in (0o755, 0o600, 0o640, 0o666):
        path = root / f"{mode:o}"
        path.write_text("old")
        path.chmod(mode)
        await files.write_text(path, "new")
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert path.read_text() == "new"


@aio
async def test_new_text_does_not_get_the_powers_of_the_old_program(
    root: Path, files: Files
) -> None:
    path = root / "program"
    path.write_text("old")
    path.chmod(0o4755)
    await files.write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


@aio
async def test_a_new_file_gets_the_permissions_of_any_new_file(root: Path, files: Files) -> None:
    (root / "ordinary").touch()
    await files.write_text(root / "new", "text")
    assert (root / "new").stat().st_mode == (root / "ordinary").stat().st_mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@aio
async def test_the_owner_of_an_existing_file_is_kept(root: Path, files: Files) -> None:
    path = root / "f"
    path.write_text("old")
    os.chown(path, 1234, 2345)
    await files.write_text(path, "new")
    info = path.stat()
    assert (info.st_uid, info.st_gid) == (1234, 2345)


@aio
async def test_a_link_inside_is_followed_and_survives(root: Path, files: Files) -> None:
    (root / "target").write_text("old")
    (root / "link").symlink_to("target")
    (root / "dangling").symlink_to("sub/new")
    await files.write_text(root / "link", "new")
    await files.write_text(root / "dangling", "made")
    assert (root / "link").is_symlink()
    assert (root / "dangling").is_symlink()
    assert (root / "target").read_text() == "new"
    assert (root / "sub" / "new").read_text() == "made"


@aio
async def test_the_other_name_of_a_hard_link_keeps_its_text(root: Path, files: Files) -> None:
    outside = root.parent / "outside"
    outside.write_text(CANARY)
    os.link(outside, root / "inside")
    await files.write_text(root / "inside", "new")
    assert outside.read_text() == CANARY
    assert (root / "inside").read_text() == "new"


@aio
async def test_the_longest_name_a_system_allows_can_be_written(root: Path, files: Files) -> None:
    await files.write_text(root / ("n" * 255), "x")
    assert (root / ("n" * 255)).read_text() == "x"


@aio
async def test_a_text_over_the_limit_or_outside_unicode_touches_nothing(root: Path) -> None:
    files = Files(Workspace([root]), max_file_size=10)
    with pytest.raises(TooLarge, match="11 bytes"):
        await files.write_text(root / "folder" / "f", "x" * 11)
    with pytest.raises(ArgumentInvalid, match="UTF-8"):
        await files.write_text(root / "folder" / "f", "\ud800")
    assert os.listdir(root) == []


@aio
async def test_of_two_writers_at_once_one_wins_whole(root: Path, files: Files) -> None:
    texts = [str(number) * 200_000 for number in range(8)]
    async with asyncio.TaskGroup() as group:
        for text in texts:
            group.create_task(files.write_text(root / "f", text))
    assert (root / "f").read_text() in texts
    assert leftovers(root) == []


@pytest.mark.parametrize(("template", "on_read", "on_write"), HOSTILE, ids=short)
@aio
async def test_nothing_escapes_by_a_hostile_path(
    template: str, on_read: type[ServiceError], on_write: type[ServiceError] | None
) -> None:
    with quick_folder() as folder:
        tree = build(folder, long_chain="many" in template)
        files = Files(Workspace([tree.root, tree.second]))
        path = tree.path(template)
        with pytest.raises(on_read):
            await files.read_text(path)
        if on_write is None:
            await files.write_text(path, "written")
            assert await files.read_text(path) == "written"
        else:
            with pytest.raises(ServiceError):
                await files.write_text(path, "written")
        tree.assert_nothing_escaped()


class Gate:
    """Stops a worker thread at a call to the system until the test lets it go on."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real
        self.reached = threading.Event()
        self.open = threading.Event()
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        self.reached.set()
        assert self.open.wait(TIMEOUT)
        return self._real(*args, **kwargs)


async def reached(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, TIMEOUT)


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("cancellations", [1, 3])
@aio
async def test_a_cancelled_write_leaves_the_old_text_and_nothing_else(
    root: Path, files: Files, monkeypatch: pytest.MonkeyPatch, call: str, cancellations: int
) -> None:
    (root / "f").write_text("old")
    gate = Gate(getattr(os, call))
    async with asyncio.timeout(TIMEOUT):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, gate)
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(files.write_text(root / "f", "new" * 200_000))
                await reached(gate)
                for _ in range(cancellations):
                    writing.cancel()
                    await asyncio.sleep(0)
                    assert not writing.done()
                gate.open.set()
    assert writing.cancelled()
    assert gate.calls == 1
    assert (root / "f").read_text() == "old"
    assert leftovers(root) == []


@aio
async def test_a_cancelled_read_stops_reading(
    root: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("x" * 1_000_000)
    gate = Gate(os.read)
    monkeypatch.setattr(os, "read", gate)
    async with asyncio.timeout(TIMEOUT):
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(files.read_text(root / "f"))
            await reached(gate)
            reading.cancel()
            await asyncio.sleep(0)
            gate.open.set()
    assert reading.cancelled()
    assert gate.calls == 1


@aio
async def test_a_write_that_is_given_up_may_have_been_done_and_does_no_harm_later(
    root: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("old")
    monkeypatch.setattr(tasks, "ANSWER_TIMEOUT", 0.01)
    for call, attempt, may_have_run in (
        ("read", lambda: files.read_text(root / "f"), False),
        ("fsync", lambda: files.write_text(root / "f", "new"), True),
    ):
        gate = Gate(getattr(os, call))
        with monkeypatch.context() as patch:
            patch.setattr(os, call, gate)
            with pytest.raises(FileFailed, match="did not answer") as caught:
                await attempt()
            assert caught.value.may_have_run is may_have_run
            await reached(gate)
            gate.open.set()
    # The threads are awaited, so that the abandoned write has had its chance to do harm.
    await asyncio.to_thread(tasks._threads.settle)
    assert (root / "f").read_text() == "old"
    assert leftovers(root) == []
