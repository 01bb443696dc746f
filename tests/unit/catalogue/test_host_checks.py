"""Stored checks of other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.catalogue.host_checks import (
    Finding,
    HostAgent,
    HostCheck,
    forget_check,
    last_check,
    store_check,
)
from dragoman.errors import FileFailed
from tests.unit.config.folders import paths_in

CHECK = HostCheck(
    host="box",
    destination="me@box",
    findings=(Finding("git", "ok", "2.39"),),
    agents=(HostAgent(name="codex", installed=True, roles=("review",)),),
    dragoman="/opt/dragoman",
)


def test_a_check_is_stored_until_it_is_removed(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    assert last_check(paths, "box") is None
    store_check(paths, CHECK)
    assert last_check(paths, "box") == CHECK
    forget_check(paths, "box")
    forget_check(paths, "box")
    assert last_check(paths, "box") is None


def test_a_damaged_file_counts_as_no_check(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    store_check(paths, CHECK)
    (paths.state / "hosts" / "box.json").write_bytes(b"{")
    assert last_check(paths, "box") is None


def test_a_machine_without_dragoman_cannot_work() -> None:
    missing = Finding("dragoman", "missing", "not installed")
    assert CHECK.ok
    assert not HostCheck(host="box", destination="box", findings=(missing,)).ok


def test_a_check_that_cannot_be_stored_or_deleted_names_its_file(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    (paths.state / "hosts" / "box.json" / "below").mkdir(parents=True)
    with pytest.raises(FileFailed, match=r"hosts/box.json.*the check could not be stored"):
        store_check(paths, CHECK)
    with pytest.raises(FileFailed, match=r"hosts/box.json.*it cannot be deleted"):
        forget_check(paths, "box")


def test_without_a_state_directory_there_is_no_check_to_delete(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    paths.state.parent.mkdir(parents=True, exist_ok=True)
    paths.state.touch()
    forget_check(paths, "box")
