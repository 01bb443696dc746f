"""Jobs as rows and lines."""

from __future__ import annotations

from dragoman.cli.output import job_pages
from tests.unit.runs.stored import job

NOW = 160.0


def test_a_job_is_a_row_with_how_it_ended_and_how_long_that_took() -> None:
    assert job_pages.as_cells(job(), NOW) == [
        "j-0000000001", "ok", "scout", "1 min ago", "2.0 s", "s-0000000001", "do it",
    ]  # fmt: skip


def test_a_job_that_runs_is_as_old_as_it_is_now_and_one_that_waits_took_nothing() -> None:
    running = job(state="running", outcome=None, ended_at=None)
    assert job_pages.as_cells(running, NOW)[1] == "running"
    assert job_pages.took(running, NOW) == "59.0 s"
    assert job_pages.took(job(state="queued", started_at=None), NOW) == ""
    assert job_pages.took(running, 50.0) == "0.0 s", "a clock was set back"


def test_a_job_of_which_not_all_is_stored_says_so() -> None:
    torn = job(missing_events=7)
    assert job_pages.as_cells(torn, NOW)[1] == "ok, 7 events not stored"
    assert job_pages.state_of(job(missing_events=1)) == "ok, 1 event not stored"
    assert job_pages.as_json(torn)["missing_events"] == 7


def test_a_long_prompt_is_cut_in_a_list_only() -> None:
    long = job(prompt="word " * 100)
    assert len(job_pages.as_cells(long, NOW)[-1]) == job_pages.SHOWN_PROMPT
    assert job_pages.as_json(long)["prompt"] == long.prompt
    assert len(job_pages.as_cells(long, NOW)) == len(job_pages.HEAD)
