"""The watchdog of a turn, with a clock that the test turns."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.budgets import CHECKS_PER_BUDGET, Budgets, Watchdog
from dragoman.errors import UsageError
from dragoman.events.words import ToolStatus
from tests.unit.client.clock import Clock

FOR_EVER = Budgets(first_event=None, silence=None, total=None)


class Watched:
    """A watchdog, its clock, and what it called out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, budgets: Budgets) -> None:
        self.clock = Clock(monkeypatch)
        self.expired: list[tuple[str, float]] = []
        self.held = False
        self.dog = Watchdog(budgets, lambda *what: self.expired.append(what), lambda: self.held)
        self.dog.start()


def test_nothing_is_watched_if_every_budget_is_unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, FOR_EVER)
    watched.clock.advance(1e9)
    assert watched.expired == []
    assert watched.clock.timers == []


def test_a_turn_without_any_sign_of_life_uses_up_the_first_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, Budgets(first_event=8.0, silence=2.0))
    watched.clock.advance(7.9)
    assert watched.expired == []
    watched.clock.advance(0.2)
    assert watched.expired == [("first_event", 8.0)]


def test_silence_begins_with_the_last_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, Budgets(first_event=8.0, silence=16.0))
    for _ in range(3):
        watched.clock.advance(7.0)
        watched.dog.signs += 1
    # The eighth of the smallest budget by which it may be late, and never early.
    late = 8.0 / CHECKS_PER_BUDGET
    watched.clock.advance(16.0 - 0.01)
    assert watched.expired == []
    watched.clock.advance(late + 0.01)
    assert watched.expired == [("silence", 16.0)]


def test_the_whole_turn_has_a_budget_that_signs_of_life_do_not_renew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, Budgets(total=10.0))
    for _ in range(12):
        watched.clock.advance(1.0)
        watched.dog.signs += 1
    assert watched.expired == [("total", 10.0)]


def test_the_whole_turn_is_over_in_time_also_where_it_is_looked_at_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, Budgets(first_event=800.0, silence=800.0, total=810.0))
    for _ in range(8):
        watched.clock.advance(101.0)
        watched.dog.signs += 1
    assert watched.expired == []
    watched.clock.advance(2.01)
    assert watched.expired == [("total", 810.0)]


def test_silence_does_not_run_while_a_question_to_us_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, Budgets(first_event=4.0, silence=4.0))
    watched.dog.signs += 1
    watched.dog.open_questions += 1
    watched.clock.advance(100.0)
    assert watched.expired == []
    watched.dog.open_questions -= 1
    watched.clock.advance(3.4)
    assert watched.expired == []
    watched.clock.advance(1.0)
    assert watched.expired == [("silence", 4.0)]


def test_an_open_question_does_not_stop_the_budget_of_the_whole_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, Budgets(total=4.0))
    watched.dog.open_questions += 1
    watched.clock.advance(5.0)
    assert watched.expired == [("total", 4.0)]


def test_silence_is_ours_while_we_hold_the_other_side_back(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, Budgets(first_event=4.0, silence=4.0))
    watched.dog.signs += 1
    watched.held = True
    watched.clock.advance(100.0)
    assert watched.expired == []
    watched.held = False
    watched.clock.advance(5.0)
    assert watched.expired == [("silence", 4.0)]


def test_a_running_tool_call_has_a_longer_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, Budgets(first_event=4.0, silence=4.0, tool_silence=40.0))
    watched.dog.signs += 1
    watched.dog.tool_changed("a", None)
    watched.dog.tool_changed("b", ToolStatus.RUNNING)
    watched.clock.advance(39.0)
    watched.dog.signs += 1
    watched.dog.tool_changed("a", ToolStatus.COMPLETED)
    # A late report without a status does not start the call again.
    watched.dog.tool_changed("a", None)
    watched.clock.advance(39.0)
    assert watched.expired == []
    watched.clock.advance(3.0)
    assert watched.expired == [("tool_silence", 40.0)]


def test_a_finished_tool_call_no_longer_extends_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, Budgets(first_event=4.0, silence=4.0, tool_silence=40.0))
    watched.dog.signs += 1
    watched.dog.tool_changed("a", ToolStatus.PENDING)
    watched.clock.advance(20.0)
    watched.dog.signs += 1
    watched.dog.tool_changed("a", ToolStatus.FAILED)
    watched.clock.advance(5.0)
    assert watched.expired == [("silence", 4.0)]


@pytest.mark.parametrize(
    ("silence", "tool_silence", "expired"),
    [(4.0, 2.0, [("silence", 4.0)]), (4.0, None, []), (None, 2.0, [])],
)
def test_the_longer_of_the_two_limits_applies_while_a_tool_call_runs(
    monkeypatch: pytest.MonkeyPatch,
    silence: float | None,
    tool_silence: float | None,
    expired: list[tuple[str, float]],
) -> None:
    budgets = Budgets(first_event=4.0, silence=silence, tool_silence=tool_silence)
    watched = Watched(monkeypatch, budgets)
    watched.dog.signs += 1
    watched.dog.tool_changed("a", ToolStatus.RUNNING)
    watched.clock.advance(1e4)
    assert watched.expired == expired


def test_a_watchdog_calls_once_and_then_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, Budgets(first_event=1.0, silence=1.0, total=2.0))
    watched.clock.advance(60.0)
    assert watched.expired == [("first_event", 1.0)]
    assert watched.clock.due == []


def test_a_stopped_watchdog_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, Budgets())
    watched.dog.stop()
    watched.dog.stop()
    watched.clock.advance(1e6)
    assert watched.expired == []
    assert watched.clock.due == []


@pytest.mark.parametrize("name", ["initialize", "silence", "cancel_grace", "replay_quiet"])
def test_a_budget_cannot_be_negative(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        Budgets(**{name: -1.0})


@pytest.mark.parametrize("name", ["first_event", "silence", "tool_silence", "total"])
def test_a_budget_of_a_turn_cannot_be_nothing(name: str) -> None:
    with pytest.raises(UsageError, match="to wait forever, pass None"):
        Budgets(**{name: 0.0})


def test_a_replay_need_not_be_waited_for() -> None:
    assert Budgets(replay_quiet=0.0, replay_total=0.0, cancel_grace=0.0).replay_quiet == 0.0


def test_a_total_that_ran_out_waits_less_for_the_end_than_a_silence() -> None:
    budgets = Budgets()
    assert budgets.grace_after("total") == budgets.expired_grace
    assert budgets.grace_after("silence") == budgets.silent_grace > budgets.expired_grace
    assert Budgets(cancel_grace=0.2).grace_after("silence") == 0.2


@pytest.mark.parametrize(
    "wrong", [{"total": float("nan")}, {"silence": "5"}, {"request": True}, {"cancel_grace": None}]
)
def test_a_budget_is_a_number_of_seconds(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=f"{name} takes a number of seconds"):
        Budgets(**wrong)
