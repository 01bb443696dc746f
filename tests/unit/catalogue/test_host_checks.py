"""Stored checks of other machines."""

from __future__ import annotations

from pathlib import Path

from dragoman.catalogue.host_checks import (
    Finding,
    HostAgent,
    HostCheck,
    forget_check,
    last_check,
    store_check,
)
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
