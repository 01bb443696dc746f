"""Staying inside by name: the rules of Windows, and the part that runs on any system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.client.services import named_paths, workspace
from dragoman.client.services.files import Files
from dragoman.client.services.workspace import Workspace
from dragoman.errors import ArgumentInvalid, FileFailed, FileMissing, PathRefused, ServiceError
from tests.aio import aio
from tests.unit.client.services.hostile_tree import CANARY, HostileTree, build, quick_folder


@pytest.fixture
def tree() -> Iterator[HostileTree]:
    with quick_folder() as folder:
        yield build(folder)


@pytest.mark.parametrize(
    "text",
    [
        "C:\\work\\con",
        "C:\\work\\NUL",
        "C:\\work\\aux.txt",
        "C:\\work\\COM1",
        "C:\\work\\com1.tar.gz",
        "C:\\work\\LPT9 .txt",
        "C:\\work\\COM¹",
        "C:\\work\\CONIN$",
        "C:\\work\\con\\file.txt",
        "C:\\work\\file.txt:stream",
        "C:\\work\\file.txt::$DATA",
        "C:\\work\\file.txt.",
        "C:\\work\\file.txt ",
        "C:\\work\\folder.\\file.txt",
        "C:\\work\\...\\file.txt",
        "C:\\work\\what?.txt",
        "C:\\work\\*",
        "C:\\work\\a|b",
        "C:\\work\\a\tb",
        "\\\\?\\C:\\work\\file.txt",
        "\\\\.\\PhysicalDrive0",
        "//./pipe/x",
        "//?/C:/work",
        "\\??\\C:\\work",
    ],
)
def test_a_name_that_windows_does_not_take_literally_is_refused(
    tree: HostileTree, text: str
) -> None:
    with pytest.raises(PathRefused):
        named_paths.find(text, [tree.root], make=False, windows=True)


@pytest.mark.parametrize("text", ["", "file.txt", "\\file.txt", "C:file.txt", "..\\x", "C:\\a\0b"])
def test_a_path_that_depends_on_the_current_folder_is_invalid(tree: HostileTree, text: str) -> None:
    with pytest.raises(ArgumentInvalid):
        named_paths.find(text, [tree.root], make=False, windows=True)


@pytest.mark.parametrize(
    "text",
    ["C:\\work\\file.txt", "c:/work/.hidden", "\\\\server\\share\\a.b", "D:\\a\\..\\console.log"],
)
def test_an_ordinary_name_is_only_compared_with_the_roots(tree: HostileTree, text: str) -> None:
    with pytest.raises(PathRefused, match="outside"):
        named_paths.find(text, [tree.root], make=False, windows=True)


def test_a_path_of_absurd_length_is_refused(tree: HostileTree) -> None:
    with pytest.raises(PathRefused, match="longer than 32767"):
        named_paths.find("C:\\" + "a\\" * 20_000, [tree.root], make=False, windows=True)


def test_a_relative_path_is_invalid_everywhere(tree: HostileTree) -> None:
    with pytest.raises(ArgumentInvalid):
        named_paths.find("file.txt", [tree.root], make=False, windows=False)


@pytest.mark.parametrize(
    "name", ["out_file", "out_dir/secret.txt", "../s.txt", "../root-evil/secret.txt", "out_new"]
)
def test_links_and_dots_that_lead_outside_are_refused_by_name_too(
    tree: HostileTree, name: str
) -> None:
    for make in (False, True):
        with pytest.raises(PathRefused, match="outside"):
            named_paths.find(f"{tree.root}/{name}", [tree.root], make=make)
    tree.assert_nothing_escaped()


def test_what_is_there_is_found_and_what_is_not_is_none(tree: HostileTree) -> None:
    real, info = named_paths.find(f"{tree.root}/in_file", [tree.second, tree.root], make=False)
    assert real == tree.root / "file.txt"
    assert info is not None
    assert info.st_ino == os.stat(real).st_ino
    assert named_paths.find(str(tree.root), [tree.root], make=False)[0] == tree.root
    real, info = named_paths.find(f"{tree.root}/a/b/c.txt", [tree.root], make=False)
    assert (real, info) == (tree.root / "a" / "b" / "c.txt", None)
    assert not (tree.root / "a").exists()
    named_paths.find(f"{tree.root}/a/b/c.txt", [tree.root], make=True)
    assert (tree.root / "a" / "b").is_dir()


def test_a_file_in_place_of_a_folder_is_an_error_with_its_reason(tree: HostileTree) -> None:
    with pytest.raises(FileFailed):
        named_paths.find(f"{tree.root}/file.txt/x/y", [tree.root], make=True)
    with pytest.raises(FileFailed):
        named_paths.find(f"{tree.root}/file.txt/x", [tree.root], make=False)


def test_a_folder_that_turns_out_to_be_a_link_outside_is_refused(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hijacked(path: Path, *_: object, **__: object) -> None:
        path.symlink_to(tree.outside)

    monkeypatch.setattr(Path, "mkdir", hijacked)
    with pytest.raises(PathRefused, match="outside"):
        named_paths.find(f"{tree.root}/new/file.txt", [tree.root], make=True)


def test_an_opened_file_that_is_not_the_compared_one_is_refused(tree: HostileTree) -> None:
    file = tree.root / "file.txt"
    named_paths.require_same(str(file), file, os.stat(file))
    with pytest.raises(PathRefused, match="replaced"):
        named_paths.require_same(str(file), file, os.stat(tree.outside / "secret.txt"))
    with pytest.raises(PathRefused, match="replaced"):
        named_paths.require_same(str(file), tree.root / "gone", os.stat(file))
    with pytest.raises(PathRefused, match="replaced"):
        named_paths.require_same(str(file), tree.root / "in_file", os.stat(file))


@aio
async def test_files_work_by_name_where_the_system_cannot_walk(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "CAN_WALK", False)
    files = Files(Workspace([tree.root]))
    await files.write_text(tree.root / "new" / "file.txt", "new")
    await files.write_text(tree.root / "in_file", "changed")
    assert await files.read_text(tree.root / "new" / "file.txt") == "new"
    assert (tree.root / "file.txt").read_text() == "changed"
    assert (tree.root / "in_file").is_symlink()
    with pytest.raises(FileMissing):
        await files.read_text(tree.root / "missing")
    for name in ("out_file", "out_dir/secret.txt", "out_new", "fifo", "dir"):
        with pytest.raises(ServiceError):
            assert await files.read_text(tree.root / name) != CANARY
        with pytest.raises(ServiceError):
            await files.write_text(tree.root / name, "x")
    tree.assert_nothing_escaped()
