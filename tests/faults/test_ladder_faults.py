"""The ladder detects every fault of the chaos agent, at the right rung, and says what to do.

The card of a faulty agent differs from the card of the healthy one in exactly the fields that the
row of the fault names, compared field by field.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import signal
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from dragoman.catalogue.card import Card, MeasuredFacts, RungVerdict
from dragoman.catalogue.launch import LaunchSpec
from dragoman.testing.chaos import command, faults
from dragoman.transports.process.child import ShutdownTimes
from dragoman.verify.ladder import RUNGS, climb
from dragoman.verify.time_limits import LadderLimits
from tests.aio import aio
from tests.faults.ladder_table import OTHER, TABLE, TRIGGERS, Row

LIMITS: Final = LadderLimits(
    tail=0.05,
    replay_quiet=0.05,
    mcp_start=0.5,
    shutdown=ShutdownTimes(exit_timeout=0.5, terminate_timeout=0.5),
    oversized_size=1024 * 1024,
)

SHORT: Final[dict[str, dict[str, float]]] = {
    "hang:initialize": {"handshake": 1.0},
    "text-on-stdout": {"handshake": 1.0},
    "hang:session/new": {"session": 1.0, "answer": 1.0},
    "hang:session/list": {"answer": 1.0},
    "hang:session/load": {"session": 1.0, "answer": 1.0},
    "hang:session/resume": {"session": 1.0},
    "hang:session/close": {"answer": 1.0},
    "hang:session/prompt": {"first_event": 1.0, "cancel_grace": 0.2},
    "freezes": {"silence": 1.0, "cancel_grace": 0.2},
    "hang:session/cancel": {"cancel_grace": 0.3},
    "ignores-cancel": {"cancel_grace": 0.3},
    "answers-late": {"answer": 1.0},
    "ignores-eof": {"exit": 0.5},
}
"""Short limits, for faults that use them up."""

VARYING: Final = frozenset({"launch", "handshake_seconds", "methods", "notifications"})
"""The first contains the name of the fault, the second is a time, and the others summarise other
fields."""


async def verified(fault: str, *, turns: bool, careful: bool = False) -> Card:
    return await climb(
        LaunchSpec(command=tuple(command(fault))),
        peer="chaos",
        turns=turns,
        careful=careful,
        limits=dataclasses.replace(LIMITS, **SHORT.get(fault, {})),  # type: ignore[arg-type]
        canaries=TRIGGERS,
    )


@functools.cache
def healthy(turns: bool) -> Card:
    return asyncio.run(verified("healthy", turns=turns))


def differences(facts: MeasuredFacts, sound: MeasuredFacts) -> dict[str, Any]:
    """Return the fields of a card that differ, with their values."""
    mine, theirs = msgspec.structs.asdict(facts), msgspec.structs.asdict(sound)
    return {
        name: value
        for name, value in mine.items()
        if (value is None) != (theirs[name] is None)
        or (name not in VARYING and value != theirs[name])
    }


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.fault)
def test_the_ladder_finds_a_fault_and_it_changes_exactly_the_fields_it_names(row: Row) -> None:
    card = asyncio.run(verified(row.fault, turns=row.turns))
    found = next(one for one in card.rungs if one.rung == row.rung)
    assert found.verdict is row.verdict, found
    assert found.remedy.startswith(row.remedy), found
    assert found.evidence
    essential = next(rung.essential for rung in RUNGS if rung.name == row.rung)
    assert card.usable is not (essential and row.verdict is RungVerdict.FAIL)
    changed = differences(card.facts, healthy(row.turns).facts)
    unknown = {name for name, value in changed.items() if value is None}
    measured_before = msgspec.structs.asdict(healthy(row.turns).facts)
    assert unknown == {name for name in row.unknown if measured_before[name] is not None}
    named = {name: value for name, value in changed.items() if name not in unknown}
    assert named.keys() == row.changes.keys()
    for name, value in row.changes.items():
        assert value is OTHER or named[name] == value


@pytest.mark.parametrize("turns", [True, False])
def test_a_healthy_agent_passes_every_rung_that_is_tried(turns: bool) -> None:
    card = healthy(turns)
    assert card.usable
    assert [one.rung for one in card.rungs] == [rung.name for rung in RUNGS]
    tried = {one.rung: one.verdict for one in card.rungs if one.verdict is not RungVerdict.SKIPPED}
    assert set(tried.values()) == {RungVerdict.PASS}, card.rungs
    skipped = {one.rung for one in card.rungs} - tried.keys()
    assert skipped == {"windows"} | ({rung.name for rung in RUNGS if rung.turns} - tried.keys())
    assert turns or skipped == {"windows", *(rung.name for rung in RUNGS if rung.turns)}


def test_with_turns_a_healthy_card_knows_every_field_but_the_login() -> None:
    known = msgspec.structs.asdict(healthy(True).facts)
    assert [name for name, value in known.items() if value is None] == ["login"]


def test_the_table_has_every_fault_once_and_every_field_that_an_agent_can_spoil() -> None:
    assert sorted(row.fault for row in TABLE) == sorted(set(faults.names()) - {faults.HEALTHY})
    named = {name for row in TABLE for name in (*row.changes, *row.unknown)}
    assert set(MeasuredFacts.__struct_fields__) - named == {"executable", "launch"}


def test_an_unknown_agent_that_requires_a_login_was_given_no_credentials() -> None:
    card = asyncio.run(verified("needs-login", turns=False, careful=True))
    login = next(one for one in card.rungs if one.rung == "login")
    assert login.verdict is RungVerdict.WARN
    assert "without your credentials" in login.remedy
    assert card.facts.login is not None and "run chaos login" in card.facts.login
    assert card.usable


SILENT: Final = """
import sys
sys.stdin.read()
open(sys.argv[1], "w").write("sent to the model")
"""


@aio
async def test_a_silent_program_is_ended_without_the_end_of_its_input(tmp_path: Path) -> None:
    mark = tmp_path / "prompted"
    card = await climb(
        LaunchSpec(command=(sys.executable, "-c", SILENT, str(mark))),
        peer="silent",
        turns=False,
        careful=True,
        limits=dataclasses.replace(LIMITS, handshake=1.0),
    )
    assert card.rungs[-1].rung == "handshake"
    assert card.rungs[-1].verdict is RungVerdict.FAIL
    assert not mark.exists()


@pytest.mark.parametrize("fault", ["hang:session/prompt", "hang:initialize", "leaves-daemon"])
@aio
async def test_a_cancelled_climb_leaves_no_process(fault: str) -> None:
    reached = asyncio.Event()
    wanted = {"hang:session/prompt": "codes", "hang:initialize": "entry", "leaves-daemon": "list"}

    async def run() -> None:
        await climb(
            LaunchSpec(command=tuple(command(fault))),
            peer="chaos",
            turns=True,
            limits=LIMITS,
            canaries=TRIGGERS,
            on_rung=lambda result: reached.set() if result.rung == wanted[fault] else None,
        )

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run())
        async with asyncio.timeout(20):
            await reached.wait()
        # In the middle of the next rung, which waits for the agent.
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()


def test_signals_of_this_program_are_left_as_they_were() -> None:
    before = signal.getsignal(signal.SIGINT)
    healthy(False)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_table_names_only_rungs_fields_and_faults_that_there_are() -> None:
    rungs = {rung.name for rung in RUNGS}
    taking = {rung.name for rung in RUNGS if rung.turns}
    for row in TABLE:
        assert row.fault in faults.names()
        assert row.rung in rungs
        assert {*row.changes, *row.unknown} <= set(MeasuredFacts.__struct_fields__)
        assert not set(row.changes) & set(row.unknown)
        assert bool(row.remedy) is (row.verdict is not RungVerdict.PASS), row.fault
        assert row.turns or row.rung not in taking, row.fault
