"""Directories and files are swapped for links while a peer reads and writes: nothing outside is
reached."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.services.files import Files
from dragoman.client.services.workspace import Workspace
from dragoman.errors import PathRefused, ServiceError
from tests.aio import aio
from tests.unit.client.services.hostile_tree import CANARY, build, quick_folder

ROUNDS = 400
"""Requests during the attack. With a plain open in place of the walk, one of the first ten would
escape."""

AT_FDCWD = -100
RENAME_EXCHANGE = 2

TIMEOUT = 40.0
"""Seconds for all rounds on a busy machine."""


exchange_names: Any = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)

needs_exchange = pytest.mark.skipif(
    exchange_names is None, reason="this system cannot exchange two names in one step"
)


@contextlib.contextmanager
def swapping(path: Path, target: Path) -> Iterator[threading.Event]:
    """Swap `path` for a link to `target` and back, again and again."""
    stop = threading.Event()
    swapped = threading.Event()
    link = path.with_name(f"{path.name}.link")
    link.symlink_to(target)
    names = (AT_FDCWD, os.fsencode(path), AT_FDCWD, os.fsencode(link), RENAME_EXCHANGE)

    def swap() -> None:
        while not stop.is_set():
            # Something always exists at the path, so a request never finds it missing.
            assert exchange_names(*names) == 0, os.strerror(ctypes.get_errno())
            swapped.set()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield swapped
    finally:
        stop.set()
        thread.join()


async def attack(files: Files, path: Path, swapped: threading.Event) -> tuple[int, int]:
    """Return how many requests succeeded and how many were refused during the swapping."""
    done = refused = 0
    assert await asyncio.to_thread(swapped.wait, TIMEOUT)
    for number in range(ROUNDS):
        try:
            if number % 2:
                await files.write_text(path, "inside")
            else:
                assert await files.read_text(path) != CANARY
            done += 1
        except PathRefused:
            refused += 1
    return done, refused


@needs_exchange
@aio
async def test_a_folder_that_is_swapped_for_a_link_never_lets_anything_out() -> None:
    with quick_folder() as folder:
        tree = build(folder, long_chain=False)
        files = Files(Workspace([tree.root]))
        (tree.root / "dir" / "secret.txt").write_text("inside")
        async with asyncio.timeout(TIMEOUT):
            with swapping(tree.root / "dir", tree.outside) as swapped:
                done, refused = await attack(files, tree.root / "dir" / "secret.txt", swapped)
        assert done
        assert refused
        tree.assert_nothing_escaped()


@needs_exchange
@aio
async def test_a_file_that_is_swapped_for_a_link_never_lets_anything_out() -> None:
    with quick_folder() as folder:
        tree = build(folder, long_chain=False)
        files = Files(Workspace([tree.root]))
        target = tree.root / "dir" / "secret.txt"
        target.write_text("inside")
        async with asyncio.timeout(TIMEOUT):
            # Reads only: a write would put a file where the swapping expects its link.
            with swapping(target, tree.outside / "secret.txt") as swapped:
                assert await asyncio.to_thread(swapped.wait, TIMEOUT)
                for _ in range(ROUNDS):
                    with contextlib.suppress(ServiceError):
                        assert await files.read_text(target) == "inside"
        tree.assert_nothing_escaped()


@aio
async def test_readers_see_the_old_text_or_the_new_and_never_a_mixture(tmp_path: Path) -> None:
    files = Files(Workspace([tmp_path]))
    texts = ["a" * 100_000, "b" * 300_000]
    await files.write_text(tmp_path / "f", texts[0])

    async def write() -> None:
        for number in range(40):
            await files.write_text(tmp_path / "f", texts[number % 2])

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        writing = group.create_task(write())
        while not writing.done():
            assert await files.read_text(tmp_path / "f") in texts
    assert os.listdir(tmp_path) == ["f"]
