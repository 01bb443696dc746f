"""The answer and nothing else."""

from __future__ import annotations

import io

from dragoman.cli.output.quiet import Quiet
from dragoman.errors import UsageError
from dragoman.events import model
from dragoman.events.words import Outcome, Role
from tests.unit.cli.output.happening import happened, report


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_the_text_is_printed_and_only_at_the_end() -> None:
    out, err = io.StringIO(), io.StringIO()
    show = Quiet(out, err)
    show.event(happened(model.MessageDelta, Role.AGENT, "an answer"))
    assert out.getvalue() == ""
    show.ended(report(text="\nan answer\n\n"))
    assert (out.getvalue(), err.getvalue()) == ("an answer\n", "")


def test_an_empty_answer_prints_nothing_and_what_went_wrong_goes_to_stderr() -> None:
    out, err = io.StringIO(), io.StringIO()
    show = Quiet(out, err)
    show.ended(report(Outcome.EMPTY))
    show.failed(UsageError("not like this"))
    assert out.getvalue() == ""
    assert "without an answer" in err.getvalue() and "not like this" in err.getvalue()


def test_a_pipe_gets_the_agents_bytes_and_a_terminal_gets_them_without_power() -> None:
    pipe, screen = io.StringIO(), Screen()
    for out in (pipe, screen):
        Quiet(out).ended(report(text="\x1b[2Jx"))
    assert (pipe.getvalue(), screen.getvalue()) == ("\x1b[2Jx\n", "␛[2Jx\n")


def test_an_answer_that_was_cut_is_said_to_be() -> None:
    out, err = io.StringIO(), io.StringIO()
    Quiet(out, err).ended(report(text="begin", truncated=True))
    assert out.getvalue() == "begin\n"
    assert "longer than 5 characters and was cut there" in err.getvalue()
