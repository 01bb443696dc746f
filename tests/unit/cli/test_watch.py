"""Watching what is over already: the end of every watch."""

from __future__ import annotations

import json

import pytest

from dragoman.cli import watch
from dragoman.cli.shared_options import ListFormat
from dragoman.errors import UnknownJob
from dragoman.store.open import open_store
from tests.unit.cli.calling import Shell
from tests.unit.runs.stored import job, said, session


@pytest.fixture
def stored(shell: Shell) -> Shell:
    with open_store() as store:
        store.create_session(session())
        store.append("s-0000000001", 0, [said("before"), said("an "), said("answer")])
        store.create_job(job(first_event=1, next_event=3, outcome="timed_out"))
    return shell


def test_a_job_is_shown_from_its_prompt_to_its_end(
    stored: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch.watch_job("j-0000000001", format=ListFormat.TEXT) == 3
    assert capsys.readouterr().out == "> do it\nan answer\n[timed_out, 2.0 s]\n\n"


def test_programs_get_the_events_and_the_job(
    stored: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    watch.watch_job("j-0000000001", format=ListFormat.JSON)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["MessageDelta", "MessageDelta", "Job"]
    assert lines[-1]["outcome"] == "timed_out"


def test_the_answer_alone_is_nothing_but_that(
    stored: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    watch.watch_job("j-0000000001", format=ListFormat.QUIET)
    assert capsys.readouterr().out == "an answer"


def test_an_unknown_job_is_raised(stored: Shell) -> None:
    with pytest.raises(UnknownJob):
        watch.watch_job("j-9", format=ListFormat.TEXT)
