"""Keys and ids that sort by time, and the folder that a session belongs to."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec
import pytest

from dragoman.store import records
from dragoman.store.records import JobRecord, new_job_id, new_session_key, root_of


def test_ids_say_what_they_name_and_have_twelve_digits() -> None:
    assert re.fullmatch(r"j-[0-9a-hjkmnp-tv-z]{12}", new_job_id())
    assert re.fullmatch(r"s-[0-9a-hjkmnp-tv-z]{12}", new_session_key())


@pytest.mark.parametrize(
    ("id", "job"),
    [("j-1rh4ch9y3deg-1", "j-1rh4ch9y3deg"), ("j-123456789012", ""), ("j-1-x", ""), ("", "")],
)
def test_an_attempt_says_which_job_it_belongs_to(id: str, job: str) -> None:
    assert records.delegated_job(id) == job


def test_a_thousand_ids_of_one_second_are_a_thousand() -> None:
    assert len({new_job_id() for _ in range(5000)}) == 5000


def test_ids_sort_by_the_second_they_were_made_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_last", -1)
    made: list[str] = []
    for now in (1_800_000_000, 1_800_000_001, 1_900_000_000):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        made += [new_job_id(), new_job_id()]
    assert made == sorted(made)


def test_a_clock_that_jumps_back_makes_no_id_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_last", -1)
    made: list[str] = []
    for now in (1_800_000_000, 1_700_000_000, 0, 1_800_000_000):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        made += [new_job_id() for _ in range(3)]
    assert made == sorted(set(made))


@pytest.mark.parametrize("now", [0, 1_000_000_000, 1_735_689_599, 1_735_689_600, 1_800_000_000])
def test_processes_with_the_same_wrong_clock_make_different_ids(
    monkeypatch: pytest.MonkeyPatch, now: int
) -> None:
    monkeypatch.setattr(time, "time", lambda: now)
    made: set[str] = set()
    for _ in range(100):
        # What a new process begins with.
        monkeypatch.setattr(records, "_last", -1)
        made |= {new_job_id(), new_job_id()}
    assert len(made) == 200


@pytest.mark.parametrize("as_file", [True, False])
def test_the_root_is_that_of_the_repository(tmp_path: Path, as_file: bool) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    mark = tmp_path / "a" / ".git"
    if as_file:
        mark.write_text("gitdir: elsewhere")
    else:
        mark.mkdir()
    assert root_of(below) == (tmp_path / "a").resolve()


def test_without_a_repository_the_root_is_the_folder_without_links(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    assert root_of(tmp_path / "link") == real.resolve()


def test_a_job_is_spelled_as_the_protocols_spell() -> None:
    job = JobRecord(id="j-1", session_key="s-1", peer="p", root="/", created_at=1.0)
    told = msgspec.to_builtins(job)
    assert {"sessionKey", "firstEvent", "createdAt"} <= told.keys()
    assert msgspec.convert(told, JobRecord) == job
