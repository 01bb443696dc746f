"""A folder is the one that its caller means, and ours are for their owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dragoman.client.folders import absolute, make_private, make_state

posix = pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")


def test_a_relative_folder_is_seen_from_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("here") == tmp_path / "here"
    assert absolute(Path("here")) == tmp_path / "here"


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert absolute("~/work") == tmp_path / "work"


def test_the_home_of_an_unknown_user_is_a_name_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("~no-such-user/x") == tmp_path / "~no-such-user" / "x"


def test_an_absolute_folder_stays_what_it_is(tmp_path: Path) -> None:
    assert absolute(tmp_path) == tmp_path


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@posix
@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_every_folder_on_the_way_is_for_its_owner_alone_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        make_private(tmp_path / "a" / "b" / "c")
        make_private(tmp_path / "a" / "b" / "d")
    finally:
        os.umask(before)
    made = [tmp_path / name for name in ("a", "a/b", "a/b/c", "a/b/d")]
    assert {mode_of(folder) for folder in made} == {0o700}


@posix
def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there").chmod(0o755)
    (tmp_path / "link").symlink_to("there")
    make_private(tmp_path / "there")
    make_private(tmp_path / "link")
    assert mode_of(tmp_path / "there") == 0o755
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError):
            make_private(wrong)


@posix
def test_a_state_folder_of_our_own_name_is_closed_to_others(tmp_path: Path) -> None:
    for name, mode in (("dragoman", 0o700), ("shared", 0o775)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o775)
        make_state(tmp_path / name)
        assert mode_of(tmp_path / name) == mode


def test_a_parent_that_another_process_creates_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def mkdir(folder: Path, mode: int) -> None:
        try:
            make(folder, mode)
        except FileNotFoundError:
            make(folder.parent, mode)
            raise

    monkeypatch.setattr(os, "mkdir", mkdir)
    make_private(tmp_path / "runtime" / "names")
    assert (tmp_path / "runtime" / "names").is_dir()


def test_a_folder_that_cannot_be_made_in_one_that_is_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(folder: Path, mode: int) -> None:
        raise FileNotFoundError(folder)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(FileNotFoundError):
        make_private(tmp_path / "names")
