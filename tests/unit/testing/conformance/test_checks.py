"""Checks are graded by their requirements, and the lab keeps agents apart."""

from __future__ import annotations

import pytest

from dragoman.testing.conformance.checks import Check, Lab, Skip, agent_check, expect
from dragoman.testing.conformance.conversation import Violation
from dragoman.testing.conformance.report import Verdict
from dragoman.transports.base import Stream
from dragoman.transports.memory import MemoryStream, memory_pair
from tests.aio import aio
from tests.unit.testing.conformance.faulty_agent import FaultyAgent


def lab(*faults: str) -> tuple[Lab, list[MemoryStream]]:
    """A lab with an agent, and the agent's ends of the streams that were opened."""
    ends: list[MemoryStream] = []

    async def open_stream() -> Stream:
        near, far = memory_pair()
        ends.append(far)
        FaultyAgent(far, frozenset(faults), {})
        return near

    return Lab(open_stream, cwd="/somewhere", timeout=20.0), ends


def test_a_breach_of_what_is_only_recommended_is_a_warning() -> None:
    demanded = Check("a", "agent", ("ACP1-TRN-01",), "…")
    recommended = Check("b", "agent", ("ACP1-EXT-05",), "…")
    advice = Check("c", "agent", ("ACP1-TRN-01",), "…", advisory=True)
    assert demanded.finding(Verdict.FAILED).verdict is Verdict.FAILED
    assert recommended.finding(Verdict.FAILED).verdict is Verdict.WARNED
    assert advice.finding(Verdict.FAILED).verdict is Verdict.WARNED
    assert (demanded.level, recommended.level, advice.level) == ("MUST", "SHOULD", "SHOULD")


def test_a_check_is_named_by_its_function_and_says_what_its_docstring_says() -> None:
    @agent_check("ACP1-TRN-01", turns=True)
    async def everything_is_well(lab: Lab) -> None:
        """All
        is well."""

    assert everything_is_well.check.name == "everything_is_well"
    assert everything_is_well.check.says == "All is well."
    assert everything_is_well.turns


@aio
async def test_harmless_checks_share_a_process_and_a_session() -> None:
    under_test, ends = lab()
    first = await under_test.session()
    assert await under_test.session() == first
    assert await under_test.ready() is first[0]
    own = await under_test.fresh_ready()
    assert own is not first[0]
    assert len(ends) == 2
    await under_test.release()
    assert own.failure is not None and first[0].failure is None
    await under_test.aclose()
    assert first[0].failure is not None


@aio
async def test_a_shared_process_that_has_died_is_started_again() -> None:
    under_test, ends = lab()
    conversation, _ = await under_test.session()
    ends[0].close()
    await conversation.until(lambda: conversation.failure, "its end")
    again, _ = await under_test.session()
    assert again is not conversation
    await under_test.aclose()


@aio
async def test_after_a_failed_handshake_everything_else_is_skipped_with_that_reason() -> None:
    under_test, _ = lab("bare_handshake_is_enough")
    under_test.greet = _refused  # type: ignore[method-assign, assignment]
    with pytest.raises(Violation):
        await under_test.ready()
    with pytest.raises(Skip, match="the handshake failed: no"):
        await under_test.session()


async def _refused(conversation: object, capabilities: object = None) -> None:
    raise Violation("no")


@aio
async def test_capabilities_are_found_by_their_dotted_names() -> None:
    under_test, _ = lab()
    assert await under_test.can("loadSession")
    assert await under_test.can("sessionCapabilities.list")
    assert not await under_test.can("sessionCapabilities.fork")
    assert not await under_test.can("loadSession.deeper")
    with pytest.raises(Skip, match="auth.logout"):
        await under_test.require("auth.logout")
    await under_test.aclose()


@aio
async def test_an_agent_that_requires_a_login_first_is_not_blamed_for_it() -> None:
    under_test, ends = lab()
    conversation = await under_test.ready()
    conversation.begin("x", {})
    id = conversation._next_id
    ends[0].write(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"log in"}}\n' % id)
    with pytest.raises(Skip, match="login"):
        await under_test.new_session(conversation)
    await under_test.aclose()


def test_an_expectation_that_does_not_hold_is_a_violation_with_its_evidence() -> None:
    expect(True, "fine")
    with pytest.raises(Violation, match="not fine") as caught:
        expect([], "not fine", {"a": 1})
    assert caught.value.evidence == '{"a":1}'
