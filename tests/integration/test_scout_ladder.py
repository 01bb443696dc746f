"""scout on the ladder, as its descriptor says it is asked: the first peer that a user verifies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.launch import resolve
from dragoman.catalogue.load import Catalogue, built_in
from dragoman.scout.store import VARIABLE
from dragoman.verify.ladder import climb
from dragoman.verify.time_limits import LadderLimits
from tests.aio import aio

LIMITS: Final = LadderLimits(tail=0.05, replay_quiet=0.05, oversized_size=1024 * 1024)


@aio
async def test_scout_holds_on_every_rung_that_is_tried_turns_included(
    tmp_path: Path,
) -> None:
    scout = Catalogue(built_in()).get("scout")
    way = replace(resolve(scout), env={VARIABLE: str(tmp_path)})
    card = await climb(way, peer="scout", turns=True, limits=LIMITS)
    verdicts = {one.rung: one.verdict for one in card.rungs}
    assert [name for name, verdict in verdicts.items() if verdict is RungVerdict.FAIL] == []
    skipped = {name for name, verdict in verdicts.items() if verdict is RungVerdict.SKIPPED}
    assert skipped - {"windows", "survivors"} == {"terminals", "errors", "cancel"}
    facts = card.facts
    assert card.usable
    assert (facts.echo, facts.streaming, facts.mcp) == (True, True, False)
    assert (facts.asks_permission, facts.respects_refusal, facts.uses_files) == (True, True, True)
    assert (facts.lists_sessions, facts.loads_sessions, facts.resumes_sessions) == (True,) * 3
