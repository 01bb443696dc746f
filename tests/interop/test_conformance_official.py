"""The checks against the official Python SDK: what it passes, and what it does not.

These results are for `agent-client-protocol` 0.12.1. Each expected finding is real and is listed
with its reason; when the SDK changes, these tests fail.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dragoman.testing.conformance import Verdict, check_agent, check_client
from tests.aio import aio
from tests.interop import official_client

AGENT = Path(__file__).with_name("official_agent.py")

PATIENCE = 40.0
"""Seconds for one response of a program on a machine that is busy with other tests."""

AGENT_FINDINGS = {
    "version_as_text_is_refused": "a version of any type is read as a default",
    "strange_version_is_refused": "a version of any type is read as a default",
    "session_needs_the_handshake": "the SDK keeps no state of the handshake; an agent has to",
    "unknown_login_method_is_refused": "methods that an agent does not have answer with nothing",
    "methods_not_advertised_are_refused": "methods that an agent does not have answer with nothing",
    "relative_folder_is_refused": "the SDK does not look at paths; an agent has to",
    "batch_is_survived": "an array ends the receive loop, and the agent with it",
    "scalar_is_survived": "a line that is no object ends the receive loop, and the agent with it",
}

CLIENT_FINDINGS = {
    "odd_json_is_survived": "a line that is no object ends the receive loop, and the connection",
    "services_not_offered_are_refused": "services that a client does not have answer with nothing",
}


@pytest.mark.timeout(240)  # some twenty processes, each of which needs a second to start
@aio
async def test_an_agent_of_the_official_sdk_conforms_but_for_what_is_listed() -> None:
    report = await check_agent(
        [sys.executable, str(AGENT)], turns=True, timeout=PATIENCE, turn_timeout=PATIENCE
    )
    assert report.of(Verdict.FAILED) == [], report.to_text()
    warned = {finding.check for finding in report.of(Verdict.WARNED)}
    assert warned == AGENT_FINDINGS.keys(), report.to_text()


@aio
async def test_a_client_of_the_official_sdk_conforms_but_for_what_is_listed(
    tmp_path: Path,
) -> None:
    async def run(command: Sequence[str]) -> None:
        async with asyncio.timeout(PATIENCE):
            await official_client.use(command, str(tmp_path))

    report = await check_client(run, timeout=5.0)
    found = {finding.check for finding in (*report.of(Verdict.FAILED), *report.of(Verdict.WARNED))}
    assert found == CLIENT_FINDINGS.keys(), report.to_text()
