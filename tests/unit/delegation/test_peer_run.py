"""One try at a peer: what counts as a sign of life. The turns are tested with real processes."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from dragoman.delegation.peer_run import _is_life
from dragoman.events import model
from dragoman.events.envelope import EventEnvelope
from dragoman.events.words import Outcome, Role
from tests.aio import aio
from tests.integration.delegated_peers import Bench, bench_in

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
    assert _is_life(event) is life


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


@aio
async def test_a_model_that_the_peer_does_not_have_is_never_prompted(bench: Bench) -> None:
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    done = await bench.delegate(model="nonesuch", fallback="none")
    assert done.outcome is Outcome.UNSUPPORTED and not done.final.may_have_run
    assert bench.told("alpha") == [] and len(bench.told("alpha", "starts")) == 1


@aio
async def test_a_tier_that_cannot_be_had_is_told_and_the_work_done(bench: Bench) -> None:
    bench.peer("alpha", "ok", more='[tiers]\nfast = "quick"\n')
    bench.settings("alpha")
    done = await bench.delegate(tier="fast")
    assert done.ok and done.final.asked_model == "quick"
    (notice,) = bench.heard.notices
    assert "alpha offers no choice of models" in notice


@aio
async def test_a_peer_with_a_flag_is_started_again_with_it_and_prompted_once(bench: Bench) -> None:
    bench.peer("alpha", "ok", more='[models]\nflag = "--model"\n[tiers]\nfast = "quick"\n')
    bench.settings("alpha")
    done = await bench.delegate(tier="fast")
    assert done.ok and len(bench.told("alpha")) == 1 and len(bench.told("alpha", "starts")) == 2
    assert "does not say which model it uses" in bench.heard.notices[0]


@aio
async def test_a_model_that_cannot_be_read_back_is_not_prompted(bench: Bench) -> None:
    bench.peer("alpha", "ok", more='[models]\nflag = "--model"\n')
    bench.settings("alpha")
    done = await bench.delegate(model="big")
    assert not done.ok and bench.told("alpha") == []
