"""Sessions and jobs, followed where no broker has them: from the store."""

from __future__ import annotations

from pathlib import Path

from dragoman.runs.job_events import follow_job, follow_session, follow_sessions
from tests.aio import aio
from tests.unit.runs.stored import job, paths_in, said, session, store_in
from tests.unit.runs.test_jobs import GONE

LINES = [said(text) for text in ("zero", "one", "two")]


@aio
async def test_a_session_that_nobody_has_open_is_read_from_the_store(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES)
    paths = paths_in(tmp_path)
    found = [each async for each in follow_session(session(), None, start=1, paths=paths)]
    assert found == [(1, LINES[1]), (2, LINES[2])]
    assert [each async for each in follow_session(session(), None, start=None, paths=paths)] == []


@aio
async def test_a_job_that_has_ended_is_its_own_lines_and_no_others(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES)
        store.create_job(ended := job(first_event=1, next_event=2))
    found = [each async for each in follow_job(session(), ended, paths=paths_in(tmp_path))]
    assert found == [(1, LINES[1])]


@aio
async def test_a_job_whose_broker_was_killed_ends_with_what_is_stored(tmp_path: Path) -> None:
    running = job(state="running", outcome=None, ended_at=None, endpoint="scout-1", runner=GONE)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES[:2])
        store.create_job(running)
    found = [each async for each in follow_job(session(), running, paths=paths_in(tmp_path))]
    assert [number for number, _ in found] == [0, 1]


@aio
async def test_a_job_that_goes_on_in_another_session_is_followed_there(tmp_path: Path) -> None:
    first, second = session(), session(key="s-0000000002", peer_session_id="other")
    delegated = job(state="running", outcome=None, ended_at=None, runner={}, session_key="")
    with store_in(tmp_path) as store:
        for record, line in ((first, LINES[0]), (second, LINES[1])):
            store.create_session(record)
            store.append(record.key, 0, [line])
        store.create_job(delegated)
        store.update_job(delegated.id, session_key=first.key)
        seen = []
        async for record, lines in follow_sessions(delegated, paths=paths_in(tmp_path)):
            async for _, line in lines:
                seen.append((record.key, line))
                # The peer has failed, and the next one has a session of its own.
                fields = {"state": "ended", "next_event": 1} if record.key == second.key else {}
                store.update_job(delegated.id, session_key=second.key, **fields)
    assert seen == [(first.key, LINES[0]), (second.key, LINES[1])]


@aio
async def test_a_job_that_ended_without_a_session_has_nothing_to_follow(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_job(ended := job(session_key=""))
    assert [each async for each in follow_sessions(ended, paths=paths_in(tmp_path))] == []
