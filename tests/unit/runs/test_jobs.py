"""How jobs stand, and what is done to them from outside."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.broker.client import hello
from dragoman.errors import BrokerError, CallTimeout, StoreRefused, UnknownJob
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import cancel_by_file
from dragoman.runs.cancel_by_file import note_reader
from dragoman.runs.jobs import address_of, cancel_job, find_job, list_jobs, updated, wait_for
from dragoman.store.jobs import is_alive
from dragoman.store.records import JobRecord
from dragoman.store.store import store_path
from dragoman.transports.process.identity import own_identity
from tests.aio import aio
from tests.unit.runs.stored import ROOT, held, job, paths_in, said, session, store_in

OURS = dataclasses.asdict(own_identity())
GONE = {**OURS, "started": "1"}


def test_a_process_that_cannot_be_proved_dead_is_taken_for_alive() -> None:
    assert is_alive(OURS)
    assert not is_alive(GONE)
    assert not is_alive({**OURS, "boot": "another start of the machine"})
    assert is_alive({"pid": 1})
    assert is_alive({})


@aio
async def test_a_job_whose_process_is_gone_has_crashed_and_keeps_what_was_said(
    tmp_path: Path,
) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, [said("half an "), said("answer")], "j-0000000001")
        store.create_job(job(state="running", outcome=None, ended_at=None, text="", runner=GONE))
        store.create_job(
            job("j-2", state="running", outcome=None, ended_at=None, runner=OURS, first_event=2)
        )
    paths = paths_in(tmp_path)
    found = await find_job("j-0000000001", paths=paths)
    assert (found.state, found.outcome, found.text) == ("ended", "crashed", "half an answer")
    assert (await find_job("j-2", paths=paths)).state == "running"
    assert [each.id for each in list_jobs(paths=paths, running=True)] == ["j-2"]
    assert len(list_jobs(paths=paths, root=Path(ROOT))) == 2
    assert list_jobs(paths=paths, root=Path("/elsewhere")) == []


@aio
async def test_a_job_whose_process_is_gone_has_crashed_even_if_that_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with store_in(tmp_path) as store:
        store.create_job(
            job("j-1", session_key="", state="running", outcome=None, ended_at=None, runner=GONE)
        )
        store.create_session(session())
        store.append("s-0000000001", 0, [said("half")], "j-1-1")
        store.create_job(job("j-1-1", state="running", outcome=None, ended_at=None, runner=GONE))

    def refuse(*_: object) -> None:
        raise StoreRefused(str(tmp_path), "read-only")

    monkeypatch.setattr("dragoman.store.Store.end_orphans", refuse)
    paths = paths_in(tmp_path)
    with caplog.at_level("INFO"):
        async with asyncio.timeout(20):
            found = await wait_for("j-1", paths=paths)
    assert (found.state, found.outcome) == ("ended", "crashed")
    assert found.failure == {"message": "the process that ran it is gone"}
    assert "cannot store that jobs have crashed" in caplog.text
    assert (await find_job("j-1-1", paths=paths)).next_event == 1
    assert list_jobs(paths=paths, running=True) == []
    assert {each.outcome for each in list_jobs(paths=paths)} == {"crashed"}
    with store_in(tmp_path) as store:
        stored = store.job("j-1")
        assert stored is not None and stored.state == "running"


@aio
async def test_the_loop_runs_on_while_another_process_holds_the_store(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.create_job(job(state="running", outcome=None, ended_at=None, runner=GONE))
    paths = paths_in(tmp_path)
    with closing(sqlite3.connect(store_path(paths.state), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        finding = TaskOwner("test").start(find_job("j-0000000001", paths=paths), "find")
        await asyncio.sleep(0)
        assert not finding.done()
    assert (await finding).outcome == "crashed"


@aio
async def test_the_loop_runs_on_while_the_store_is_held_and_a_lost_delegation_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = job(session_key="", outcome="crashed")
    with store_in(tmp_path) as store:
        store.create_job(crashed)
    paths = paths_in(tmp_path)

    async def stored(id: str, paths: Paths) -> JobRecord:
        return crashed

    monkeypatch.setattr("dragoman.runs.jobs._stored", stored)
    with held(store_path(paths.state)):
        cancelling = TaskOwner("test").start(cancel_job(crashed.id, paths=paths), "cancel")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not cancelling.done()
    assert not await cancelling


@aio
async def test_a_job_that_goes_on_is_waited_for_as_long_as_was_said(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.create_job(job(state="running", outcome=None, ended_at=None, runner=OURS))
        store.create_job(job("j-2"))
    paths = paths_in(tmp_path)
    assert (await wait_for("j-0000000001", timeout=0.01, paths=paths)).state == "running"
    assert (await wait_for("j-2", paths=paths)).outcome == "ok"


@aio
async def test_a_job_of_an_older_broker_is_waited_for_although_a_newer_one_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = job(
        "j-1", endpoint="alpha-1", state="running", outcome=None, ended_at=None, runner=OURS
    )
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.create_job(running)
    asked: list[str] = []

    async def ask(wanted: JobRecord, *, wait: bool, paths: Paths) -> JobRecord:
        # The newer broker does not run the job: it reads the store.
        asked.append(wanted.id)
        ended = len(asked) == 2
        return structs.replace(wanted, state="ended" if ended else "running")

    monkeypatch.setattr("dragoman.runs.jobs.ask", ask)
    found = await wait_for("j-1", paths=paths_in(tmp_path))
    assert (found.state, asked) == ("ended", ["j-1", "j-1"])


@aio
async def test_a_broker_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.create_job(job(state="running", outcome=None, runner=GONE, endpoint="scout-1"))
    found = await wait_for("j-0000000001", paths=paths_in(tmp_path))
    assert found.outcome == "crashed"


@aio
async def test_an_ended_job_is_not_cancelled_and_an_unknown_one_is_an_error(
    tmp_path: Path,
) -> None:
    paths = paths_in(tmp_path)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.create_job(job())
    assert not await cancel_job("j-0000000001", paths=paths)
    for ask in (find_job, wait_for, cancel_job):
        with pytest.raises(UnknownJob, match="there is no job 'j-9'"):
            await ask("j-9", paths=paths)


@aio
async def test_a_job_whose_broker_does_not_answer_may_have_been_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(address: str, method: str, *_: object, **__: object) -> None:
        raise CallTimeout(method, 1.0)

    monkeypatch.setattr(hello, "ask_broker", silent)
    with store_in(tmp_path) as store:
        store.create_session(session())
        running = job(state="running", outcome=None, ended_at=None, runner=OURS)
        store.create_job(structs.replace(running, endpoint="scout-1"))
    with pytest.raises(BrokerError, match="has not ended, and the broker scout-1") as caught:
        await cancel_job("j-0000000001", paths=paths_in(tmp_path))
    assert caught.value.may_have_run


@aio
async def test_a_job_that_cannot_be_reached_is_an_error_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_by_file, "TAKE_TIMEOUT", 0.01)
    paths = paths_in(tmp_path)
    # One that looks for notes and is stuck, one that may be in another container, and our own.
    runners = (note_reader(), {**OURS, "namespace": "another"}, {"pid": 1}, OURS)
    with store_in(tmp_path) as store:
        store.create_session(session())
        for number, runner in enumerate(runners):
            store.create_job(
                job(f"j-{number}", state="running", outcome=None, ended_at=None, runner=runner)
            )
    for number in range(len(runners)):
        with pytest.raises(BrokerError, match=f"runs j-{number}, cannot be asked to stop it"):
            await cancel_job(f"j-{number}", paths=paths)
        assert (await find_job(f"j-{number}", paths=paths)).state == "running"


def test_a_broker_knows_better_how_a_job_stands_and_nothing_else() -> None:
    told = {"id": "other", "peer": "x", "state": "ended", "nextEvent": 7, "endedAt": 9.0}
    newer = updated(job(state="running"), told)
    assert (newer.id, newer.peer) == ("j-0000000001", "scout")
    assert (newer.state, newer.next_event, newer.ended_at) == ("ended", 7, 9.0)
    assert updated(job(), "nonsense") == job()


def test_a_broker_is_found_by_the_name_of_its_endpoint(tmp_path: Path) -> None:
    assert address_of("scout-1", paths_in(tmp_path)).endswith(".sock")
