from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from dragoman.catalogue.card import Card, CardStore, MeasuredFacts, RungResult, RungVerdict
from dragoman.catalogue.launch import LaunchSpec
from dragoman.errors import CallTimeout, ProcessExited
from dragoman.paths import find_paths
from dragoman.verify import remedies
from dragoman.verify.ladder import NOT_ASKED, RUNGS, climb, with_earlier
from dragoman.verify.rung import Rung, RungFinding, failed, passed, skipped, warned
from dragoman.verify.time_limits import LadderLimits
from dragoman.verify.verification import Verification
from tests.aio import aio

WAY = LaunchSpec(command=("x",))


def rung(name: str, finding: RungFinding | BaseException, **fields: object) -> Rung:
    async def measure(climb: Verification) -> RungFinding:
        if isinstance(finding, BaseException):
            raise finding
        return finding

    return Rung(name=name, asks="?", measure=measure, **fields)  # type: ignore[arg-type]


DIALECT = rung("dialect", passed("acp", dialect="acp", agent_version="1.5"))


def test_every_field_of_a_card_is_filled_by_exactly_one_rung() -> None:
    filled = Counter(name for each in RUNGS for name in each.fields)
    assert set(filled) == set(MeasuredFacts.__struct_fields__)
    assert set(filled.values()) == {1}


def test_a_rung_needs_only_rungs_below_it() -> None:
    below: set[str] = set()
    for each in RUNGS:
        assert set(each.needs) <= below, each.name
        assert each.name not in below
        below.add(each.name)


def test_nothing_is_started_before_the_launch_was_looked_at() -> None:
    names = [each.name for each in RUNGS]
    assert names[:3] == ["binary", "entry", "handshake"]
    assert [each.name for each in RUNGS if each.last] == ["binary", "entry", "handshake", "dialect"]


@aio
async def test_the_climb_ends_where_going_on_makes_no_sense() -> None:
    card = await climb(
        WAY,
        peer="x",
        turns=False,
        rungs=[
            rung("binary", failed("not there", "install it"), last=True, essential=True),
            rung("entry", passed("never tried")),
        ],
    )
    assert [one.rung for one in card.rungs] == ["binary"]
    assert not card.usable
    assert card.reached == ""
    assert card.facts == MeasuredFacts()


@aio
async def test_a_rung_is_not_tried_without_what_it_needs_or_without_consent() -> None:
    tried: list[RungResult] = []
    card = await climb(
        WAY,
        peer="x",
        turns=False,
        on_rung=tried.append,
        rungs=[
            DIALECT,
            rung("session", skipped("no login"), essential=True),
            rung("models", AssertionError("it was tried"), needs=("session",)),
            rung("echo", AssertionError("it was tried"), turns=True),
        ],
    )
    assert tuple(tried) == card.rungs
    verdicts = {one.rung: one for one in tried}
    assert verdicts["models"].verdict is RungVerdict.SKIPPED
    assert verdicts["models"].evidence == "it needs session, which was not measured"
    assert verdicts["echo"].evidence == NOT_ASKED
    assert card.usable
    assert card.reached == "dialect"
    assert card.version == "1.5"


@aio
async def test_a_failure_that_is_not_essential_leaves_the_peer_usable() -> None:
    after = rung("files", AssertionError("it was tried"), needs=("permission",))
    rungs = [DIALECT, rung("permission", failed("it wrote", "take care")), after]
    card = await climb(WAY, peer="x", turns=True, rungs=rungs)
    assert card.usable
    assert card.rungs[-1].evidence == "it needs permission, which did not pass"
    rungs = [DIALECT, rung("session", failed("none", "look"), essential=True)]
    assert not (await climb(WAY, peer="x", turns=True, rungs=rungs)).usable


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (CallTimeout("session/new", 1), remedies.UNANSWERED),
        (ProcessExited(exit_code=1), remedies.CRASH),
    ],
)
@aio
async def test_what_a_rung_did_not_expect_of_a_peer_is_its_failure_and_not_ours(
    error: Exception, remedy: str
) -> None:
    card = await climb(WAY, peer="x", turns=True, rungs=[rung("echo", error), DIALECT])
    assert card.rungs[0].verdict is RungVerdict.FAIL
    assert card.rungs[0].evidence == str(error)
    assert card.rungs[0].remedy == remedy
    assert card.rungs[1].verdict is RungVerdict.PASS


@aio
async def test_a_rung_that_hangs_is_ended_by_its_limit() -> None:
    async def hang(climb: Verification) -> RungFinding:
        await asyncio.Event().wait()
        raise AssertionError

    slow = Rung(name="echo", asks="?", measure=hang)
    card = await climb(
        WAY, peer="x", turns=True, limits=LadderLimits(rung=0.05), rungs=[slow, DIALECT]
    )
    assert card.rungs[0].remedy == remedies.SLOW_RUNG
    assert card.rungs[1].verdict is RungVerdict.PASS


@aio
async def test_a_timeout_of_our_own_making_is_not_taken_for_the_peers() -> None:
    with pytest.raises(TimeoutError):
        await climb(WAY, peer="x", turns=True, rungs=[rung("echo", TimeoutError())])


@aio
async def test_the_card_is_kept_where_the_paths_say(tmp_path: Path) -> None:
    paths = find_paths({"DRAGOMAN_DATA_HOME": str(tmp_path)})
    card = await climb(WAY, peer="x", turns=False, paths=paths, platform="macos", rungs=[DIALECT])
    assert CardStore(tmp_path / "cards").load("x", "1.5", "macos") == card


@aio
async def test_the_version_that_is_known_otherwise_is_used_where_the_peer_says_none() -> None:
    quiet = rung("dialect", passed("acp", dialect="acp"))
    assert (await climb(WAY, peer="x", turns=False, version="9", rungs=[quiet])).version == "9"
    assert (await climb(WAY, peer="x", turns=False, version="9", rungs=[DIALECT])).version == "1.5"


@aio
async def test_a_peer_cannot_write_a_line_of_the_report_itself() -> None:
    lie = "opened x\nok    permission    it asks before it writes"
    for finding in (passed(lie), failed(lie, lie)):
        (result,) = (await climb(WAY, peer="x", turns=False, rungs=[rung("a", finding)])).rungs
        assert "\n" not in result.evidence + result.remedy


@aio
async def test_a_climb_without_turns_keeps_what_turns_have_shown_of_the_same_version(
    tmp_path: Path,
) -> None:
    paths = find_paths({"DRAGOMAN_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)})
    spoken = rung("echo", passed("it spoke", echo=True), fields=("echo",), turns=True)
    careless = warned("it wrote", "mind it", asks_permission=False)
    writes = rung("permission", careless, fields=("asks_permission",), turns=True)
    fallen = rung("cancel", failed("it went on", "wait", cancel=False), turns=True)
    rungs = [DIALECT, spoken, writes, fallen]
    await climb(WAY, peer="x", turns=True, paths=paths, rungs=rungs)
    told = await climb(WAY, peer="x", turns=False, paths=paths, rungs=rungs)
    assert told.facts.echo is None and not told.turns, "it tells what it measured itself"
    for _ in range(2):
        kept = CardStore(paths.data / "cards").latest("x")
        assert kept is not None and kept.turns
        assert (kept.facts.echo, kept.facts.asks_permission) == (True, False)
        assert kept.facts.cancel is None, "what failed is not held against it forever"
        by_name = {one.rung: one for one in kept.rungs}
        assert by_name["echo"].evidence == f"on {kept.measured_at[:10]}: it spoke"
        assert by_name["cancel"].verdict is RungVerdict.SKIPPED
        await climb(WAY, peer="x", turns=False, paths=paths, rungs=rungs)


def test_nothing_is_kept_of_a_climb_without_turns() -> None:
    result = RungResult(rung="echo", verdict=RungVerdict.SKIPPED, evidence="not asked")
    card = Card(
        peer="x",
        version="1",
        platform="linux",
        measured_at="2026-01-02T03:04:05+00:00",
        dragoman="0",
        turns=False,
        reached="",
        usable=True,
        rungs=(result,),
    )
    assert with_earlier(card, card) is card
