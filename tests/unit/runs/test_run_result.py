from __future__ import annotations

from itertools import count

import pytest

from dragoman.errors import BrokerError, ProcessExited
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.words import Outcome, Role
from dragoman.runs.run_result import RunResult

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
