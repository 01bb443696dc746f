"""A folder is the one that its caller means."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.client.folders import absolute


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


def test_an_absolute_folder_stays_what_it_is(tmp_path: Path) -> None:
    assert absolute(tmp_path) == tmp_path
