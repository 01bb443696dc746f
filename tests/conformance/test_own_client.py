"""dragoman's ACP client passes every check, whether it offers all services or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from dragoman.client.acp import ClientOptions, open_agent
from dragoman.client.permissions import Answer, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.testing.conformance import Verdict, check_client
from tests.aio import aio
from tests.conformance.places import PATIENCE

Options = Callable[[asyncio.Event], ClientOptions]


def offering(holding: asyncio.Event) -> ClientOptions:
    """Offer everything. Once `holding` is set, questions stay open until cancelled."""

    async def permit(question: Question) -> Answer:
        if holding.is_set():
            await asyncio.Event().wait()
        return Answer.ALLOW_ONCE

    return ClientOptions(
        permit=permit, terminals=True, elicit=lambda request: acp.ElicitationDeclined()
    )


def closed(holding: asyncio.Event) -> ClientOptions:
    """Offer nothing, and refuse every permission immediately."""
    return ClientOptions(read_files=False, write_files=False)


async def use(command: Sequence[str], folder: Path, make: Options) -> None:
    """Run a client as a user would write it: send a prompt, and another one that is cancelled."""
    holding = asyncio.Event()
    async with open_agent(command, options=make(holding)) as client:
        session = await client.new_session(folder)
        await session.ask("hello")
        holding.set()
        async with session.prompt("cancel") as turn:
            async for _ in turn:
                turn.cancel()


@aio
async def test_a_client_that_offers_everything_passes_every_check(tmp_path: Path) -> None:
    async def run(command: Sequence[str]) -> None:
        await use(command, tmp_path, offering)

    report = await check_client(run, timeout=PATIENCE)
    others = [f for f in report.findings if f.verdict is not Verdict.PASSED]
    assert others == [], report.to_text()


@aio
async def test_a_client_that_offers_nothing_passes_what_applies(tmp_path: Path) -> None:
    async def run(command: Sequence[str]) -> None:
        await use(command, tmp_path, closed)

    report = await check_client(run, timeout=PATIENCE)
    assert report.of(Verdict.FAILED) == report.of(Verdict.WARNED) == [], report.to_text()
    reasons = {finding.reason for finding in report.of(Verdict.SKIPPED)}
    assert all("does not offer" in r or "before it cancelled" in r for r in reasons), reasons
