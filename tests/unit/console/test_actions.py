"""Prompts from the page: which requests are refused, and which policy applies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.broker.client import connect
from dragoman.broker.client.brokers import list_brokers, stop_broker
from dragoman.console import actions
from dragoman.console.actions import StartedJob, _request, continue_session, start_run
from dragoman.delegation import DelegationListener
from dragoman.delegation.permission_ceiling import VARIABLE, environment
from dragoman.errors import BrokerUnavailable, UnknownPeer, UsageError
from dragoman.paths import VARIABLES, Paths
from dragoman.policy import narrowed, preset
from dragoman.runs.lineage import DEPTH
from dragoman.store import Redactor, Store
from dragoman.store.store import store_path
from tests.aio import aio
from tests.unit.console.place import short_paths
from tests.unit.store.stores import job, session


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
    assert ends.count(StartedJob("j-1")) == 2
    assert sum("wait for one to end" in str(end) for end in ends) == 3
    await running.aclose()


@aio
async def test_notices_of_a_delegation_are_in_the_response_or_at_least_in_the_log(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def noticed(*_: object, listener: DelegationListener, **__: object) -> None:
        listener.notice("a delegation was killed; its changes are in a.patch")
        listener.job("j-1")
        listener.notice("the ledger cannot be written")

    monkeypatch.setattr(actions, "delegate_request", noticed)
    running = actions.RunningDelegations()
    started = await running.start("review", "x", tmp_path)
    assert started.notices == ["a delegation was killed; its changes are in a.patch"]
    assert [text for text in caplog.messages if "a.patch" in text or "ledger" in text] == [
        "delegation: a delegation was killed; its changes are in a.patch",
        "delegation: the ledger cannot be written",
    ]
    await running.aclose()


@aio
async def test_a_prompt_without_a_broker_is_refused_with_the_reason(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise BrokerUnavailable("the runtime directory is full")

    monkeypatch.setattr(connect, "_reach", refused)
    with pytest.raises(BrokerUnavailable) as caught:
        await start_run("scout", "x", tmp_path)
    assert str(caught.value) == (
        "a prompt from the console needs a broker "
        "(starting scout without a broker: the runtime directory is full)"
    )


@aio
async def test_a_session_that_the_peer_has_lost_is_continued_with_a_notice(
    paths: Paths, tmp_path: Path
) -> None:
    with Store.open(store_path(paths.state), Redactor(())) as store:
        lost = session(peer="scout", cwd=str(tmp_path), root=str(tmp_path))
        store.create_session(lost)
        store.create_job(job(lost.key, state="ended", outcome="ok", prompt="what?", text="that"))
    try:
        started = await continue_session(lost, "and now?")
        assert started.session != lost.key
        (notice,) = started.notices
        assert notice.startswith("scout has lost the session and gets a summary of it: ")
    finally:
        for broker in list_brokers(paths):
            await stop_broker(broker)


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
