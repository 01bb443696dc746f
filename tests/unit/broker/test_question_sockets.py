"""The question sockets of runs without a broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.broker import question_sockets
from dragoman.paths import Paths


def paths_in(folder: Path) -> Paths:
    return Paths(config=folder, data=folder, cache=folder, state=folder, runtime=folder / "runtime")


def test_an_address_is_in_a_private_directory_and_can_be_listed(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    assert question_sockets.addresses(paths) == []
    address = question_sockets.new_address(paths)
    Path(address).touch()
    assert question_sockets.questions_folder(paths).stat().st_mode & 0o077 == 0
    assert question_sockets.addresses(paths) == [os.path.realpath(address)]
    question_sockets.forget_address(paths, address)
    assert question_sockets.addresses(paths) == []


def test_a_path_that_is_too_long_for_a_socket_is_found_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_sockets, "short_folder", lambda: tmp_path / "short")
    paths = paths_in(tmp_path / ("long" * 30))
    address = question_sockets.new_address(paths)
    assert Path(address).parent == tmp_path / "short"
    Path(address).touch()
    assert question_sockets.addresses(paths) == [os.path.realpath(address)]
    question_sockets.forget_address(paths, address)
    assert not Path(address).exists()
    assert question_sockets.addresses(paths) == []
