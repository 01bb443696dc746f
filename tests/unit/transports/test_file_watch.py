"""Changed files are reported, by the system or by polling."""

from __future__ import annotations

import asyncio
import os
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
async def test_files_that_come_change_move_and_go_are_told(
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
async def test_nothing_is_told_after_the_end(tmp_path: Path) -> None:
    told = Told()
    watch = FileWatch([tmp_path], told)
    watch.close()
    watch.close()
    (tmp_path / "new").write_text("x")
    await asyncio.sleep(0.05)
    assert told.names == []
