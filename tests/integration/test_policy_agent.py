"""A policy against an agent in a process of its own: what it asks, and what it is answered."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dragoman import connect
from dragoman.client.permissions import Answer, Permit
from dragoman.events.words import Outcome
from dragoman.policy import Approver, Policy, Rule
from tests.aio import aio

AGENT = [sys.executable, "-m", "tests.integration.cli_agent"]
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
WAIT_TIMEOUT = 30.0
"""Starting an interpreter on a loaded machine."""


async def written(
    tmp_path: Path, policy: Policy, caller: Permit | None = None
) -> tuple[str, Approver]:
    """What the agent says after it asked to change /somewhere/notes.md, and who decided."""
    desk = Approver(policy, peer="tester", workspace=str(tmp_path), caller=caller)
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(AGENT, workspace=tmp_path, env=ENVIRONMENT, permit=desk) as peer,
        peer.session() as session,
    ):
        result = await session.ask("write")
    assert result.outcome in (Outcome.OK, Outcome.DENIED, Outcome.EMPTY)
    assert len(desk.rulings) == 1
    return result.text, desk


@aio
async def test_an_agent_is_answered_by_the_paths_it_named(tmp_path: Path) -> None:
    inside = Policy(rules=(Rule(action="allow", kind="edit", paths=("**",)),))
    text, desk = await written(tmp_path, inside)
    assert text == "" and not desk.rulings[0].allowed
    outside = Policy(rules=(Rule(action="allow", kind="edit", paths=("/somewhere/*.md",)),))
    text, desk = await written(tmp_path, outside)
    assert text == "written" and desk.rulings[0].verdict.by == "rule"
    assert desk.rulings[0].act.paths == ("/somewhere/notes.md",)


@aio
async def test_the_caller_is_asked_and_its_always_stays_here(tmp_path: Path) -> None:
    text, desk = await written(tmp_path, Policy(preset="ask"), lambda _: Answer.ALLOW_ALWAYS)
    assert text == "written" and [ruling.by for ruling in desk.rulings] == ["caller"]
