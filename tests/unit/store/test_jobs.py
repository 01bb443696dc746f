"""Jobs are kept from the wish to the end, and an end is found for those nobody ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from dragoman.errors import StoreConflict, UnknownJob
from dragoman.store.jobs import PROMPT_SIZE, shortened
from dragoman.store.records import JOB_NOTICE
from tests.unit.store.stores import SECRET, chunk, job, open_store, session


def test_a_job_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        made = job(
            one.key,
            state="running",
            started_at=2.0,
            failure={"message": "no", "data": [1, None]},
            usage={"inputTokens": 5},
            runner={"pid": 7, "startedAt": 1.5},
            endpoint="codex-0123456789ab",
        )
        store.create_job(made)
        assert store.job(made.id) == made
        assert store.job("j-other") is None


def test_a_job_needs_no_session_but_not_a_missing_one(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        made = job("")
        store.create_job(made)
        assert store.job(made.id) == made
        with pytest.raises(StoreConflict, match="no session s-gone"):
            store.create_job(job("s-gone"))
        with pytest.raises(StoreConflict, match="already"):
            store.create_job(made)


def test_a_job_is_changed_field_by_field(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        made = job()
        store.create_job(made)
        store.update_job(made.id, state="ended", outcome="ok", text="hello", usage=None)
        store.update_job(made.id)
        assert store.job(made.id) == structs.replace(
            made, state="ended", outcome="ok", text="hello"
        )
        with pytest.raises(TypeError, match="created_at"):
            store.update_job(made.id, created_at=1.0)
        with pytest.raises(UnknownJob, match="j-gone"):
            store.update_job("j-gone", state="ended")


def test_a_list_has_the_newest_first_and_what_was_asked_for(tmp_path: Path) -> None:
    a, b, c = job(created_at=1.0), job(created_at=2.0, state="running"), job(root="/other")
    with open_store(tmp_path) as store:
        for made in (a, b, c):
            store.create_job(made)
        assert store.jobs() == [c, b, a]
        assert store.jobs("running") == [b]
        assert store.jobs(root="/other") == [c]
        assert store.jobs(limit=1) == [c]


def test_the_attempts_of_a_delegated_job_come_in_their_order(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number, id in enumerate(("j-1", "j-1-2", "j-1-10", "j-10", "j-12-1", "j-0")):
            store.create_job(job("", id=id, created_at=float(number)))
        assert [each.id for each in store.attempts("j-1")] == ["j-1-2", "j-1-10"]
        assert store.attempts("j-10") == []


def test_secrets_are_cut_out_before_a_long_prompt_is_shortened(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        half = PROMPT_SIZE // 2
        # The cut would go through the middle of the secret, and leave no whole one to be found.
        made = job(prompt="x" * (half - 10) + " " + SECRET + " " + "y" * PROMPT_SIZE)
        store.create_job(made)
        found = store.job(made.id)
        assert found is not None
        assert SECRET[:8] not in found.prompt
        assert len(found.prompt) < PROMPT_SIZE + 50


def test_a_failure_is_stored_without_its_secrets(tmp_path: Path) -> None:
    with open_store(tmp_path, "hunter2hunter2") as store:
        made = job(failure={"message": "bad key hunter2hunter2", "data": {"token": "plain"}})
        store.create_job(made)
        store.update_job(made.id, stop=f"because of {SECRET}")
        found = store.job(made.id)
        assert found is not None
        assert found.failure == {"message": "bad key [redacted]", "data": {"token": "[redacted]"}}
        assert found.stop == "because of [redacted]"


def test_a_short_text_stays_and_a_long_one_shows_its_gap() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdef", 4) == "ab\n[… 2 characters …]\nef"


def test_a_job_counts_which_of_its_events_are_missing(tmp_path: Path) -> None:
    one, other = session(), session(peer_session_id="other")
    with open_store(tmp_path) as store:
        store.create_session(one)
        store.create_session(other)
        spans = ((0, 2, "ended"), (2, 5, "ended"), (5, 8, "ended"), (8, 0, "running"))
        jobs = [
            job(one.key, state=state, started_at=1.0, first_event=first, next_event=next)
            for first, next, state in spans
        ]
        jobs += [job(one.key), job(other.key, state="ended", started_at=1.0, next_event=9)]
        for each in jobs:
            store.create_job(each)
        store.append(one.key, 0, [b"{}"] * 4)
        store.skip(one.key, 7, "no room")
        store.append(one.key, 7, [b"{}"] * 2)
        store.skip(one.key, 12, "no room")
        found = {each.id: each.missing_events for each in store.jobs()}
        assert [found[each.id] for each in jobs] == [0, 1, 2, 3, 0, 0]
        alone = store.job(jobs[1].id)
        assert alone is not None and alone.missing_events == 1


def test_jobs_of_a_process_that_is_gone_end_as_crashed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        running = job(one.key, state="running", started_at=1.0, runner={"pid": 1})
        queued = job(one.key, runner={"pid": 1})
        alive = job(one.key, state="running", runner={"pid": 2})
        over = job(one.key, state="ended", outcome="ok", runner={"pid": 1})
        for made in (running, queued, alive, over):
            store.create_job(made)
        store.append(one.key, 0, [chunk("a"), chunk("b")], running.id)
        # Another process has gone on with the session since.
        store.append(one.key, 2, [chunk("c")], alive.id)
        ended = store.end_orphans(lambda runner: runner == {"pid": 2})
        assert set(ended) == {running.id, queued.id}
        found = store.job(running.id)
        assert found is not None
        assert (found.state, found.outcome, found.next_event) == ("ended", "crashed", 2)
        assert found.failure == {"message": "the process that ran it is gone"}
        assert store.job(alive.id) == alive
        assert store.job(over.id) == over


def test_a_job_of_a_killed_process_ended_with_the_last_that_is_known_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.time", lambda: now)
    with open_store(tmp_path) as store:
        one, other = session(), session()
        jobs = {
            "queued": job(one.key, created_at=95.0),
            "silent": job(one.key, state="running", created_at=90.0, started_at=96.0),
            "last": job(one.key, state="running", created_at=97.0, started_at=98.0),
            "followed": job(other.key, state="running", created_at=90.0, started_at=91.0),
            "following": job(
                other.key, state="ended", created_at=92.0, started_at=94.0, ended_at=99.0
            ),
        }
        store.create_session(one)
        store.create_session(other)
        for made in jobs.values():
            store.create_job(made)
        store.append(one.key, 0, [chunk("a")], jobs["last"].id)
        store.append(other.key, 0, [chunk("a")], jobs["followed"].id)
        store.append(other.key, 1, [chunk("b")], jobs["following"].id)
        now = 500.0
        signs = {made.id: store.last_sign(made.id) for made in jobs.values()}
        store.end_orphans(lambda runner: False)
        ended = {made.id: made.ended_at for made in store.jobs()}
        assert {name: ended[made.id] for name, made in jobs.items()} == {
            "queued": 95.0,
            "silent": 96.0,
            "last": 100.0,
            "followed": 94.0,
            "following": 99.0,
        }
        assert signs == ended
        assert store.last_sign("j-unknown") is None


def test_the_first_prompt_of_a_session_is_found_by_its_key(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one, other = session(), session()
        store.create_session(one)
        store.create_session(other)
        store.create_job(job(one.key, prompt="second", created_at=2.0))
        store.create_job(job(one.key, prompt="first", created_at=1.0))
        assert store.first_prompts([one.key, other.key]) == {one.key: "first"}


def test_a_job_has_its_notices_and_a_delegation_those_of_its_attempt(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        for id in ("j-1", "j-1-1", "j-2"):
            store.create_job(structs.replace(job(one.key), id=id))
        for data in ({"job": "j-1-1", "text": "a"}, {"text": 5}, {"job": "j-1-1", "text": "b"}):
            store.note(one.key, 0, JOB_NOTICE, data)
        found = {each.id: each.notices for each in store.jobs()}
    assert found == {"j-1": ("a", "b"), "j-1-1": ("a", "b"), "j-2": ()}
