"""`dragoman jobs` without any broker."""

from __future__ import annotations

import json

import pytest

from dragoman.cli.jobs import show_result
from dragoman.cli.shared_options import ListFormat
from dragoman.store import root_of
from dragoman.store.open import open_store
from tests.unit.cli.calling import Shell
from tests.unit.runs.stored import job, session


@pytest.fixture
def stored(shell: Shell) -> Shell:
    root = str(root_of(shell.cwd))
    with open_store() as store:
        store.create_session(session(root=root))
        store.create_job(job(root=root))
        store.create_job(
            job("j-2", root="/elsewhere", outcome="timed_out", text="half", created_at=200.0)
        )
    return shell


def test_a_list_has_the_jobs_of_the_project_the_latest_first(stored: Shell) -> None:
    assert stored("jobs", "list", "--format", "quiet").out == "j-0000000001\n"
    assert stored("jobs", "list", "--all", "--format", "quiet").out == "j-2\nj-0000000001\n"
    assert "do it" in stored("jobs", "list").out
    assert json.loads(stored("jobs", "list", "--format", "json").out)["text"] == "done"
    assert "There are no jobs" in stored("jobs", "list", "--running").err


def test_a_delegation_is_one_row_unless_its_attempts_are_wanted(stored: Shell) -> None:
    root = str(root_of(stored.cwd))
    with open_store() as store:
        store.create_job(job("j-3-1", root=root, created_at=301.0))
        store.create_job(job("j-3", root=root, created_at=300.0))
    listed = stored("jobs", "list", "--format", "quiet").out.split()
    assert listed == ["j-3", "j-0000000001"]
    both = stored("jobs", "list", "--attempts", "--format", "quiet").out.split()
    assert both == ["j-3-1", *listed]


def test_a_time_to_wait_needs_the_option_to_wait(stored: Shell) -> None:
    refused = stored("jobs", "result", "j-0000000001", "--timeout", "30m")
    assert (refused.code, "--timeout works only with --wait" in refused.err) == (2, True)


def test_a_result_is_the_text_and_the_code_of_its_outcome(stored: Shell) -> None:
    done = stored("jobs", "result", "j-0000000001")
    assert (done.code, done.out, done.err) == (0, "done\n", "[ok] 2.0 s\n")
    late = stored("jobs", "result", "j-2", "--wait")
    assert (late.code, late.out) == (3, "half\n")
    assert stored("jobs", "watch", "j-2").code == 3


def test_a_job_that_has_ended_cannot_be_cancelled(stored: Shell) -> None:
    said = stored("jobs", "cancel", "j-2")
    assert (said.code, "has already ended" in said.err) == (1, True)


def test_the_files_of_a_job_are_fetched_from_another_machine_only(stored: Shell) -> None:
    said = stored("jobs", "fetch", "last")
    assert said.code == 2 and "add --host NAME" in said.err


def test_a_job_that_failed_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    failed = job(outcome="crashed", text="", failure={"message": "it is \x1bgone"})
    assert show_result(failed, ListFormat.TEXT) == 1
    assert capsys.readouterr() == ("", "[crashed] 2.0 s: it is ␛gone\n")
    assert show_result(job(state="queued", started_at=None), ListFormat.QUIET) == 3


def test_the_notices_of_a_job_follow_its_result(stored: Shell) -> None:
    with open_store() as store:
        note = {"job": "j-0000000001", "text": "a question\x1b was declined"}
        store.note("s-0000000001", 0, "notice", note)
    for command in ("result", "watch"):
        said = stored("jobs", command, "j-0000000001")
        assert said.code == 0 and "dragoman: a question" in said.err, command
        assert "was declined\n" in said.err and "\x1b" not in said.err, command
    told = stored("jobs", "result", "j-0000000001", "--format", "json").out
    assert json.loads(told)["notices"] == ["a question\x1b was declined"]
