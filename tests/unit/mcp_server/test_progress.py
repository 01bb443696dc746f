"""What a client is told while a peer works."""

from __future__ import annotations

import itertools

import pytest

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.routing import Candidate
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.parts import PlanEntry
from dragoman.events.words import Outcome, PlanStatus, Role, ToolStatus
from dragoman.mcp_server import progress as told
from dragoman.mcp_server.progress import SHOWN_SIZE, Progress
from tests.aio import aio

PLACE = EventEnvelope(model.Source("acp", "c"), itertools.count(1), "s")


def said(text: str, role: Role = Role.AGENT) -> model.MessageDelta:
    return model.MessageDelta(*PLACE.base("text", None), role=role, text=text)


@aio
async def test_lines_that_were_not_told_are_replaced_by_the_last_one() -> None:
    progress = Progress("gemini")
    progress.event(said("hello "))
    progress.event(said("world"))
    progress.event(said("hidden", Role.THOUGHT))
    assert await progress.next() == "gemini is answering (11 characters)"
    count = progress.count
    progress.event(
        model.ToolChanged(
            *PLACE.base("tool", None), tool_id="1", title="Run\n tests", status=ToolStatus.RUNNING
        )
    )
    assert await progress.next() == "gemini: Run tests"
    assert progress.count > count


@aio
async def test_plans_permissions_and_attempts_are_reported() -> None:
    progress = Progress()
    candidate = Candidate(peer="codex", tier="default", model=None, why="it is first")
    progress.attempt(1, candidate, "it is first")
    assert await progress.next() == "prompting codex (attempt 1): it is first"
    steps = (PlanEntry("a", PlanStatus.COMPLETED), PlanEntry("b", PlanStatus.PENDING))
    progress.event(model.PlanSet(*PLACE.base("plan", None), entries=steps))
    assert await progress.next() == "codex: 1 of 2 steps of its plan are done"
    progress.event(
        model.PermissionAsked(*PLACE.base("ask", None), request_id="1", options=(), title="rm x")
    )
    assert await progress.next() == "codex asks for permission: rm x"
    progress.reported(
        1,
        AttemptReport(
            peer="codex", role="r", outcome=Outcome.TIMED_OUT, started_at=0.0, ended_at=1.0
        ),
    )
    assert await progress.next() == "codex: timed out"


@aio
async def test_progress_is_reported_for_a_silent_peer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "BEAT_INTERVAL", 0.001)
    progress = Progress("codex")
    assert await progress.next() == "waiting (0 s)"
    first = progress.count
    assert await progress.next() == "waiting (0 s)"
    assert progress.count > first


@aio
async def test_a_long_line_is_cut() -> None:
    progress = Progress()
    progress.tell("x" * 1000)
    line = await progress.next()
    assert len(line) == SHOWN_SIZE


@aio
async def test_the_job_is_known_as_soon_as_it_has_begun() -> None:
    progress = Progress()
    assert not progress.job_known.is_set()
    progress.job("j-1")
    assert (progress.job_id, progress.job_known.is_set()) == ("j-1", True)
    progress.notice("careful")
    assert progress.notices == ["careful"]
