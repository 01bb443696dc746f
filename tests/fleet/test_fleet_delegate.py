"""`dragoman delegate --fleet`: a delegation on a worker behaves like a local one."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.fleet.rig import Rig
from tests.fleet.test_fleet_commands import fleet as fleet
from tests.fleet.test_fleet_commands import jobs_now, submit, worker


def delegated(rig: Rig, prompt: str, *options: str, code: int = 0) -> list[dict[str, Any]]:
    """Delegate to the fleet and return the JSON lines."""
    words = ("delegate", "execute", prompt, "--fleet", "--format", "json", *options)
    told = rig.call("s1", *words, code=code)
    return [json.loads(line) for line in told.splitlines() if line.startswith("{")]


def ledger(rig: Rig) -> list[dict[str, Any]]:
    told = rig.call("s1", "ledger", "list", "--format", "json", "-n", "100")
    return [json.loads(line) for line in told.splitlines()]


@pytest.mark.timeout(180)
def test_a_fleet_delegation_is_shown_recorded_and_applied_like_a_local_one(
    fleet: Rig,
) -> None:
    worker(fleet, "w1")
    lines = delegated(fleet, "write 0.2 hello", "--apply")
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "JobBegun"
    assert kinds.index("Decision") < kinds.index("AttemptBegun") < kinds.index("MessageDelta")
    done = lines[-1]
    assert (done["type"], done["ok"], done["answered"], done["exit_code"]) == (
        "Delegation",
        True,
        "scripted",
        0,
    )
    (attempt,) = done["attempts"]
    assert attempt["machine"] == "w1"
    assert attempt["applied"]["ok"]
    assert (fleet.repository / "result.txt").read_text() == "hello\n"
    said = "".join(line["text"] for line in lines if line["type"] == "MessageDelta")
    assert said == "".join(f"write {number}\n" for number in range(10))
    # The job and its events are in this machine's store, under the same id as in the fleet.
    job = done["job"]
    assert [one.id for one in jobs_now(fleet)] == [job]
    assert "write 9" in fleet.call("s1", "jobs", "result", job)
    assert "write 0" in fleet.call("s1", "jobs", "watch", job)
    # The ledger has the job with its machine.
    (row,) = ledger(fleet)
    assert (row["job"], row["peer"], row["machine"], row["outcome"]) == (
        job,
        "scripted",
        "w1",
        "ok",
    )
    assert "w1" in fleet.call("s1", "stats", "--by", "machine")


@pytest.mark.timeout(180)
def test_without_apply_the_patch_is_saved(fleet: Rig) -> None:
    worker(fleet, "w1")
    told = fleet.call("s1", "delegate", "execute", "write 0.1 kept", "--fleet", "--format", "quiet")
    assert "write 9" in told
    assert not (fleet.repository / "result.txt").exists()
    (patch,) = (fleet.root / "s1" / "state" / "patches").glob("*.patch")
    assert "+kept" in patch.read_text()


@pytest.mark.timeout(180)
def test_ctrl_c_cancels_the_job_on_its_worker(fleet: Rig) -> None:
    worker(fleet, "w1")
    process = fleet.start(
        "delegation", "s1", "delegate", "execute", "say 60 slow", "--fleet", "--format", "json"
    )
    fleet.wait(lambda: "say 0" in process.text(), process)
    process.child.send_signal(signal.SIGINT)
    assert process.child.wait(60) == 130
    done = json.loads([one for one in process.text().splitlines() if '"Delegation"' in one][-1])
    assert done["interrupted"] and done["outcome"] == "cancelled"
    (job,) = jobs_now(fleet)
    assert (job.state, job.outcome) == ("done", "cancelled")
    fleet.wait(lambda: not fleet.agents_left())


@pytest.mark.timeout(180)
def test_a_delegation_reports_that_the_server_does_not_answer_and_is_back(fleet: Rig) -> None:
    worker(fleet, "w1")
    process = fleet.start("delegation", "s1", "delegate", "execute", "say 12 x", "--fleet")
    fleet.wait(lambda: "attempt 1" in process.text(), process)
    fleet.kill_server()
    fleet.wait(lambda: "Reconnecting" in process.text(), process)
    fleet.start_server(coordinator=True)
    fleet.wait(lambda: "answers again" in process.text())
    assert process.child.wait(90) == 0, process.text()
    assert "say 9" in process.text()


@pytest.mark.timeout(180)
def test_a_later_command_records_a_killed_delegation_once(fleet: Rig) -> None:
    worker(fleet, "w1")
    process = fleet.start("delegation", "s1", "delegate", "execute", "say 3 killed", "--fleet")
    fleet.wait(lambda: "attempt 1" in process.text(), process)
    process.kill()
    fleet.wait(lambda: jobs_now(fleet) and jobs_now(fleet)[0].state == "done")
    assert ledger(fleet) == []
    job = jobs_now(fleet)[0].id
    assert "say 9" in fleet.call("s1", "fleet", "watch", job)
    (row,) = ledger(fleet)
    assert (row["job"], row["number"], row["machine"], row["outcome"]) == (job, 1, "w1", "ok")
    fleet.call("s1", "fleet", "watch", job)
    fleet.call("s1", "fleet", "jobs")
    assert len(ledger(fleet)) == 1


@pytest.mark.timeout(240)
def test_the_ledger_has_a_separate_attempt_for_a_lost_worker(fleet: Rig) -> None:
    worker(fleet, "w1")
    job = submit(fleet, "say 20 lost")
    fleet.wait(lambda: "lost" in fleet.runs.read_text())
    fleet.wait(lambda: fleet.agents_left())
    worker(fleet, "w2")
    fleet.processes["w1"].kill()
    fleet.call("s1", "fleet", "watch", job)
    rows = sorted(ledger(fleet), key=lambda row: row["number"])
    assert [(row["number"], row["machine"], row["outcome"]) for row in rows] == [
        (1, "w1", "crashed"),
        (2, "w2", "ok"),
    ]
    assert {row["peer"] for row in rows} == {"scripted"}
    assert rows[0]["error_class"] == "machine_lost"


@pytest.mark.timeout(120)
def test_unsupported_options_are_rejected_before_anything_is_sent(fleet: Rig) -> None:
    told = fleet.call("s1", "delegate", "execute", "x", "--fleet", "--max-turns", "3", code=2)
    assert "cannot be used with a fleet" in told
    told = fleet.call("s1", "delegate", "execute", "x", "--needs", "gpu", code=2)
    assert "only with --fleet" in told
    assert jobs_now(fleet) == ()


@pytest.mark.timeout(120)
def test_a_timeout_ends_a_job_that_no_worker_takes(fleet: Rig) -> None:
    # Long enough to submit the job on a busy machine.
    lines = delegated(fleet, "say 1 never", "--timeout", "12", code=3)
    assert lines[-1]["outcome"] == "timed_out"
    assert [job.outcome for job in jobs_now(fleet)] == ["cancelled"]
    # Nothing was attempted, so there is nothing to learn from.
    assert ledger(fleet) == []


@pytest.mark.timeout(120)
def test_explain_names_the_workers_that_could_take_the_job(fleet: Rig) -> None:
    worker(fleet, "w1", "--labels", "linux")
    told = fleet.call("s1", "explain", "execute", "--fleet", "--needs", "linux,scripted")
    assert "w1: 1 of 1 slots free" in told
    words = ("explain", "execute", "--fleet", "--needs", "gpu", "--format", "json")
    found = json.loads(fleet.call("s1", *words, code=7))
    assert found["passed_over"] == [{"worker": "w1", "why": "has no gpu"}]
    assert found["candidates"] == []
