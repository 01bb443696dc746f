"""What a broker writes down is whole, or not there."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec
import pytest

from dragoman.broker.records import BrokerRecord, RecordFile, read_record, read_records
from dragoman.config.safe_files import write_whole
from dragoman.transports.process.identity import own_identity


def record(name: str = "tool-1") -> BrokerRecord:
    return BrokerRecord(
        name=name,
        address="/x.sock",
        peer="tool",
        workspace="/w",
        version="1",
        broker=own_identity(),
        owner="cafe",
        started_at=1.0,
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "tool-1.7.json", record())
    file.write()
    assert read_record(file.path) == record()
    assert file.path.stat().st_mode & 0o777 == 0o600
    file.add(os.getpid())
    [child] = (read_record(file.path) or pytest.fail("no record")).children
    assert child == own_identity()
    file.add(2**22 + 1)  # Gone before it could be written down: there is nothing to clean up.
    assert len(file.record.children) == 1
    file.drop(os.getpid())
    file.drain()
    changed = read_record(file.path)
    assert changed is not None and changed.children == () and changed.draining
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_stops_no_broker_and_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = RecordFile(tmp_path / "tool-1.7.json", record())
    file.write()

    def full(source: str, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with caplog.at_level(logging.WARNING):
        file.drain()
    assert "No space left" in caplog.text
    assert read_record(file.path) == record()
    assert [path.name for path in tmp_path.iterdir()] == ["tool-1.7.json"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"name": 3}', b"\xff", b"[" * 100_000])
def test_what_is_not_a_record_is_none(tmp_path: Path, text: bytes) -> None:
    write_whole(tmp_path / "x.json", text)
    assert read_record(tmp_path / "x.json") is None
    assert list(read_records(tmp_path)) == [(tmp_path / "x.json", None)]


def test_records_are_found_in_their_folder_and_nothing_else_is(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "none")) == []
    write_whole(tmp_path / "b.1.json", msgspec.json.encode(record("b")))
    write_whole(tmp_path / "a.1.json", msgspec.json.encode(record("a")))
    (tmp_path / "a.lock").touch()
    names = [found.name for _, found in read_records(tmp_path) if found is not None]
    assert names == ["a", "b"]
