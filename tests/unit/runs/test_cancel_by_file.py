"""A note stops one job, and is gone whether it was taken or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import cancel_by_file
from dragoman.runs.cancel_by_file import FOLDER, leave_note, note_reader, obey_note, reads_notes
from dragoman.store.jobs import is_alive
from tests.aio import aio
from tests.unit.runs.stored import paths_in


@aio
async def test_a_note_stops_the_job_that_it_names_and_no_other(tmp_path: Path) -> None:
    paths, owner, stopped = paths_in(tmp_path), TaskOwner("a test"), list[str]()
    for job in ("j-1", "j-2"):
        owner.start(obey_note(job, paths, lambda job=job: stopped.append(job)), job)  # type: ignore[misc]
    assert await leave_note("j-2", paths)
    assert stopped == ["j-2"] and len(owner) == 1
    await owner.aclose()


@aio
async def test_a_note_that_nobody_takes_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_by_file, "TAKE_TIMEOUT", 0.01)
    paths = paths_in(tmp_path)
    assert not await leave_note("j-1/../x", paths)
    assert list((paths.state / FOLDER).iterdir()) == []


def test_whoever_looks_for_notes_says_so_where_it_is_written_down() -> None:
    assert reads_notes(note_reader()) and is_alive(note_reader())
    assert not reads_notes({"pid": 1})
