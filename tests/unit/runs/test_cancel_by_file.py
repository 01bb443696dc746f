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
async def test_a_note_that_is_not_taken_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_by_file, "TAKE_TIMEOUT", 0.01)
    paths = paths_in(tmp_path)
    assert not await leave_note("j-1/../x", paths)
    assert list((paths.state / FOLDER).iterdir()) == []


@aio
async def test_a_job_goes_on_where_no_note_can_be_left(tmp_path: Path) -> None:
    paths, stopped = paths_in(tmp_path), list[str]()
    paths.state.mkdir(parents=True, exist_ok=True)
    (paths.state / FOLDER).write_text("not a directory")
    await obey_note("j-1", paths, lambda: stopped.append("j-1"))
    assert stopped == []


def test_the_description_of_a_process_says_that_it_watches_for_notes() -> None:
    assert reads_notes(note_reader()) and is_alive(note_reader())
    assert not reads_notes({"pid": 1})
