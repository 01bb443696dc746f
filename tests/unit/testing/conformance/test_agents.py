"""A run chooses its checks, survives every agent, and calls a model only when it may."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.errors import ProgramNotFound, UsageError
from dragoman.testing.conformance import Verdict, check_agent
from dragoman.testing.conformance.agents import ALL, choose
from dragoman.testing.conformance.manifest import requirements
from dragoman.testing.conformance.report import Finding
from dragoman.testing.scripted import Exit, Expect, Reply, SendBytes, command
from tests.aio import aio
from tests.unit.testing.conformance.faulty_agent import checked


def test_every_check_has_a_name_of_its_own_a_sentence_and_known_requirements() -> None:
    names = [check.check.name for check in ALL]
    assert len(names) == len(set(names))
    for check in ALL:
        assert check.check.says.endswith("."), check.check.name
        assert check.check.ids and set(check.check.ids) <= requirements().keys()


def test_checks_are_chosen_by_their_name_or_by_a_requirement() -> None:
    assert [check.check.name for check in choose(["text_is_utf8"])] == ["text_is_utf8"]
    chosen = {check.check.name for check in choose(["ACP1-TRN-01"])}
    assert chosen == {"text_is_utf8", "output_is_only_messages"}
    assert tuple(choose([])) == ALL
    with pytest.raises(UsageError, match="ACP1-NONE-99"):
        choose(["ACP1-NONE-99"])


@aio
async def test_a_good_agent_passes_all_that_can_be_tried_in_memory() -> None:
    report = await checked()
    assert report.of(Verdict.FAILED) == report.of(Verdict.WARNED) == []
    skipped = {finding.check for finding in report.of(Verdict.SKIPPED)}
    assert skipped == {"end_of_input_ends_the_agent", "methods_not_advertised_are_refused"}
    assert report.peer == {"name": "faulty", "version": "1"}


@aio
async def test_no_prompt_is_sent_unless_turns_are_allowed() -> None:
    checks = [check.check.name for check in ALL if check.turns]
    report = await check_agent(command(Exit(70)), only=checks)
    assert {finding.reason for finding in report.findings} == {"needs a model turn"}
    assert not report.conforms


@aio
async def test_an_agent_that_ends_at_once_fails_its_handshake_and_the_rest_is_skipped() -> None:
    only = ["initialize_is_answered", "agent_names_itself", "garbage_is_survived"]
    report = await check_agent(command(Exit(3)), only=only)
    first, second, third = report.findings
    assert (first.verdict, second.verdict) == (Verdict.FAILED, Verdict.SKIPPED)
    assert "exited with code 3" in first.evidence
    assert second.reason.startswith("the handshake failed")
    assert third.verdict is Verdict.WARNED


@aio
async def test_an_agent_that_says_nonsense_is_reported_with_the_line() -> None:
    hello = Reply({"protocolVersion": 1})
    argv = command(SendBytes(b"Welcome!\n"), Expect("initialize"), hello)
    only = ["initialize_is_answered", "output_is_only_messages"]
    heard: list[Finding] = []
    report = await check_agent(argv, only=only, on_finding=heard.append)
    assert report.finding("output_is_only_messages").evidence == "Welcome!"
    assert tuple(heard) == report.findings


@aio
async def test_a_program_that_does_not_exist_is_an_error_and_no_finding(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound):
        await check_agent([str(tmp_path / "nothing")], only=["initialize_is_answered"])


@aio
async def test_a_run_that_is_cancelled_ends_its_agents() -> None:
    async with asyncio.timeout(20.0):
        task = asyncio.gather(check_agent(command(Expect("initialize"), Expect("never"))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
