"""Changed files are reported, by the system or by polling."""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path

import pytest

from dragoman.transports import file_watch
from dragoman.transports.file_watch import FileWatch
from tests.aio import aio


class Told:
    def __init__(self) -> None:
        self.names: list[tuple[Path, str]] = []
        self._changed = asyncio.Event()

    def __call__(self, folder: Path, name: str) -> None:
        self.names.append((folder, name))
        self._changed.set()

    async def until(self, folder: Path, name: str) -> None:
        async with asyncio.timeout(10):
            while (folder, name) not in self.names:
                self._changed.clear()
                await self._changed.wait()
        self.names.clear()


@aio
@pytest.mark.parametrize("by_system", [True, False])
async def test_files_that_come_change_move_and_go_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_system: bool
) -> None:
    if not by_system:
        monkeypatch.setattr(FileWatch, "_start_inotify", lambda self, folders: False)
        monkeypatch.setattr(file_watch, "LOOK_INTERVAL", 0.01)
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    told = Told()
    watch = FileWatch([one, two, tmp_path / "missing"], told)
    try:
        (one / "new").write_text("x")
        await told.until(one, "new")
        with (one / "new").open("a") as file:
            file.write("more")
        await told.until(one, "new")
        os.replace(one / "new", two / "moved")
        await told.until(two, "moved")
        (two / "moved").unlink()
        await told.until(two, "moved")
    finally:
        watch.close()


@aio
async def test_nothing_is_reported_after_the_end(tmp_path: Path) -> None:
    told, told_later = Told(), Told()
    watch = FileWatch([tmp_path], told)
    other = FileWatch([tmp_path], told_later)
    watch.close()
    watch.close()
    try:
        (tmp_path / "new").write_text("x")
        await told_later.until(tmp_path, "new")
        assert told.names == []
    finally:
        other.close()


@aio
async def test_after_an_overflow_of_the_system_every_file_counts_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    watch = FileWatch([tmp_path], told)
    try:
        if watch._fd < 0:
            pytest.skip("needs inotify")
        (tmp_path / "one").write_text("x")
        await told.until(tmp_path, "one")
        overflow = struct.pack("iIII", -1, 0x4000, 0, 0)
        monkeypatch.setattr(os, "read", lambda fd, size: overflow)
        watch._readable()
        assert told.names == [(tmp_path, "one")]
    finally:
        watch.close()
