"""Run the rungs of the verification ladder in order, and build and store the card.

Skips rungs that cannot be measured, stops when a rung with `last` fails, and enforces the timeout
of each rung (`time_limits`). `rungs` holds the checks, `verification` the processes and sessions
that they share. No process that was started for the peer is left at the end, even after a cancel.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

import dragoman
from dragoman.catalogue.card import CARDS, Card, CardStore, MeasuredFacts, RungResult, RungVerdict
from dragoman.catalogue.descriptor import Platform
from dragoman.catalogue.enforcement import made_to_ask
from dragoman.catalogue.launch import LaunchSpec, current_platform
from dragoman.dialects.discovery import Cache, MemoryCache
from dragoman.errors import DragomanError, ProcessExited
from dragoman.paths import Paths
from dragoman.verify import remedies
from dragoman.verify.canary_prompts import Canaries, canaries_for
from dragoman.verify.environment import make_repository, surroundings
from dragoman.verify.rung import Rung, RungFinding, failed, one_line, skipped
from dragoman.verify.rungs import (
    handshake,
    launch,
    open_session,
    permissions,
    robustness,
    second_process,
    turns,
    wire_names,
)
from dragoman.verify.time_limits import LadderLimits
from dragoman.verify.verification import Verification

NOT_ASKED: Final = "it needs a model call, which was not allowed"


def _in_order() -> tuple[Rung, ...]:
    login, session, models, parallel = open_session.RUNGS
    binary, entry, windows = launch.RUNGS
    return (
        binary,
        entry,
        *handshake.RUNGS,
        login,
        session,
        models,
        windows,
        robustness.CODES,
        wire_names.PARAMS,
        *turns.RUNGS,
        parallel,
        *permissions.RUNGS,
        *turns.LATER,
        *second_process.RUNGS,
        *wire_names.RUNGS,
        *robustness.RUNGS,
    )


RUNGS: Final = _in_order()
"""All rungs, from the lowest to the highest."""


async def climb(
    way: LaunchSpec,
    *,
    peer: str,
    turns: bool,
    paths: Paths | None = None,
    on_rung: Callable[[RungResult], None] | None = None,
    careful: bool = False,
    limits: LadderLimits | None = None,
    canaries: Canaries | None = None,
    platform: Platform | None = None,
    version: str | None = None,
    cache: Cache | None = None,
    rungs: Sequence[Rung] = RUNGS,
) -> Card:
    """Verify the peer that `way` starts or reaches, and return its card, which is stored if `paths`
    is given. Without `turns`, the stored card also has results copied from an earlier card of the
    same version (see `with_earlier`); the returned card does not.

    `turns` allows rungs that spend model calls. `careful` is for unknown programs: they get no
    credentials and an empty home. `on_rung` is called after each rung. `version` is used for peers
    that do not report theirs. `cache` stores what is discovered about the program, for its next
    use.
    """
    platform = platform or current_platform()
    results: list[RungResult] = []
    # Start the peer as under a restrictive policy: the card says whether it then asks for
    # permission.
    way = made_to_ask(way)
    with surroundings(way, careful=careful) as where:
        state = Verification(
            way=way,
            surroundings=where,
            limits=limits or LadderLimits(),
            canaries=canaries or _canaries(way),
            platform=platform,
            turns=turns,
            careful=careful,
            cache=MemoryCache() if cache is None else cache,
        )
        await make_repository(where.workspace)
        async with state:
            for rung in rungs:
                result = await _try(rung, state)
                results.append(result)
                if on_rung is not None:
                    on_rung(result)
                if rung.last and result.verdict is RungVerdict.FAIL:
                    break
    card = _card(peer, version, platform, turns, results, state.facts, rungs)
    if paths is not None:
        store = CardStore(paths.data / CARDS)
        earlier = None if turns else store.load(peer, card.version, platform)
        store.save(card if earlier is None else with_earlier(card, earlier, rungs))
    return card


def _canaries(way: LaunchSpec) -> Canaries:
    return canaries_for(way.descriptor.canaries) if way.descriptor is not None else Canaries()


async def _try(rung: Rung, state: Verification) -> RungResult:
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    finding = _not_tried(rung, state)
    if finding is None:
        finding = await _measure(rung, state)
    state.verdicts[rung.name] = finding.verdict
    state.facts.update(finding.facts)
    return RungResult(
        rung=rung.name,
        verdict=finding.verdict,
        evidence=one_line(finding.evidence),
        remedy=one_line(finding.remedy),
        seconds=round(loop.time() - started_at, 3),
    )


def _not_tried(rung: Rung, state: Verification) -> RungFinding | None:
    missing = [name for name in rung.needs if not state.held(name)]
    if missing:
        tried = any(state.verdicts.get(name) is RungVerdict.FAIL for name in missing)
        why = "did not pass" if tried else "was not measured"
        return skipped(f"it needs {' and '.join(missing)}, which {why}")
    if rung.turns and not state.turns:
        return skipped(NOT_ASKED)
    return None


async def _measure(rung: Rung, state: Verification) -> RungFinding:
    try:
        async with asyncio.timeout(state.limits.rung) as scope:
            return await rung.measure(state)
    except DragomanError as error:
        # A rung handles the failures it expects; this is an unexpected one.
        return failed(str(error), _remedy(error))
    except TimeoutError:
        if not scope.expired():
            raise
        return failed(f"it did not finish within {state.limits.rung:g} s", remedies.SLOW_RUNG)


def _remedy(error: DragomanError) -> str:
    return remedies.CRASH if isinstance(error, ProcessExited) else remedies.UNANSWERED


def _card(
    peer: str,
    version: str | None,
    platform: Platform,
    turns: bool,
    results: Sequence[RungResult],
    facts: dict[str, Any],
    rungs: Sequence[Rung],
) -> Card:
    held = [one.rung for one in results if one.verdict in (RungVerdict.PASS, RungVerdict.WARN)]
    fallen = {one.rung for one in results if one.verdict is RungVerdict.FAIL}
    essential = {rung.name for rung in rungs if rung.essential}
    spoke = any(name == "dialect" for name in held)
    return Card(
        peer=peer,
        version=facts.get("agent_version") or version,
        platform=platform,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        dragoman=dragoman.__version__,
        turns=turns,
        reached=held[-1] if held else "",
        usable=spoke and not fallen & essential,
        rungs=tuple(results),
        facts=MeasuredFacts(**facts),
    )


def with_earlier(card: Card, earlier: Card, rungs: Sequence[Rung] = RUNGS) -> Card:
    """Return `card` with results of rungs copied from `earlier` where `card` skipped the rung, or
    passed it without filling its fields.

    A failed rung is not copied, because its cause may have been fixed since. Nothing is copied if
    `earlier` was measured without turns, or if the version of `card` is unknown.
    """
    if not earlier.turns or card.version is None:
        # If the version is unknown, it may have changed since.
        return card
    before = {one.rung: one for one in earlier.rungs}
    results = {one.rung: one for one in card.rungs}
    facts: dict[str, Any] = {}
    for rung in rungs:
        old, new = before.get(rung.name), results.get(rung.name)
        if old is None or new is None or old.verdict is RungVerdict.FAIL:
            continue
        unknown = all(getattr(card.facts, name) is None for name in rung.fields)
        if new.verdict is RungVerdict.SKIPPED or (new.verdict is RungVerdict.PASS and unknown):
            results[rung.name] = _dated(old, earlier.measured_at)
            facts |= {name: getattr(earlier.facts, name) for name in rung.fields}
    held = [
        name for name, one in results.items() if one.verdict in (RungVerdict.PASS, RungVerdict.WARN)
    ]
    return replace(
        card,
        turns=True,
        reached=held[-1] if held else "",
        rungs=tuple(results.values()),
        facts=replace(card.facts, **facts),
    )


_DATED: Final = re.compile(r"on \d{4}-\d\d-\d\d: ")


def _dated(result: RungResult, measured_at: str) -> RungResult:
    if result.verdict is RungVerdict.SKIPPED or _DATED.match(result.evidence):
        return result
    return replace(result, evidence=one_line(f"on {measured_at[:10]}: {result.evidence}"))
