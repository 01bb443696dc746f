"""What was found out about programs, on disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dragoman.catalogue import discovery_store
from dragoman.catalogue.discovery_store import FAILURE_LIFETIME, MAX_KNOWN, DiscoveryStore
from dragoman.dialects.discovery import Program

AGENT = Program("/bin/agent", 10, 20)


def test_another_process_finds_what_was_found_out(tmp_path: Path) -> None:
    DiscoveryStore(tmp_path).put(AGENT, "dialect", "chained")
    DiscoveryStore(tmp_path).put(AGENT, "chained.list", "listSessions")
    store = DiscoveryStore(tmp_path)
    assert store.get(AGENT, "dialect") == "chained"
    assert store.get(AGENT, "chained.list") == "listSessions"
    assert store.get(AGENT, "chained.prompt") is None


def test_another_file_under_the_same_path_is_another_program(tmp_path: Path) -> None:
    store = DiscoveryStore(tmp_path)
    store.put(AGENT, "dialect", "chained")
    changed = Program("/bin/agent", 11, 20)
    assert store.get(changed, "dialect") is None
    store.put(changed, "chained.list", "listSessions")
    assert DiscoveryStore(tmp_path).get(changed, "dialect") is None
    assert DiscoveryStore(tmp_path).get(AGENT, "dialect") is None
    assert store.get(Program("/bin/other", 10, 20), "dialect") is None


def test_what_no_name_worked_for_is_asked_again_after_a_day(tmp_path: Path) -> None:
    now = 1_000.0
    store = DiscoveryStore(tmp_path, clock=lambda: now)
    store.put(AGENT, "chained.list", "")
    store.put(AGENT, "chained.prompt", "sendMessage")
    assert store.get(AGENT, "chained.list") == ""
    now += FAILURE_LIFETIME + 1
    assert store.get(AGENT, "chained.list") is None
    assert store.get(AGENT, "chained.prompt") == "sendMessage"


def test_two_processes_that_write_keep_what_the_other_has_found(tmp_path: Path) -> None:
    one, other = DiscoveryStore(tmp_path), DiscoveryStore(tmp_path)
    assert one.get(AGENT, "a") is None and other.get(AGENT, "b") is None
    one.put(AGENT, "a", "1")
    other.put(AGENT, "b", "2")
    assert DiscoveryStore(tmp_path).get(AGENT, "a") == "1"


def test_what_is_known_already_is_not_written_again(tmp_path: Path) -> None:
    store = DiscoveryStore(tmp_path)
    store.put(AGENT, "a", "1")
    (file,) = store.folder.iterdir()
    file.unlink()
    store.put(AGENT, "a", "1")
    assert not file.exists()


def test_files_of_the_discovery_store_are_private(tmp_path: Path) -> None:
    store = DiscoveryStore(tmp_path / "cache")
    store.put(AGENT, "a", "1")
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"format": 9, "program": {}}', b"\xff", b"[" * 300_000]
)
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, text: bytes) -> None:
    store = DiscoveryStore(tmp_path)
    store.put(AGENT, "a", "1")
    (file,) = store.folder.iterdir()
    file.write_bytes(text)
    again = DiscoveryStore(tmp_path)
    assert again.get(AGENT, "a") is None
    again.put(AGENT, "a", "2")
    assert DiscoveryStore(tmp_path).get(AGENT, "a") == "2"


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    store = DiscoveryStore(tmp_path / "cache")
    store.put(AGENT, "a", "1")
    assert store.get(AGENT, "a") == "1"
    assert DiscoveryStore(tmp_path / "cache").get(AGENT, "a") is None


def test_only_the_newest_programs_and_facts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery_store, "MAX_PROGRAMS", 2)
    store = DiscoveryStore(tmp_path)
    for number in range(4):
        store.put(Program(f"/bin/{number}", 1, 1), "a", "1")
        newest = max(store.folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    assert len(list(store.folder.iterdir())) == 2
    assert DiscoveryStore(tmp_path).get(Program("/bin/3", 1, 1), "a") == "1"
    for number in range(MAX_KNOWN + 1):
        store.put(AGENT, str(number), "1")
    again = DiscoveryStore(tmp_path)
    assert again.get(AGENT, "0") is None and again.get(AGENT, str(MAX_KNOWN)) == "1"
