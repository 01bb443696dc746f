"""The walk itself: what it does at each kind of name, and that it cannot be raced."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.services import path_walk as module
from dragoman.client.services.path_walk import Entry, Missing, failed, split, walk
from dragoman.errors import FileFailed, FileMissing, PathRefused, ServiceError
from tests.unit.client.services.hostile_tree import CANARY, HostileTree, build, quick_folder


@pytest.fixture
def tree() -> Iterator[HostileTree]:
    with quick_folder() as folder:
        yield build(folder)


def entries(tree: HostileTree) -> list[Entry]:
    parts = tree.root.parts[1:]
    return [(parts, parts)]


@pytest.mark.parametrize(
    ("text", "names", "as_folder"),
    [
        ("/a/b", ["a", "b"], False),
        ("//a///b", ["a", "b"], False),
        ("/./a/./b", ["a", "b"], False),
        ("/a/b/", ["a", "b"], True),
        ("/a/b/.", ["a", "b"], True),
        ("/a/..", ["a", ".."], True),
        ("..", [".."], True),
        (".", [], True),
        ("/", [], True),
        ("a/...", ["a", "..."], False),
        ("/a.", ["a."], False),
    ],
)
def test_a_path_is_split_into_names(text: str, names: list[str], as_folder: bool) -> None:
    assert split(text) == (names, as_folder)


def test_a_place_is_an_open_folder_and_a_name_in_it(tree: HostileTree) -> None:
    with walk(f"{tree.root}/in_dir/inner.txt", entries(tree), "fail") as place:
        assert place.name == "inner.txt"
        assert place.folder_fd is not None
        assert os.path.samestat(os.fstat(place.folder_fd), os.stat(tree.root / "dir"))
        assert place.info is not None
        assert place.info.st_ino == os.stat(tree.root / "dir" / "inner.txt").st_ino
        assert place.sibling("other") == "other"


def test_missing_folders_are_made_only_when_asked_for(tree: HostileTree) -> None:
    path = f"{tree.root}/one/two/three.txt"
    with pytest.raises(FileMissing):
        walk(path, entries(tree), "fail")
    with walk(path, entries(tree), "imagine") as place:
        assert place.real_path == Path(path)
    assert not (tree.root / "one").exists()
    with walk(path, entries(tree), "make") as place:
        assert place.real_path == Path(path)
        assert place.info is None
    assert (tree.root / "one" / "two").is_dir()
    assert not Path(path).exists()


def test_folders_are_made_where_a_dangling_link_points(tree: HostileTree) -> None:
    with walk(f"{tree.root}/dangling_deep", entries(tree), "make") as place:
        assert place.real_path == tree.root / "fresh" / "folder" / "missing.txt"
    assert (tree.root / "fresh" / "folder").is_dir()
    assert (tree.root / "dangling_deep").is_symlink()


def test_a_folder_that_appears_while_it_is_being_made_is_used(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_mkdir = os.mkdir

    def late(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real_mkdir(name, mode, dir_fd=dir_fd)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "mkdir", late)
    with walk(f"{tree.root}/one/two.txt", entries(tree), "make") as place:
        assert place.real_path == tree.root / "one" / "two.txt"


def test_a_link_that_appears_where_a_folder_was_to_be_made_is_not_trusted(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hijacked(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        (tree.root / name).symlink_to(tree.outside)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "mkdir", hijacked)
    with pytest.raises(PathRefused, match="outside"):
        walk(f"{tree.root}/one/two.txt", entries(tree), "make")
    tree.assert_nothing_escaped()


def test_a_folder_that_cannot_be_made_says_why(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(FileFailed, match="No space left") as caught:
        walk(f"{tree.root}/one/two.txt", entries(tree), "make")
    assert caught.value.errno == errno.ENOSPC


def test_a_folder_that_vanishes_again_and_again_does_not_hold_us(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "mkdir", lambda name, mode=0o777, *, dir_fd=None: None)
    with pytest.raises(PathRefused, match="too many symbolic links"):
        walk(f"{tree.root}/one/two.txt", entries(tree), "make")


def test_a_path_made_to_be_slow_is_given_up(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 50)
    with pytest.raises(PathRefused, match="too many symbolic links"):
        walk(f"{tree.root}/{'dir/../' * 50}file.txt", entries(tree), "fail")


def test_forty_links_are_followed_and_forty_one_are_not(tree: HostileTree) -> None:
    with walk(f"{tree.root}/many20", entries(tree), "fail") as place:
        assert place.real_path == tree.root / "file.txt"
    with pytest.raises(PathRefused, match="too many symbolic links"):
        walk(f"{tree.root}/many19", entries(tree), "fail")


@pytest.mark.parametrize("at_once", [True, False])
def test_running_out_of_descriptors_is_the_worlds_fault_and_loses_none(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    opened = 3 if at_once else len(tree.root.parts) + 2
    if not at_once:
        monkeypatch.setattr(module, "_open_at_once", lambda path: -1)
    real_open = os.open
    left = 0

    def scarce(path: str, flags: int, *args: Any, dir_fd: int | None = None) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.EMFILE, "Too many open files")
        left -= 1
        return real_open(path, flags, *args, dir_fd=dir_fd)

    for allowed in range(opened):
        left = allowed
        before = len(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", scarce)
            with pytest.raises(FileFailed, match="Too many open files"):
                walk(f"{tree.root}/dir/deep/low.txt", entries(tree), "fail")
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_root_with_a_link_in_its_path_is_refused(tmp_path: Path) -> None:
    """Both ways to open a root see it: by its whole path, and one folder after the other."""
    real, outside = tmp_path / "real", tmp_path / "outside"
    for folder in (real / "root", outside / "root"):
        folder.mkdir(parents=True)
        (folder / "f").write_text("x")
    parts = (real / "root").parts[1:]
    with walk(f"{real}/root/f", [(parts, parts)], "fail") as place:
        assert place.info is not None
    real.rename(tmp_path / "moved")
    real.symlink_to(outside)
    with pytest.raises(PathRefused, match="gone or was moved"):
        walk(f"{real}/root/f", [(parts, parts)], "fail")


def test_what_the_system_says_becomes_an_error_of_ours() -> None:
    full = failed("/x", OSError(errno.ENOSPC, "No space left on device"))
    assert isinstance(full, FileFailed)
    assert (full.errno, str(full)) == (errno.ENOSPC, "'/x': No space left on device")
    assert isinstance(failed("/x", OSError(errno.ENAMETOOLONG, "too long")), PathRefused)


Swap = Callable[[HostileTree], None]


def swap_folder_for_link(tree: HostileTree) -> None:
    (tree.root / "dir").rename(tree.root / "aside")
    (tree.root / "dir").symlink_to(tree.outside / "dir")


def swap_file_for_link(tree: HostileTree) -> None:
    (tree.root / "dir" / "secret.txt").unlink()
    (tree.root / "dir" / "secret.txt").symlink_to(tree.outside / "secret.txt")


def swap_file_for_fifo(tree: HostileTree) -> None:
    (tree.root / "dir" / "secret.txt").unlink()
    os.mkfifo(tree.root / "dir" / "secret.txt")


def swap_file_for_folder(tree: HostileTree) -> None:
    (tree.root / "dir" / "secret.txt").unlink()
    (tree.root / "dir" / "secret.txt").mkdir()


def swap_root_for_link(tree: HostileTree) -> None:
    tree.root.rename(tree.base / "kept")
    tree.root.symlink_to(tree.outside)


def swap_link_target(tree: HostileTree) -> None:
    (tree.root / "in_dir").unlink()
    (tree.root / "in_dir").symlink_to(tree.outside / "dir")


SWAPS: list[Swap] = [
    swap_folder_for_link,
    swap_file_for_link,
    swap_file_for_fifo,
    swap_file_for_folder,
    swap_root_for_link,
    swap_link_target,
]

CALLS = ("open", "lstat", "readlink", "mkdir", "fstat")


@pytest.mark.parametrize("swap", SWAPS, ids=lambda swap: swap.__name__)
@pytest.mark.parametrize("path", ["dir/secret.txt", "in_dir/secret.txt", "dir/../dir/secret.txt"])
@pytest.mark.parametrize("missing", ["fail", "make"])
def test_a_swap_before_any_single_call_leads_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, swap: Swap, path: str, missing: Missing
) -> None:
    """The same walk is repeated, with the swap before its first call, its second, and so on."""
    number = 0
    swapped = True
    while swapped:
        with quick_folder() as folder, monkeypatch.context() as patch:
            tree = build(folder, long_chain=False)
            (tree.root / "dir" / "secret.txt").write_text("inside")
            calls = _swap_before(patch, number, functools.partial(swap, tree))
            with contextlib.suppress(ServiceError, OSError):
                _walk_and_read(tree, path, missing)
            patch.undo()
            tree.assert_nothing_escaped()
        swapped = calls[0] > number
        number += 1
    assert number > 5


def _walk_and_read(tree: HostileTree, path: str, missing: Missing) -> None:
    with walk(f"{tree.root}/{path}", entries(tree), missing) as place:
        if place.info is None:
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(place.name, flags, dir_fd=place.folder_fd)
        try:
            assert os.read(fd, 100) != CANARY.encode()
        finally:
            os.close(fd)


def _swap_before(
    monkeypatch: pytest.MonkeyPatch, number: int, swap: Callable[[], None]
) -> list[int]:
    """Have `swap` done before the call to the system with this number. Counts the calls."""
    calls = [0]
    swapping = [False]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not swapping[0]:
                if calls[0] == number:
                    swapping[0] = True
                    swap()
                    swapping[0] = False
                calls[0] += 1
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return calls
