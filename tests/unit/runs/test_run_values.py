"""What a run is asked for and gives back, and the handle that cancels it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from dragoman.catalogue.enforcement import Enforced
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.dialects.discovery import ACP
from dragoman.errors import BrokerError, ProcessExited
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.words import Outcome, Role
from dragoman.policy import preset
from dragoman.policy.approver import Approver
from dragoman.runs.run_values import CancelHandle, RunRequest, RunResult


def test_a_request_that_moves_takes_its_approver_along(tmp_path: Path) -> None:
    request = RunRequest(
        peer="tester",
        enforced=Enforced(way=LaunchSpec(command=("agent",), protocol=ACP)),
        adapter=None,
        workspace=tmp_path,
        approver=Approver(preset("deny-all"), "tester", str(tmp_path)),
        unattended="deny-all",
        budgets=Budgets(),
    )
    assert request.moved(tmp_path) is request
    moved = request.moved(tmp_path / "began")
    assert (moved.workspace, moved.approver.workspace) == (
        tmp_path / "began",
        str(tmp_path / "began"),
    )
    assert moved.project is None


PLACE = EventEnvelope(model.Source("acp", "c"), count(), "s")
PLACE.turn = "t"
BASE = PLACE.base("x", None)


@pytest.mark.parametrize(
    ("event", "life"),
    [
        (model.MessageDelta(*BASE, role=Role.AGENT, text="a"), True),
        (model.MessageDelta(*BASE, role=Role.USER, text="a"), False),
        (model.TurnStarted(*BASE), False),
        (model.TurnEnded(*BASE, outcome=Outcome.OK), False),
        (model.Noticed(*BASE[:3], None, *BASE[4:], severity="info", title="x"), False),
        (model.MessageDelta(*BASE[:6], True, role=Role.AGENT, text="a"), False),
    ],
)
def test_only_what_the_peer_does_in_its_turn_is_a_sign_of_life(
    event: model.Event, life: bool
) -> None:
    seen = RunResult()
    seen.observe(event, 1.0)
    assert not seen.acted, "nothing was prompted"
    seen.prompted = True
    for at in (2.0, 3.0):
        seen.observe(event, at)
    assert (seen.acted, seen.first_event_at) == (life, 2.0 if life else None)


def test_the_end_of_a_broker_is_told_from_the_end_of_an_agent() -> None:
    assert RunResult(error=BrokerError("gone")).broker_failed
    assert not RunResult(error=ProcessExited(exit_code=3)).broker_failed


class Turn:
    cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def test_a_handle_cancels_the_running_turn_and_one_that_begins_too_late() -> None:
    handle, first, second = CancelHandle(), Turn(), Turn()
    handle.pull()
    assert handle.pulled and not handle.in_turn
    handle.hold(first)  # type: ignore[arg-type]
    assert first.cancelled == 1 and handle.in_turn
    handle.hold(None)
    calm = CancelHandle()
    calm.hold(second)
    assert second.cancelled == 0
    calm.pull()
    assert second.cancelled == 1
    calm.hold(None)
    calm.pull()
    assert second.cancelled == 1


def test_a_handle_ends_what_is_between_two_turns_and_says_whether_there_is_anything() -> None:
    handle, turn, ended = CancelHandle(), Turn(), list[str]()
    handle.between_turns(lambda: ended.append("first"))
    handle.hold(turn)  # type: ignore[arg-type]
    assert handle.pull() and turn.cancelled == 1 and ended == []
    handle.hold(None)
    assert handle.pull() and ended == ["first"]
    handle.between_turns(None)
    assert not handle.pull() and ended == ["first"]
    handle.between_turns(lambda: ended.append("second"))
    assert ended == ["first", "second"]


def test_a_handle_for_single_turns_does_not_cancel_the_next_one() -> None:
    handle, first, second = CancelHandle(one_turn=True), Turn(), Turn()
    handle.pull()
    handle.hold(first)  # type: ignore[arg-type]
    assert first.cancelled == 1
    handle.hold(None)
    handle.hold(second)  # type: ignore[arg-type]
    assert second.cancelled == 0 and not handle.pulled
