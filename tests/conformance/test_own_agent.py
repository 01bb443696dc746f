"""dragoman's agent kit passes every check that applies to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.testing.conformance import Verdict, check_agent
from tests.aio import aio
from tests.conformance.places import ENVIRONMENT, PATIENCE, full_agent

NOT_TRIED = {
    # It advertises everything, so there is no method to refuse.
    "methods_not_advertised_are_refused",
    # Older protocols use strings as versions, and the kit may speak one of them.
    "version_as_text_is_refused",
}


@pytest.mark.timeout(240)  # some twenty processes, one after the other
@aio
async def test_an_agent_with_every_handler_passes_every_check(tmp_path: Path) -> None:
    report = await check_agent(
        full_agent(tmp_path),
        env=ENVIRONMENT,
        turns=True,
        timeout=PATIENCE,
        turn_timeout=PATIENCE,
    )
    assert report.of(Verdict.FAILED) == [], report.to_text()
    assert report.of(Verdict.WARNED) == [], report.to_text()
    assert {finding.check for finding in report.of(Verdict.SKIPPED)} <= NOT_TRIED
    assert report.peer["name"] == "full-agent"
