"""What is written down of a delegation, and that a disk that fails stops nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.health import Reading, Sign
from dragoman.delegation.journal import Journal, give_verdict
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.errors import StoreBusy, StoreError, UnknownJob
from dragoman.events.parts import Failure
from dragoman.events.words import Outcome
from dragoman.rpc import tasks
from dragoman.runs.context import RunContext
from dragoman.store.ledger import AttemptRecord, Ending, Ledger, ledger_path
from dragoman.store.open import open_store
from dragoman.store.records import REPORT, JobRecord, SessionRecord
from tests.aio import aio
from tests.unit.delegation.test_result import DECISION
from tests.unit.runs.contexts import place_in

ATTEMPT = AttemptRecord(
    job="j-1", decision_id="d-1", number=1, peer="alpha", role="review", started_at=5.0
)


def books_of(place: RunContext, notices: list[str] | None = None) -> Journal:
    heard = [] if notices is None else notices
    return Journal(place, clock=lambda: 7.0, on_notice=heard.append)


def events(place: RunContext) -> list[dict[str, Any]]:
    lines = (place.paths.state / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def end(books: Journal, attempt: AttemptRecord, **fields: Any) -> AttemptRecord:
    told = {"ok": False, "learned": None, "health": None, "reading": None, "detail": "x", **fields}
    return books.ended(attempt, Ending(ended_at=6.0, outcome="crashed"), **told)


@aio
async def test_every_step_has_its_line_and_its_row(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    async with books_of(place) as books:
        books.decided("j-1", "d-1", DECISION)
        books.began(DECISION, ATTEMPT, lambda health: health)
        reading = Reading(sign=Sign.LOGIN, why="it requires a login", park_until=100.0)
        after = end(books, ATTEMPT, reading=reading)
        books.fell_back(after, "beta", "alpha crashed")
        await books.flush()
        assert books.ledger is not None
        (kept,) = books.ledger.attempts("j-1")
        assert (kept.outcome, kept.ended_at) == ("crashed", 6.0)
        assert books.ledger.decision("d-1") is not None
    assert [(line["event"], line["decision"], line["detail"]) for line in events(place)] == [
        ("delegation_decided", "d-1", "alpha is the only one"),
        ("peer_call_started", "d-1", None),
        ("peer_call_failed", "d-1", "x"),
        ("peer_parked", "d-1", "it requires a login; parked until 1970-01-01T00:01:40+00:00"),
        ("peer_call_fell_back", "d-1", "to beta: alpha crashed"),
    ]


@aio
async def test_a_mismatch_of_protocols_and_a_success_have_lines_of_their_own(
    tmp_path: Path,
) -> None:
    place = place_in(tmp_path)
    async with books_of(place) as books:
        books.began(DECISION, ATTEMPT, lambda health: health)
        books.ended(
            ATTEMPT,
            Ending(ended_at=6.0, outcome="protocol_error", error_class="protocol_mismatch"),
            ok=False,
            learned=None,
            health=None,
            reading=None,
            detail="no version",
        )
    names = [line["event"] for line in events(place)]
    assert names == ["peer_call_started", "peer_call_failed", "protocol_mismatch"]


@aio
async def test_an_attempt_of_a_killed_process_ended_with_its_last_stored_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_in(tmp_path)
    session = SessionRecord(
        key="s-1",
        peer="alpha",
        root="/w",
        peer_session_id="p",
        cwd="/w",
        created_at=1.0,
        updated_at=1.0,
    )
    record = JobRecord(
        id="j-1-1", session_key="s-1", peer="alpha", root="/w", created_at=5.0, state="running"
    )
    with open_store(paths=place.paths) as store:
        store.create_session(session)
        store.create_job(record)
        monkeypatch.setattr("time.time", lambda: 6.0)
        store.append("s-1", 0, [b"{}"], "j-1-1")
    monkeypatch.undo()
    with Ledger.open(ledger_path(place.paths.state)) as ledger:
        for number in (1, 2):
            ledger.begin("d-1", {}, structs.replace(ATTEMPT, number=number))
    monkeypatch.setattr("dragoman.delegation.journal.is_alive", lambda runner: False)
    async with books_of(place) as books:
        assert books.ledger is not None
        ended = {one.number: one.ended_at for one in books.ledger.attempts("j-1")}
    # Nothing is stored of the second one.
    assert ended == {1: 6.0, 2: ATTEMPT.started_at}


@aio
async def test_the_job_shows_the_attempt_that_is_stored(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    wish = DelegationRequest(role="review", prompt="look", workspace=place.cwd)
    async with books_of(place) as books:
        books.job_began("j-1", wish, "alpha")
        books.job_tries("j-1", "beta")
        books.job_follows("j-1", "j-1-1")
        await books.flush()
        with open_store(paths=place.paths) as store:
            store.create_session(
                SessionRecord(
                    key="s-1",
                    peer="alpha",
                    root="/w",
                    peer_session_id="p",
                    cwd="/w",
                    created_at=1.0,
                    updated_at=1.0,
                )
            )
            record = JobRecord(
                id="j-1-1", session_key="s-1", peer="alpha", root="/w", created_at=1.0
            )
            store.create_job(record)
            tried = store.job("j-1")
            assert tried is not None and (tried.peer, tried.session_key) == ("beta", "")
            store.update_job("j-1-1", state="ended", next_event=4)
            books.job_follows("j-1", "j-1-1")
            report = AttemptReport(
                peer="beta",
                role="review",
                outcome=Outcome.FAILED,
                failure=Failure("no", data=object()),
                started_at=1.0,
                ended_at=2.0,
            )
            books.keep_report("j-1-1", report)
            await books.flush()
            assert store.notes("s-1") == []
            check = CheckResult(command="make", ok=False, exit_code=2)
            books.keep_report("j-1-1", structs.replace(report, check=check))
            await books.flush()
            (note,) = store.notes("s-1")
            assert (note.kind, note.at_event, note.data["check"]["exit_code"]) == (REPORT, 4, 2)
            books.keep_report("j-1-9", structs.replace(report, check=check))
            books.job_ended("j-1", report, "failed", "half")
            await books.flush()
            job = store.job("j-1")
    assert job is not None and job.failure is not None
    assert (job.session_key, job.next_event, job.state, job.text) == ("s-1", 4, "ended", "half")
    assert (job.peer, job.outcome, job.failure["message"]) == ("beta", "failed", "no")


@aio
async def test_a_disk_that_fails_is_reported_once_and_stops_nothing(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    place.paths.state.parent.mkdir(parents=True, exist_ok=True)
    place.paths.state.write_text("no folder")
    notices: list[str] = []
    async with books_of(place, notices) as books:
        assert books.ledger is None
        books.job_began(
            "j-1", DelegationRequest(role="r", prompt="p", workspace=place.cwd), "alpha"
        )
        books.began(DECISION, ATTEMPT, lambda health: health)
        assert end(books, ATTEMPT).outcome == "crashed"
        books.job_follows("j-1", "j-1-1")
        books.job_ended("j-1", None, "cancelled", "")
    assert len(notices) == 1 and notices[0].startswith("this delegation is not recorded completely")


def test_a_verdict_is_kept_and_told(tmp_path: Path) -> None:
    paths = place_in(tmp_path).paths
    with Ledger.open(ledger_path(paths.state)) as ledger:
        id = ledger.begin("d-1", {}, ATTEMPT)
        ledger.finish(id, Ending(ended_at=6.0, outcome="ok"))
    before = give_verdict("j-1", "bad", paths=paths, now=9.0)
    assert before.verdict is None
    with Ledger.open(ledger_path(paths.state), read_only=True) as ledger:
        (kept,) = ledger.attempts("j-1")
    assert (kept.verdict, kept.verdict_source) == ("bad", "user")
    (line,) = (paths.state / "events.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["event"], told["detail"]) == ("verdict_recorded", "bad, by the user")
    assert give_verdict("j-1", "good", paths=paths).verdict == "bad"


def test_an_attempt_is_judged_as_its_delegation_if_that_ended_with_it(tmp_path: Path) -> None:
    paths = place_in(tmp_path).paths
    with Ledger.open(ledger_path(paths.state)) as ledger:
        for number, outcome in ((1, "crashed"), (2, "ok")):
            attempt = structs.replace(ATTEMPT, number=number)
            id = ledger.begin("d-1", {}, attempt)
            ledger.finish(id, Ending(ended_at=6.0, outcome=outcome))
    assert give_verdict("j-1-2", "good", paths=paths).number == 2
    with pytest.raises(UnknownJob, match="not the last attempt of j-1"):
        give_verdict("j-1-1", "bad", paths=paths)
    with Ledger.open(ledger_path(paths.state), read_only=True) as ledger:
        assert [one.verdict for one in ledger.attempts("j-1")] == [None, "good"]


def test_a_job_that_was_never_delegated_has_no_verdict(tmp_path: Path) -> None:
    paths = place_in(tmp_path).paths
    with pytest.raises(UnknownJob, match="nothing has been delegated yet"):
        give_verdict("j-1", "bad", paths=paths)
    assert not paths.state.exists()
    with Ledger.open(ledger_path(paths.state)):
        pass
    with pytest.raises(UnknownJob):
        give_verdict("j-1", "bad", paths=paths)


@aio
async def test_the_store_is_closed_although_the_ledger_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    notices: list[str] = []

    def fail(ledger: Ledger) -> None:
        raise StoreError("ledger.db", "disk I/O error")

    async with books_of(place_in(tmp_path), notices) as books:
        store, ledger = books._store, books.ledger
        assert store is not None and ledger is not None
        close = ledger.close
        monkeypatch.setattr(Ledger, "close", fail)
        monkeypatch.setattr(type(store), "close", lambda store: closed.append("store"))
    monkeypatch.undo()
    close()
    store.close()
    assert closed == ["store"]
    assert notices == ["this delegation is not recorded completely: ledger.db: disk I/O error"]


@pytest.mark.parametrize("needed", [False, True])
@aio
async def test_a_ledger_that_cannot_be_read_is_an_error_only_for_work_that_needs_it(
    tmp_path: Path, needed: bool
) -> None:
    notices: list[str] = []

    def read(ledger: Ledger | None) -> str:
        if ledger is not None:
            raise StoreBusy("ledger.db", "another process holds it")
        if needed:
            raise StoreError("the ledger", "limits are set")
        return "without it"

    async with books_of(place_in(tmp_path), notices) as books:
        if needed:
            with pytest.raises(StoreBusy):
                await books.read(read)
        else:
            assert await books.read(read) == "without it"
    told = "the results of earlier delegations are not used: ledger.db: another process holds it"
    assert notices == ([] if needed else [told])


@contextlib.contextmanager
def held(*files: Path) -> Iterator[None]:
    """Hold these SQLite files locked, like another process in the middle of a write."""
    with contextlib.ExitStack() as stack:
        for file in files:
            connection = sqlite3.connect(file, isolation_level=None)
            stack.callback(connection.close)
            connection.execute("BEGIN EXCLUSIVE")
        yield


@aio
async def test_a_locked_file_does_not_stop_the_loop_and_everything_is_recorded_in_order(
    tmp_path: Path,
) -> None:
    place = place_in(tmp_path)
    notices: list[str] = []
    request = DelegationRequest(role="review", prompt="look", workspace=place.cwd)
    state, owner = place.paths.state, tasks.TaskOwner("test")
    async with books_of(place, notices) as books:
        with held(state / "ledger.db", state / "sessions.db"):
            books.job_began("j-1", request, "alpha")
            books.began(DECISION, ATTEMPT, lambda health: health)
            end(books, ATTEMPT)
            books.job_ended("j-1", None, "failed", "half")
            flushed = owner.start(books.flush(), "flush")
            await asyncio.sleep(0)
            assert not flushed.done()
        await flushed
    with Ledger.open(ledger_path(state), read_only=True) as ledger:
        (kept,) = ledger.attempts("j-1")
    with open_store(paths=place.paths, read_only=True) as store:
        job = store.job("j-1")
    assert kept.outcome == "crashed" and job is not None and job.text == "half"
    assert [line["event"] for line in events(place)] == ["peer_call_started", "peer_call_failed"]
    assert notices == []


@aio
async def test_a_cancellation_while_the_files_are_opened_closes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_in(tmp_path)
    opening, go_on = threading.Event(), threading.Event()
    open_ledger = Ledger.open.__func__  # type: ignore[attr-defined]

    def slow(cls: type[Ledger], path: Path, *args: Any, **options: Any) -> Ledger:
        opening.set()
        assert go_on.wait(20)
        ledger: Ledger = open_ledger(cls, path, *args, **options)
        return ledger

    monkeypatch.setattr(Ledger, "open", classmethod(slow))
    books = books_of(place)
    entering = tasks.TaskOwner("test").start(books.__aenter__(), "enter")
    await asyncio.to_thread(opening.wait, 20)
    entering.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert books.ledger is not None
    with pytest.raises(StoreError, match="closed"):
        books.ledger.attempts("j-1")


@aio
async def test_a_disk_that_never_answers_is_reported_and_the_delegation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    go_on = threading.Event()
    async with books_of(place_in(tmp_path), notices) as books:
        monkeypatch.setattr(tasks, "ANSWER_TIMEOUT", 0.01)
        monkeypatch.setattr(Ledger, "begin", lambda *args, **fields: go_on.wait(20))
        books.began(DECISION, ATTEMPT, lambda health: health)
        await books.flush()
        end(books, ATTEMPT)
        await books.flush()
    go_on.set()
    (notice,) = notices
    assert "the file system did not answer" in notice
