"""Events of turns that somebody else asked for."""

from __future__ import annotations

import io
from pathlib import Path

from dragoman.cli.output.history_view import Answers, HistoryView
from dragoman.store.history import history
from tests.unit.runs.stored import job, said, session, store_in


def test_prompts_are_shown_and_every_turn_ends_with_a_line(tmp_path: Path) -> None:
    out = io.StringIO()
    past, answers = HistoryView(out, out), io.StringIO()
    only = Answers(answers, answers)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.create_job(job(next_event=2))
        store.create_job(
            job("j-2", first_event=2, next_event=3, outcome="crashed", created_at=105.0,
                failure={"message": "it is gone"}, prompt="two\nlines")
        )  # fmt: skip
        store.append("s-0000000001", 0, [said("one "), said("answer"), said("half")])
        for event in history(store, "s-0000000001"):
            past.event(event)
            only.event(event)
    assert out.getvalue() == (
        "> do it\none answer\n[ok]\n\n> two\n> lines\nhalf\n[crashed: it is gone]\n\n"
    )
    assert answers.getvalue() == "one answer\nhalf\n"


def test_what_others_asked_for_obeys_nothing() -> None:
    out = io.StringIO()
    HistoryView(out, out).asked("\x1b[2J")
    assert "\x1b" not in out.getvalue()
