"""The choice of an option: by its kind, and never wider than it was meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dragoman.client.permissions import (
    MAX_DENIALS,
    READING,
    SHOWN_SIZE,
    Answer,
    Chosen,
    Denial,
    Question,
    add_denial,
    approve_all,
    approve_reads,
    choose,
    deny_all,
    settled,
)
from dragoman.errors import UsageError


@dataclass(frozen=True)
class Offered:
    option_id: str
    kind: str


ONCE = Offered("proceed_once", "allow_once")
ALWAYS = Offered("proceed_always", "allow_always")
REJECT = Offered("cancel", "reject_once")
NEVER = Offered("never", "reject_always")


def question(kind: str, **told: Any) -> Question:
    call = {"locations": [{"path": "a"}], **told}
    return Question("s", "call", "title", kind, [ONCE, REJECT], call)


def test_an_option_is_chosen_by_its_kind_whatever_it_is_called() -> None:
    assert choose([ALWAYS, ONCE, REJECT], Answer.REJECT_ONCE) == "cancel"
    assert choose([ALWAYS, ONCE, REJECT], Answer.ALLOW_ONCE) == "proceed_once"


def test_the_first_option_of_a_kind_is_chosen() -> None:
    switching = Offered("proceed_once_and_switch_to_default", "allow_once")
    assert choose([ONCE, switching], Answer.ALLOW_ONCE) == "proceed_once"


@pytest.mark.parametrize(
    ("answer", "offered", "chosen"),
    [
        (Answer.ALLOW_ONCE, [ALWAYS, REJECT], None),
        (Answer.ALLOW_ALWAYS, [ONCE, REJECT], "proceed_once"),
        (Answer.ALLOW_ALWAYS, [ONCE, ALWAYS], "proceed_always"),
        (Answer.REJECT_ONCE, [ONCE, NEVER], "never"),
        (Answer.REJECT_ALWAYS, [ONCE, REJECT], "cancel"),
        (Answer.REJECT_ONCE, [ONCE, ALWAYS], None),
        (Answer.CANCEL, [ONCE, ALWAYS, REJECT, NEVER], None),
        (Answer.ALLOW_ONCE, [], None),
    ],
)
def test_allowing_never_becomes_wider_and_refusing_never_becomes_allowing(
    answer: Answer, offered: list[Offered], chosen: str | None
) -> None:
    assert choose(offered, answer) == chosen


@pytest.mark.parametrize("answer", list(Answer))
def test_an_option_of_an_unknown_kind_is_never_chosen(answer: Answer) -> None:
    offered = [Offered("a", "allow_for_session"), Offered("b", ""), Offered("c", "ALLOW_ONCE")]
    assert choose(offered, answer) is None


def test_every_answer_has_a_choice_and_says_whether_it_allows() -> None:
    for answer in Answer:
        choose([ONCE], answer)
    assert {answer for answer in Answer if answer.allows} == {
        Answer.ALLOW_ONCE,
        Answer.ALLOW_ALWAYS,
    }


def test_the_presets_allow_everything_reading_or_nothing() -> None:
    kinds = ["read", "search", "think", "edit", "delete", "move", "execute", "fetch", "other", "x"]
    for kind in kinds:
        assert approve_all(question(kind)) is Answer.ALLOW_ONCE
        assert deny_all(question(kind)) is Answer.REJECT_ONCE
        assert approve_reads(question(kind)).allows == (kind in READING)
    assert READING == {"read", "search", "think"}


@pytest.mark.parametrize("kind", sorted(READING))
@pytest.mark.parametrize(
    "told",
    [
        {"rawInput": {"command": "cat a"}},
        {"rawInput": {"path": "a", "content": "x"}},
        {"content": [{"type": "diff", "path": "a", "newText": "x"}]},
        {"rawInput": {"path": "a", "payload": "x"}},
        {"rawInput": "x"},
    ],
)
def test_a_read_is_judged_by_what_would_be_done(kind: str, told: dict[str, Any]) -> None:
    assert not approve_reads(question(kind, **told)).allows


def test_a_read_that_does_not_say_what_it_reads_is_refused() -> None:
    assert not approve_reads(question("read", locations=[])).allows
    assert approve_reads(question("think", locations=[])).allows


@pytest.mark.parametrize("answer", [True, None, "allow_once"])
def test_what_is_not_an_answer_is_a_mistake_of_the_caller_and_chooses_nothing(answer: Any) -> None:
    with pytest.raises(UsageError, match="with an Answer, not"):
        choose([ONCE, ALWAYS, REJECT], answer)


def test_an_approval_that_no_option_can_give_is_a_refusal() -> None:
    assert settled([ONCE, REJECT], Answer.ALLOW_ONCE) == ("proceed_once", Answer.ALLOW_ONCE)
    assert settled([ALWAYS, REJECT], Answer.ALLOW_ONCE) == ("cancel", Answer.REJECT_ONCE)
    assert settled([ALWAYS], Answer.ALLOW_ONCE) == (None, Answer.REJECT_ONCE)
    unknown = Chosen("another", Answer.ALLOW_ONCE)
    assert settled([ONCE, REJECT], unknown) == ("cancel", Answer.REJECT_ONCE)
    assert settled([ONCE, REJECT], Answer.CANCEL) == (None, Answer.CANCEL)


def test_the_denials_of_a_turn_are_limited_in_number_and_size() -> None:
    denials: list[Denial] = []
    for number in range(MAX_DENIALS + 1):
        add_denial(denials, Denial(str(number), "x" * 2 * SHOWN_SIZE, "execute"))
    assert len(denials) == MAX_DENIALS
    assert denials[-1] == Denial(str(MAX_DENIALS - 1), "x" * SHOWN_SIZE, "execute")
