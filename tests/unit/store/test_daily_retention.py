"""What is old goes by itself, at most once a day, and never what is open or wanted."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from dragoman.store.daily_retention import DAY, STAMP, retain
from dragoman.store.ledger.ledger import Ledger
from dragoman.store.ledger.records import AttemptRecord, Ending
from dragoman.store.store import Store
from tests.unit.store.stores import chunk, job, session

NOW = 1_800_000_000.0


def filled(folder: Path) -> None:
    """An old closed session, an old open one, an old one that works, and a young closed one."""
    with Store.open(folder / "sessions.db") as store:
        for key, age, closed, state in (
            ("s-old", 100, True, "ended"),
            ("s-open", 100, False, "ended"),
            ("s-busy", 100, True, "running"),
            ("s-young", 10, True, "ended"),
        ):
            at = NOW - age * DAY
            one = session(key=key, name=None, updated_at=at, closed_at=at if closed else None)
            store.create_session(one)
            store.create_job(job(key, state=state, created_at=at))
            store.append(key, 0, [chunk("x")] * 3)
            store.update_session(key, updated_at=at)


def kept(folder: Path) -> set[str]:
    with Store.open(folder / "sessions.db", read_only=True) as store:
        return {each.key for each in store.sessions()}


def test_closed_sessions_go_after_ninety_days_and_no_others(tmp_path: Path) -> None:
    filled(tmp_path)
    assert retain(tmp_path, tmp_path, environ={}, now=NOW)
    assert kept(tmp_path) == {"s-open", "s-busy", "s-young"}


def test_what_was_closed_or_imported_today_stays_however_old_its_words_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    with Store.open(tmp_path / "sessions.db") as store:
        lines = list(store.export("s-old"))
        store.delete_session("s-old")
        monkeypatch.setattr("time.time", lambda: NOW)
        store.import_(lines)
        store.update_session("s-open", closed_at=NOW)
    environ = {"DRAGOMAN_MAX_STORE_SIZE": "1"}
    assert retain(tmp_path, tmp_path, environ=environ, now=NOW + 1)
    assert kept(tmp_path) == {"s-old", "s-open", "s-busy"}


def test_retention_runs_once_a_day_however_the_clock_jumps(tmp_path: Path) -> None:
    assert not retain(tmp_path, tmp_path, environ={}, now=NOW), "there is nothing"
    assert list(tmp_path.iterdir()) == []
    filled(tmp_path)
    assert retain(tmp_path, tmp_path, environ={}, now=NOW)
    assert not retain(tmp_path, tmp_path, environ={}, now=NOW + DAY / 2)
    assert retain(tmp_path, tmp_path, environ={}, now=NOW + 2 * DAY)
    os.utime(tmp_path / STAMP, (NOW + 3650 * DAY, NOW + 3650 * DAY))
    assert retain(tmp_path, tmp_path, environ={}, now=NOW + 4 * DAY)


def test_a_clock_that_jumps_ahead_and_back_deletes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    assert retain(tmp_path, tmp_path, environ={}, now=NOW)
    before = kept(tmp_path)
    assert "s-young" in before
    assert not retain(tmp_path, tmp_path, environ={}, now=NOW + 3650 * DAY)
    assert retain(tmp_path, tmp_path, environ={}, now=NOW + 2 * DAY)
    assert kept(tmp_path) == before
    # With a clock that stays there it is done a day later.
    assert not retain(tmp_path, tmp_path, environ={}, now=NOW + 100 * DAY)
    assert retain(tmp_path, tmp_path, environ={}, now=NOW + 101.5 * DAY)
    assert "s-young" not in kept(tmp_path)


def test_the_users_settings_say_how_long(tmp_path: Path) -> None:
    filled(tmp_path)
    config = tmp_path / "config.toml"
    config.write_text("keep_days = 0\n")
    assert retain(tmp_path, tmp_path, environ={}, now=NOW)
    assert len(kept(tmp_path)) == 4
    config.write_text("keep_days = 5\n")
    assert retain(tmp_path, tmp_path, environ={}, now=NOW + 2 * DAY)
    assert kept(tmp_path) == {"s-open", "s-busy"}


def test_nothing_goes_while_the_settings_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path)
    (tmp_path / "config.toml").write_text("keep_days = 0\nnonsense\n")
    assert not retain(tmp_path, tmp_path, environ={}, now=NOW)
    assert len(kept(tmp_path)) == 4
    assert "retention is skipped" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="a link to itself needs a Unix file system")
def test_nothing_goes_while_it_is_not_known_when_it_was_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path)
    (tmp_path / STAMP).symlink_to(STAMP)
    assert not retain(tmp_path, tmp_path, environ={}, now=NOW)
    assert len(kept(tmp_path)) == 4
    assert "retention is skipped" in caplog.text


def test_a_store_that_is_too_large_loses_its_oldest_closed_sessions(tmp_path: Path) -> None:
    with Store.open(tmp_path / "sessions.db") as store:
        for number in range(6):
            key, at = f"s-{number}", NOW - (10 - number) * DAY
            store.create_session(session(key=key, updated_at=at, closed_at=at))
            store.append(key, 0, [b'"' + b"x" * 400_000 + b'"'])
            store.update_session(key, updated_at=at)
        store.update_session("s-5", updated_at=NOW)
    before = (tmp_path / "sessions.db").stat().st_size
    assert before > 2_000_000
    environ = {"DRAGOMAN_MAX_STORE_SIZE": "1000000"}
    assert retain(tmp_path, tmp_path, environ=environ, now=NOW)
    assert kept(tmp_path) in ({"s-4", "s-5"}, {"s-5"})
    after = (tmp_path / "sessions.db").stat().st_size
    assert after < 1_200_000, "the space is given back"
    environ = {"DRAGOMAN_MAX_STORE_SIZE": "1"}
    assert retain(tmp_path, tmp_path, environ=environ, now=NOW + 1.5 * DAY - DAY / 2 + 1)
    assert "s-5" not in kept(tmp_path) or kept(tmp_path) == {"s-5"}


def test_attempts_and_files_set_aside_go_with_their_age(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db").close()
    old = tmp_path / "ledger.db.damaged-20200101-000000"
    young = tmp_path / "ledger.db.damaged-20270101-000000"
    for path, age in ((old, 100), (young, 10)):
        path.write_bytes(b"x")
        os.utime(path, (NOW - age * DAY, NOW - age * DAY))
    # It was found to be damaged today, and last written long ago.
    fresh = tmp_path / f"ledger.db.damaged-{time.strftime('%Y%m%d-%H%M%S', time.localtime(NOW))}"
    fresh.write_bytes(b"x")
    os.utime(fresh, (NOW - 400 * DAY, NOW - 400 * DAY))
    assert retain(tmp_path, tmp_path, environ={}, now=NOW)
    assert not old.exists() and young.exists() and fresh.exists()
    assert not (tmp_path / "sessions.db").exists(), "no store is made for it"


def test_a_store_that_cannot_be_used_does_not_keep_the_ledger_from_being_cleaned_up(
    tmp_path: Path,
) -> None:
    (tmp_path / "sessions.db").mkdir()
    record = AttemptRecord(
        job="j-1", decision_id="d-1", number=1, peer="p", role="plan", started_at=NOW - 100 * DAY
    )
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ended = Ending(ended_at=record.started_at, outcome="ok")
        ledger.finish(ledger.begin("d-1", {}, record), ended)
    assert retain(tmp_path, tmp_path, environ={}, now=NOW)
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        assert ledger.attempts("j-1") == []
