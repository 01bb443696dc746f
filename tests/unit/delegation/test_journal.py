"""What is written down of a delegation, and that a disk that fails stops nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.health import Reading, Sign
from dragoman.delegation.journal import Journal, give_verdict
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.errors import StoreError, UnknownJob
from dragoman.events.parts import Failure
from dragoman.events.words import Outcome
from dragoman.runs.context import RunContext
from dragoman.store.ledger import AttemptRecord, Ending, Ledger, ledger_path
from dragoman.store.open import open_store
from dragoman.store.records import REPORT, JobRecord, SessionRecord
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


def test_every_step_has_its_line_and_its_row(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    with books_of(place) as books:
        books.decided("j-1", "d-1", DECISION)
        begun = books.began(DECISION, ATTEMPT, lambda health: health)
        reading = Reading(sign=Sign.LOGIN, why="it requires a login", park_until=100.0)
        after = end(books, begun, reading=reading)
        books.fell_back(after, "beta", "alpha crashed")
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


def test_a_mismatch_of_protocols_and_a_success_have_lines_of_their_own(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    with books_of(place) as books:
        begun = books.began(DECISION, ATTEMPT, lambda health: health)
        books.ended(
            begun,
            Ending(ended_at=6.0, outcome="protocol_error", error_class="protocol_mismatch"),
            ok=False,
            learned=None,
            health=None,
            reading=None,
            detail="no version",
        )
    names = [line["event"] for line in events(place)]
    assert names == ["peer_call_started", "peer_call_failed", "protocol_mismatch"]


def test_the_job_shows_the_attempt_that_is_stored(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    wish = DelegationRequest(role="review", prompt="look", workspace=place.cwd)
    with books_of(place) as books:
        books.job_began("j-1", wish, "alpha")
        books.job_tries("j-1", "beta")
        books.job_follows("j-1", "j-1-1")
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
            assert store.notes("s-1") == []
            check = CheckResult(command="make", ok=False, exit_code=2)
            books.keep_report("j-1-1", structs.replace(report, check=check))
            (note,) = store.notes("s-1")
            assert (note.kind, note.at_event, note.data["check"]["exit_code"]) == (REPORT, 4, 2)
            books.keep_report("j-1-9", structs.replace(report, check=check))
            books.job_ended("j-1", report, "failed", "half")
            job = store.job("j-1")
    assert job is not None and job.failure is not None
    assert (job.session_key, job.next_event, job.state, job.text) == ("s-1", 4, "ended", "half")
    assert (job.peer, job.outcome, job.failure["message"]) == ("beta", "failed", "no")


def test_a_disk_that_fails_is_reported_once_and_stops_nobody(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    place.paths.state.parent.mkdir(parents=True, exist_ok=True)
    place.paths.state.write_text("no folder")
    notices: list[str] = []
    with books_of(place, notices) as books:
        assert books.ledger is None
        books.job_began(
            "j-1", DelegationRequest(role="r", prompt="p", workspace=place.cwd), "alpha"
        )
        begun = books.began(DECISION, ATTEMPT, lambda health: health)
        assert end(books, begun).outcome == "crashed"
        books.job_follows("j-1", "j-1-1")
        books.job_ended("j-1", None, "cancelled", "")
    assert len(notices) == 1 and notices[0].startswith("this delegation is not recorded")


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


def test_the_store_is_closed_although_the_ledger_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def fail(ledger: Ledger) -> None:
        raise StoreError("ledger.db", "disk I/O error")

    with pytest.raises(StoreError), books_of(place_in(tmp_path)) as books:
        store, ledger = books._store, books.ledger
        assert store is not None and ledger is not None
        close = ledger.close
        monkeypatch.setattr(Ledger, "close", fail)
        monkeypatch.setattr(type(store), "close", lambda store: closed.append("store"))
    monkeypatch.undo()
    close()
    assert store is not None
    store.close()
    assert closed == ["store"]
