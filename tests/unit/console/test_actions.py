"""Prompts from the page: which requests are refused, and which policy applies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.console import actions
from dragoman.console.actions import _request, continue_session, start_run
from dragoman.delegation import DelegationListener
from dragoman.delegation.permission_ceiling import VARIABLE, environment
from dragoman.errors import UnknownPeer, UsageError
from dragoman.paths import VARIABLES, Paths
from dragoman.policy import narrowed, preset
from dragoman.runs.lineage import DEPTH
from tests.aio import aio
from tests.unit.console.place import short_paths
from tests.unit.store.stores import session


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with short_paths() as paths:
        for name, variable in VARIABLES.items():
            monkeypatch.setenv(variable, str(getattr(paths, name)))
        yield paths


@aio
async def test_invalid_requests_are_refused_before_anything_runs(
    paths: Paths, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="not a directory"):
        await start_run("scout", "x", tmp_path / "missing")
    with pytest.raises(UsageError, match="not a directory"):
        await start_run("scout", "x", tmp_path / ("long" * 100))
    with pytest.raises(UsageError, match="not an absolute path"):
        await start_run("scout", "x", Path("."))
    with pytest.raises(UsageError, match="enable codex"):
        await start_run("codex", "x", tmp_path)
    with pytest.raises((UnknownPeer, UsageError)):
        await start_run("missing", "x", tmp_path)
    with pytest.raises(UsageError, match="empty"):
        await start_run("scout", " ", tmp_path)
    with pytest.raises(UsageError, match="not a directory"):
        await continue_session(session(peer="scout", cwd=str(tmp_path / "gone")), "x")


def test_the_policy_comes_from_the_settings_and_questions_go_to_the_user(
    paths: Paths, tmp_path: Path
) -> None:
    request = _request("scout", tmp_path, None)
    assert request.asks and request.unattended == "approve-reads"
    paths.config.mkdir(parents=True)
    paths.config_file.write_text('permissions = "deny-all"\n')
    request = _request("scout", tmp_path, None)
    assert not request.asks and request.unattended == "deny-all"


def test_a_console_started_by_a_delegation_keeps_its_ceiling_and_depth(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.config.mkdir(parents=True)
    paths.config_file.write_text('permissions = "approve-all"\n')
    assert _request("scout", tmp_path, None).options.env == {}
    for name, value in environment(preset("deny-all"), peer="scout").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(DEPTH, "1")
    request = _request("scout", tmp_path, None)
    assert request.unattended == narrowed(preset("deny-all"), preset("approve-all"))
    assert (
        request.options.env is not None
        and request.options.env[DEPTH] == "1"
        and VARIABLE in request.options.env
    )
    monkeypatch.delenv(VARIABLE)
    assert _request("scout", tmp_path, None).unattended == request.unattended


@aio
async def test_a_console_runs_a_limited_number_of_delegations(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(*_: object, listener: DelegationListener, **__: object) -> None:
        listener.job("j-1")
        await asyncio.Event().wait()

    monkeypatch.setattr(actions, "delegate_request", endless)
    monkeypatch.setattr(actions, "MAX_DELEGATIONS", 2)
    running = actions.RunningDelegations()
    starts = [running.start("review", "x", tmp_path) for _ in range(5)]
    ends = await asyncio.gather(*starts, return_exceptions=True)
    assert ends.count("j-1") == 2
    assert sum("wait for one to end" in str(end) for end in ends) == 3
    await running.aclose()


@aio
async def test_an_unexpected_error_of_a_delegation_is_not_an_error_of_the_user(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(actions, "delegate_request", broken)
    running = actions.RunningDelegations()
    with pytest.raises(LookupError, match="a mistake of ours"):
        await running.start("review", "x", tmp_path)
    await running.aclose()
