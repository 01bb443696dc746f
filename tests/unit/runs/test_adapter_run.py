"""One prompt through an adapter: its role, its result, and whose fault a failure is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dragoman.adapters import Adapter, Assignment
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.client.results import Result
from dragoman.errors import (
    AdapterFailed,
    BudgetExceeded,
    ConnectionEnded,
    RoleNotClaimed,
    UsageError,
)
from dragoman.events.words import Outcome
from dragoman.runs import adapter_run
from dragoman.runs.adapter_run import choose_role, dispatch
from tests.aio import aio

OK = Result(Outcome.OK, "done")


class ActedAdapter:
    """Does what a test says."""

    name = "tool"
    protocol = "acp"
    ROLE_PREFIX: Mapping[str, str] = {}

    def __init__(self, *, roles: Any = ("plan", "review"), end: Any = OK) -> None:
        self.ROLES_CLAIMED = roles
        self._end = end
        self.told: list[tuple[str, str]] = []

    def claims(self, role: str) -> bool:
        return role in self.ROLES_CLAIMED

    async def dispatch(
        self, launch: Assignment, role: str, text: str, on_notification: Any = None
    ) -> Result:
        self.told.append((role, text))
        if isinstance(self._end, BaseException):
            raise self._end
        if self._end is None:
            await asyncio.Event().wait()
        result: Result = self._end
        return result


def run(adapter: Adapter, *, budgets: Budgets | None = None) -> Any:
    assignment = Assignment(way=LaunchSpec(command=("tool",)), cwd=Path("/"), budgets=budgets)
    return dispatch(adapter, assignment, role="plan", text="a house", source="/x/tool.py")


def test_the_role_is_the_wanted_one_or_the_first_that_is_claimed() -> None:
    assert choose_role(ActedAdapter(), None, source="f") == "plan"
    assert choose_role(ActedAdapter(), "review", source="f") == "review"
    with pytest.raises(RoleNotClaimed, match="it claims plan, review"):
        choose_role(ActedAdapter(), "debug", source="f")
    with pytest.raises(UsageError, match="claims no role"):
        choose_role(ActedAdapter(roles=()), None, source="f")
    with pytest.raises(AdapterFailed, match="TypeError"):
        choose_role(ActedAdapter(roles=7), "plan", source="f")


@aio
async def test_the_result_of_an_adapter_is_passed_on() -> None:
    adapter = ActedAdapter()
    assert await run(adapter) is OK
    assert adapter.told == [("plan", "a house")]


@pytest.mark.parametrize("error", [LookupError("no"), TimeoutError("slow"), SystemExit(3)])
@aio
async def test_what_its_code_raises_is_its_own_fault(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "dragoman.adapters"):
        with pytest.raises(AdapterFailed) as caught:
            await run(ActedAdapter(end=error))
    assert str(caught.value) == (
        f"/x/tool.py, the adapter of tool, failed: {type(error).__name__}: {error}"
    )
    assert caught.value.__cause__ is error
    assert caught.value.may_have_run
    (record,) = caplog.records
    assert record.exc_info is not None


@aio
async def test_what_it_raises_of_its_peer_is_passed_on() -> None:
    error = ConnectionEnded()
    with pytest.raises(ConnectionEnded) as caught:
        await run(ActedAdapter(end=error))
    assert caught.value is error


@aio
async def test_something_else_than_a_result_is_its_own_fault() -> None:
    with pytest.raises(AdapterFailed, match="its dispatch returned str, not a Result"):
        await run(ActedAdapter(end="done"))


@aio
async def test_an_adapter_that_keeps_no_budget_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_run, "TOTAL_GRACE", 0.01)
    with pytest.raises(BudgetExceeded):
        await run(ActedAdapter(end=None), budgets=Budgets(total=0.01))
