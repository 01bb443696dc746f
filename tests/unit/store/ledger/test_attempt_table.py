"""Decisions and attempts: what is kept, when, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.errors import StoreConflict, StoreError, UnknownJob
from dragoman.redaction.redactor import Redactor
from dragoman.store.ledger import Learned, Ledger
from dragoman.store.ledger.attempt_table import PAGE, PROCESS_GONE, EndedAttempt
from dragoman.store.ledger.records import MAX_TOKENS, NO_TOKENS, AttemptRecord, Tokens
from dragoman.store.values import Arm, Health, Posterior, Provenance
from tests.unit.store.ledger.samples import START, attempt, done, ending, new_ledger

ARM = Arm(role="review", size="small", peer="codex", tier="strong")
SECRET = "sk-planted-0123456789abcdefghij"


def pulled(posterior: Posterior | None) -> Posterior:
    before = posterior or Posterior()
    return structs.replace(before, pulls=before.pulls + 1)


def failed(health: Health) -> Health:
    return structs.replace(health, failures=health.failures + 1)


def test_an_attempt_is_there_when_it_begins_and_whole_when_it_ends(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        id = ledger.begin("d-1", {"role": "review", "candidates": ["codex"]}, attempt())
        begun = ledger.attempt(id)
        assert begun == attempt(id=id)
        after = ledger.finish(id, ending())
        assert ledger.attempt(id) == after
        assert ledger.attempts("j-1") == [after]
        assert ledger.decision("d-1") == {"role": "review", "candidates": ["codex"]}
        assert (after.outcome, after.model, after.seconds) == ("ok", "gpt-5", 4.0)
        assert after.cost.provenance is Provenance.DERIVED


def test_an_attempt_takes_two_transactions_with_all_that_follows_from_it(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        said: list[str] = []
        ledger._connection.set_trace_callback(said.append)
        id = ledger.begin("d-1", {}, attempt(), health=failed)
        ledger.finish(id, ending(), learned=(ARM, pulled), health=failed)
        ledger._connection.set_trace_callback(None)
        assert [word for word in said if word.startswith(("BEGIN", "COMMIT"))] == [
            *("BEGIN IMMEDIATE", "COMMIT", "BEGIN IMMEDIATE", "COMMIT"),
        ]
        assert ledger.health("codex").failures == 2
        assert ledger.posteriors() == {ARM: Posterior(pulls=1)}


def test_an_end_that_cannot_be_kept_whole_is_not_kept_at_all(tmp_path: Path) -> None:
    def broken(_: Health) -> Health:
        raise StoreError("x", "this fails on purpose")

    with new_ledger(tmp_path) as ledger:
        id = ledger.begin("d-1", {}, attempt())
        with pytest.raises(StoreError, match="on purpose"):
            ledger.finish(id, ending(), learned=(ARM, pulled), health=broken)
        assert ledger.attempt(id) == attempt(id=id)
        assert ledger.posteriors() == {}


def test_a_clock_that_was_set_back_makes_no_attempt_shorter_than_nothing(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        id = ledger.begin("d-1", {}, attempt())
        assert ledger.finish(id, ending(ended_at=START - 3600)).seconds == 0.0


def test_the_decision_is_kept_once_for_all_its_attempts(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        ledger.begin("d-1", {"first": True}, attempt())
        ledger.begin("d-1", {"first": False}, attempt(number=2, peer="gemini"))
        assert ledger.decision("d-1") == {"first": True}
        assert [each.peer for each in ledger.attempts("j-1")] == ["codex", "gemini"]
        assert ledger.decision("d-2") is None


def test_no_attempt_begins_twice_or_ends_twice(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        id = ledger.begin("d-1", {}, attempt())
        with pytest.raises(StoreConflict):
            ledger.begin("d-1", {}, attempt())
        ledger.finish(id, ending())
        with pytest.raises(StoreConflict, match="already ended"):
            ledger.finish(id, ending(outcome="crashed"))
        with pytest.raises(StoreConflict, match="does not exist"):
            ledger.finish(id + 1, ending())
        kept = ledger.attempt(id)
        assert kept is not None and kept.outcome == "ok"


def test_the_requested_model_stays_if_none_was_reported(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        id = ledger.begin("d-1", {}, attempt(model="gpt-5-codex"))
        assert ledger.finish(id, ending(model=None)).model == "gpt-5-codex"


def test_a_verdict_goes_to_the_attempt_that_answered(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        done(ledger, attempt(), ending(outcome="crashed"))
        answered = done(ledger, attempt(number=2, peer="gemini"))
        ledger.begin("d-1", {}, attempt(number=3, peer="qwen"))

        def learned(given: AttemptRecord) -> Learned:
            assert given.id == answered
            return ARM, pulled

        before = ledger.verdict("j-1", "bad", source="check", learned=learned)
        assert (before.id, before.verdict) == (answered, None)
        assert ledger.verdict("j-1", "good").verdict == "bad"
        kept = ledger.attempt(answered)
        assert kept is not None
        assert (kept.verdict, kept.verdict_source) == ("good", "user")
        assert ledger.posteriors()[ARM].pulls == 1


def test_a_job_without_an_end_has_no_verdict(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        ledger.begin("d-1", {}, attempt())
        with pytest.raises(UnknownJob, match="j-1"):
            ledger.verdict("j-1", "good")


def test_attempts_of_dead_processes_end_as_crashed_with_unknown_cost(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        dead = ledger.begin("d-1", {}, attempt(runner={"pid": 1}))
        alive = ledger.begin("d-1", {}, attempt(number=2, runner={"pid": 2}))
        done(ledger, attempt(number=3, runner={"pid": 1}))
        ended = ledger.end_orphans(lambda runner: runner["pid"] == 2, lambda attempt: None)
        assert [each.id for each in ended] == [dead]
        assert (ended[0].outcome, ended[0].error_class) == ("crashed", PROCESS_GONE)
        assert ended[0].cost.provenance is Provenance.UNKNOWN
        still = ledger.attempt(alive)
        assert still is not None and still.outcome is None


def test_an_attempt_of_a_dead_process_ended_with_the_last_that_is_known_of_it(
    tmp_path: Path,
) -> None:
    signs = {1: START + 5, 2: None, 3: START - 5}
    with new_ledger(tmp_path) as ledger:
        for number in signs:
            ledger.begin("d-1", {}, attempt(number=number))
        ended = ledger.end_orphans(lambda runner: False, lambda one: signs[one.number])
        assert [each.ended_at for each in ended] == [START + 5, START, START]


def test_no_secret_reaches_any_byte_of_the_folder(tmp_path: Path) -> None:
    with new_ledger(tmp_path, Redactor([SECRET])) as ledger:
        id = ledger.begin("d-1", {"why": f"key {SECRET}"}, attempt(reason=f"said {SECRET}"))
        ledger.finish(id, ending(model=SECRET, error_class=SECRET))
        ledger.park("codex", START, f"log in with {SECRET}")
        ledger.begin("d-1", {}, attempt(number=2, reason="x" * 1990 + SECRET))
        for file in tmp_path.iterdir():
            assert SECRET.encode() not in file.read_bytes(), file
            assert SECRET[:10].encode() not in file.read_bytes(), file


def test_the_export_has_everything_as_json(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        id = ledger.begin("d-1", {"role": "review"}, attempt())
        ledger.finish(id, ending(), learned=(ARM, lambda _: Posterior(pulls=3)))
        ledger.park("codex", START + 60, "its quota is used up")
        lines = [json.loads(json.dumps(each)) for each in ledger.export()]
        assert [line["type"] for line in lines] == ["Decision", "Attempt", "Posterior", "Health"]
        assert lines[0] == {
            "type": "Decision",
            "id": "d-1",
            "at": START,
            "decision": {"role": "review"},
        }
        assert lines[1]["id"] == id and lines[1]["cost"]["amount"] == 0.5
        assert lines[2]["pulls"] == 3 and lines[2]["peer"] == "codex"
        assert lines[3]["parked_why"] == "its quota is used up"


def fill(ledger: Ledger, count: int) -> None:
    with ledger.transaction():
        for number in range(count):
            ledger.begin(f"d-{number}", {}, attempt(f"j-{number}"))


def test_an_export_goes_over_all_pages(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        fill(ledger, PAGE + 3)
        found = [(each["type"], each["id"]) for each in ledger.export()]
        assert len(found) == len(set(found)) == 2 * (PAGE + 3)


def test_pruning_deletes_what_is_old_and_keeps_what_runs_or_is_new(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        done(ledger, attempt("j-old", decision_id="d-old", reason="very-old-reason"))
        ledger.begin("d-runs", {}, attempt("j-runs", decision_id="d-runs"))
        done(ledger, attempt("j-new", decision_id="d-new", started_at=START + 100))
        assert ledger.prune(START + 50) == 1
        assert ledger.attempts("j-old") == [] and ledger.decision("d-old") is None
        assert ledger.attempts("j-runs") and ledger.decision("d-runs") is not None
        # START + 4 is before, but it began later.
        assert ledger.attempts("j-new") and ledger.decision("d-new") is not None
        for file in tmp_path.iterdir():
            assert b"very-old-reason" not in file.read_bytes(), file


def test_ended_attempts_of_a_job_are_added_all_at_once_and_only_once(tmp_path: Path) -> None:
    entries = [EndedAttempt(attempt(number=number), ending(), (ARM, pulled)) for number in (1, 2)]
    with new_ledger(tmp_path) as ledger:
        assert ledger.add_ended("d-1", {}, entries)
        assert not ledger.add_ended("d-2", {}, entries)
        assert [one.number for one in ledger.attempts("j-1")] == [1, 2]
        assert ledger.posteriors()[ARM].pulls == 2


@pytest.mark.parametrize("count", [-1, MAX_TOKENS + 1, 10**20])
def test_impossible_token_counts_are_unknown_and_spoil_no_sum(tmp_path: Path, count: int) -> None:
    with new_ledger(tmp_path) as ledger:
        told = Tokens(input=1, output=count, provenance=Provenance.REPORTED)
        done(ledger, attempt("j-1"), ending(tokens=told))
        (kept,) = ledger.attempts("j-1")
        assert kept.tokens == NO_TOKENS and kept.outcome == "ok"
        (row,) = ledger.stats("role")
        assert (row.output_tokens, row.tokens_unknown) == (None, 1)
