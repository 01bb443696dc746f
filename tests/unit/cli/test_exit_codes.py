"""Each way in which a turn ends has its exit code."""

from __future__ import annotations

import pytest

from dragoman.cli.exit_codes import MEANINGS, ExitCode, of_result
from dragoman.client.permissions import Denial
from dragoman.client.results import Result
from dragoman.events.parts import Failure
from dragoman.events.words import ErrorKind, Outcome

DENIED = (Denial("t1", "Write", "edit"),)


def test_every_code_has_one_sentence_that_explains_it() -> None:
    assert list(MEANINGS) == list(ExitCode)
    assert all(text.endswith(".") for text in MEANINGS.values())


def test_only_a_good_outcome_is_zero() -> None:
    zero = [outcome for outcome in Outcome if of_result(Result(outcome, "")) is ExitCode.OK]
    assert zero == [Outcome.OK]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.DENIED, 5),
        (Outcome.TIMED_OUT, 3),
        (Outcome.AUTH_REQUIRED, 6),
        (Outcome.QUOTA, 8),
        (Outcome.CRASHED, 1),
        (Outcome.EMPTY, 1),
    ],
)
def test_outcomes_that_users_act_on_have_codes_of_their_own(outcome: Outcome, code: int) -> None:
    assert of_result(Result(outcome, "")) == code


def test_a_denial_explains_neither_a_success_nor_a_crash_nor_a_timeout() -> None:
    assert of_result(Result(Outcome.OK, "done", denials=DENIED)) is ExitCode.OK
    assert of_result(Result(Outcome.CRASHED, "", denials=DENIED)) is ExitCode.FAILED
    assert of_result(Result(Outcome.TIMED_OUT, "", denials=DENIED)) is ExitCode.TIMEOUT


def test_a_missing_session_has_the_exit_code_for_no_session() -> None:
    failure = Failure("session not found", ErrorKind.NOT_FOUND)
    assert of_result(Result(Outcome.FAILED, "", failure=failure)) is ExitCode.NO_SESSION
