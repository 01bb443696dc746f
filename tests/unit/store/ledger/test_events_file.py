"""events.jsonl: whole lines, in order, without secrets, in files of a bounded size."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import StoreBusy, StoreCorrupt, StoreFull, StoreRefused
from dragoman.redaction.redactor import Redactor
from dragoman.store.ledger import events_file
from dragoman.store.ledger.events_file import (
    KEPT,
    EventName,
    EventsFile,
    LoggedEvent,
    events_path,
    logged,
    older,
)
from dragoman.store.ledger.records import Tokens
from dragoman.store.values import Charge, Provenance
from tests.unit.store.ledger.samples import START, attempt

SECRET = "sk-planted-0123456789abcdefghij"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def event(detail: str | None = None) -> LoggedEvent:
    return logged(EventName.PEER_CALL_STARTED, attempt(), at=START, detail=detail)


def test_every_line_has_every_field(tmp_path: Path) -> None:
    log = EventsFile(events_path(tmp_path))
    log.write(logged(EventName.DELEGATION_DECIDED, at=START, job="j-1", role="review"))
    ended = attempt(
        ended_at=START + 2,
        outcome="crashed",
        error_class="process_exited",
        model="gpt-5",
        tokens=Tokens(input=5, output=6, provenance=Provenance.REPORTED),
        cost=Charge(amount=0.5, currency="USD", provenance=Provenance.DERIVED),
    )
    log.write(logged(EventName.PEER_CALL_FAILED, ended, at=START + 2, detail="it is gone"))
    decided, failed = lines_of(tmp_path / "events.jsonl")
    assert list(decided) == list(failed) == list(LoggedEvent.__struct_fields__)
    assert decided["event"] == "delegation_decided" and decided["peer_id"] is None
    assert failed == {
        "time": "2027-01-15T08:00:02.000+00:00",
        "event": "peer_call_failed",
        "job": "j-1",
        "decision": "d-1",
        "attempt": 1,
        "runtime_role": "peer",
        "peer_id": "codex",
        "role": "review",
        "tier": "strong",
        "model": "gpt-5",
        "outcome": "crashed",
        "error_class": "process_exited",
        "tokens_in": 5,
        "tokens_out": 6,
        "tokens_provenance": "reported",
        "cost": 0.5,
        "currency": "USD",
        "cost_provenance": "derived",
        "duration": 2.0,
        "detail": "it is gone",
        "machine": None,
    }


def test_only_this_user_may_read_the_file(tmp_path: Path) -> None:
    log = EventsFile(tmp_path / "state" / "events.jsonl")
    log.write(event())
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700


def test_secrets_are_cut_out_before_a_long_detail_is_cut(tmp_path: Path) -> None:
    log = EventsFile(tmp_path / "events.jsonl", Redactor([SECRET]))
    log.write(event("x" * (events_file.TEXT_SIZE - 8) + SECRET))
    log.write(logged(EventName.PEER_PARKED, at=START, peer=SECRET, error_class=SECRET))
    assert SECRET[:8] not in log.path.read_text()


def test_every_text_of_a_line_is_searched_for_secrets() -> None:
    texts = {name for name, kind in LoggedEvent.__annotations__.items() if kind == "str | None"}
    assert texts == set(events_file._TEXTS)


def test_a_full_file_makes_room_and_only_so_many_stay(tmp_path: Path) -> None:
    log = EventsFile(tmp_path / "events.jsonl", max_size=1000)
    for number in range(20):
        log.write(event(f"number {number}"))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["events.1.jsonl", "events.2.jsonl", "events.3.jsonl", "events.jsonl"]
    files = [older(log.path, number) for number in range(KEPT, 0, -1)] + [log.path]
    assert all(file.stat().st_size <= 1000 for file in files)
    told = [line["detail"] for file in files for line in lines_of(file)]
    assert told == [f"number {number}" for number in range(20 - len(told), 20)]


def test_a_line_longer_than_a_file_still_has_one_of_its_own(tmp_path: Path) -> None:
    log = EventsFile(tmp_path / "events.jsonl", max_size=10)
    log.write(event("one"))
    log.write(event("two"))
    assert [line["detail"] for line in lines_of(log.path)] == ["two"]
    assert [line["detail"] for line in lines_of(older(log.path, 1))] == ["one"]


def test_a_full_file_that_cannot_be_moved_away_takes_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    log = EventsFile(tmp_path / "events.jsonl", max_size=10)
    for detail in ("one", "two"):
        log.write(event(detail))
    assert [line["detail"] for line in lines_of(log.path)] == ["one", "two"]


def test_half_a_line_of_another_writer_does_not_spoil_the_next(tmp_path: Path) -> None:
    log = EventsFile(tmp_path / "events.jsonl")
    log.path.write_bytes(b'{"half":')
    log.write(event("whole"))
    half, whole = log.path.read_bytes().splitlines()
    assert half == b'{"half":'
    assert json.loads(whole)["detail"] == "whole"


def test_a_disk_that_takes_half_a_line_gets_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventsFile(tmp_path / "events.jsonl")
    log.write(event("one"))
    before = log.path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    with pytest.raises(StoreFull, match="free some disk space"):
        log.write(event("two"))
    monkeypatch.undo()
    assert log.path.read_bytes() == before
    log.write(event("three"))
    assert [line["detail"] for line in lines_of(log.path)] == ["one", "three"]


def test_what_cannot_be_written_is_refused_with_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="cannot be written"):
        EventsFile(tmp_path / "file" / "events.jsonl").write(event())
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(StoreCorrupt, match="not a regular file"):
        EventsFile(tmp_path / "events.jsonl").write(event())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreFull):
        EventsFile(tmp_path / "events.jsonl").write(event())


def test_a_process_that_holds_the_file_for_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventsFile(tmp_path / "events.jsonl")
    log.write(event("one"))
    monkeypatch.setattr(events_file, "LOCK_TIMEOUT", 0.0)
    fcntl = pytest.importorskip("fcntl")
    with log.path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy):
            log.write(event("two"))
    log.write(event("three"))
    assert [line["detail"] for line in lines_of(log.path)] == ["one", "three"]
