from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.descriptor import Quirks
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.permissions import Denial
from dragoman.client.results import Result
from dragoman.events.words import Outcome
from dragoman.verify import remedies
from dragoman.verify.canary_prompts import Canaries
from dragoman.verify.rungs import permissions
from dragoman.verify.verification import TurnObservation
from tests.aio import aio
from tests.unit.verify.fakes import OK, FakeClimb, climbing, told, verdict

DENIED = Result(Outcome.DENIED, "", "end_turn")


def writer(
    *, asks: bool = True, obeys: bool = True, able: bool = True, after: Result = OK
) -> Callable[[str, FakeClimb], TurnObservation]:
    """A peer that writes the file that a prompt names."""

    def act(prompt: str, climb: FakeClimb) -> TurnObservation:
        path = next(Path(word) for word in prompt.split() if word.startswith("/"))
        allowed = climb.ask() if asks else True
        if able and (allowed or not obeys):
            path.write_text("x")
        return told(OK if allowed else after)

    return act


@aio
async def test_a_peer_that_asks_and_obeys_passes(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.act = writer()
    assert verdict(await permissions.permission(climb)) == (
        RungVerdict.PASS,
        {"asks_permission": True, "respects_refusal": True, "refusal_ends_turn": False},
    )


@aio
async def test_a_refusal_that_ends_the_turn_is_worth_knowing(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.act = writer(after=replace(DENIED, ended_by_denial=True))
    finding = await permissions.permission(climb)
    assert finding.verdict is RungVerdict.WARN
    assert finding.facts["refusal_ends_turn"] is True


@aio
async def test_a_turn_that_ends_with_a_remark_about_the_refusal_ends_with_it(
    tmp_path: Path,
) -> None:
    quirks = Quirks(reject_ends_turn=True, notice_texts=("Info: Refused",))
    climb = climbing(tmp_path, way=LaunchSpec(command=("x",), quirks=quirks))
    denials = (Denial("c-1", "write", "edit"),)
    climb.act = writer(after=Result(Outcome.OK, "Info: Refused", "end_turn", denials=denials))
    assert (await permissions.permission(climb)).facts["refusal_ends_turn"] is True


@aio
async def test_a_peer_that_does_not_ask_is_never_said_to_respect_a_refusal(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.act = writer(asks=False)
    finding = await permissions.permission(climb)
    assert verdict(finding) == (RungVerdict.WARN, {"asks_permission": False})
    assert finding.remedy == remedies.SELF_APPROVING


@aio
async def test_asking_after_the_deed_is_not_asking(tmp_path: Path) -> None:
    climb = climbing(tmp_path)

    def act(prompt: str, climb: FakeClimb) -> TurnObservation:
        next(Path(word) for word in prompt.split() if word.startswith("/")).write_text("x")
        climb.ask()
        return told()

    climb.act = act
    assert (await permissions.permission(climb)).facts == {"asks_permission": False}


@aio
async def test_a_peer_that_neither_asks_nor_writes_has_shown_nothing(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    finding = await permissions.permission(climb)
    assert verdict(finding) == (RungVerdict.WARN, {})
    assert finding.remedy == remedies.DID_NOTHING


@aio
async def test_a_peer_that_asks_and_then_writes_nothing_is_distinguished(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.act = writer(able=False)
    finding = await permissions.permission(climb)
    assert finding.verdict is RungVerdict.WARN
    assert finding.remedy == remedies.DID_NOTHING
    assert finding.facts["asks_permission"] is True


@pytest.mark.parametrize("writes", [True, False])
@aio
async def test_a_peer_that_asks_only_the_first_time_has_respected_no_refusal(
    tmp_path: Path, writes: bool
) -> None:
    climb = climbing(tmp_path)
    turns = iter([writer(), writer(asks=False, able=writes)])
    climb.act = lambda prompt, climb: next(turns)(prompt, climb)
    finding = await permissions.permission(climb)
    assert finding.facts == {"asks_permission": not writes}


@aio
async def test_a_peer_that_wrote_itself_does_not_use_the_clients_files(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    assert (await permissions.files(climb)).verdict is RungVerdict.SKIPPED
    climb.wrote = True
    assert (await permissions.files(climb)).facts == {"uses_files": False}
    climb.wrote_through_us = True
    assert (await permissions.files(climb)).facts == {"uses_files": True}


@aio
async def test_a_command_that_was_not_run_says_nothing_about_terminals(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    assert verdict(await permissions.terminals(climb)) == (RungVerdict.WARN, {})


@aio
async def test_a_command_that_ran_elsewhere_was_not_run_in_our_terminal(tmp_path: Path) -> None:
    climb = climbing(tmp_path)

    def act(prompt: str, climb: FakeClimb) -> TurnObservation:
        (tmp_path / "ran.txt").write_text("ran")
        return told()

    climb.act = act
    assert (await permissions.terminals(climb)).facts == {"uses_terminals": False}


@aio
async def test_a_command_in_our_terminal_is_seen_by_the_witness(tmp_path: Path) -> None:
    climb = climbing(tmp_path)

    def act(prompt: str, climb: FakeClimb) -> TurnObservation:
        climb.witness.services["terminal"] += 1
        return told()

    climb.act = act
    assert (await permissions.terminals(climb)).facts == {"uses_terminals": True}


@aio
async def test_a_peer_is_not_asked_for_what_its_descriptor_says_it_never_does(
    tmp_path: Path,
) -> None:
    climb = climbing(tmp_path, canaries=Canaries(write="", shell=""))

    def act(prompt: str, climb: FakeClimb) -> TurnObservation:
        raise AssertionError(f"it was asked {prompt!r}")

    climb.act = act
    assert verdict(await permissions.permission(climb)) == (RungVerdict.SKIPPED, {})
    assert verdict(await permissions.terminals(climb)) == (RungVerdict.SKIPPED, {})
