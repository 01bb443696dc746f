"""A delegation before any peer is prompted. The rest is tested with real processes, in
tests/integration/test_delegating.py and tests/faults/test_delegation_once.py."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.delegation import execution
from dragoman.delegation.execution import delegate, delegate_request
from dragoman.delegation.journal import Journal
from dragoman.delegation.listener import DelegationListener
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.worktree.sweep import Swept
from dragoman.errors import NoPeer, UnknownPeer, UsageError
from dragoman.events.words import Outcome
from dragoman.runs.run_values import CancelHandle
from dragoman.store.ledger.ledger import ledger_path
from tests.aio import aio
from tests.integration.delegated_peers import bench_in
from tests.unit.runs.contexts import place_in


@aio
async def test_an_unknown_peer_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    heard = DelegationListener()
    with pytest.raises(UnknownPeer):
        await delegate_request(
            DelegationRequest(role="review", prompt="x", workspace=place.cwd, peer="nonesuch"),
            place=place,
            listener=heard,
        )
    with pytest.raises(NoPeer):
        wish = DelegationRequest(role="review", prompt="x", workspace=place.cwd, fallback="peers")
        await delegate_request(wish, place=place)


@aio
async def test_a_time_limit_also_ends_a_sweep_and_patches_that_it_saved_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "1.patch"

    async def hanging(folder: Path, on_swept: Callable[[Swept], None]) -> None:
        on_swept(Swept("1", "/w", saved))
        on_swept(Swept("2", "/w", None))
        await asyncio.Event().wait()

    monkeypatch.setattr(execution, "sweep", hanging)
    bench = bench_in(tmp_path)
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    async with asyncio.timeout(20):
        done = await bench.delegate(timeout=0.01)
    assert done.outcome is Outcome.TIMED_OUT and not done.final.may_have_run
    told = [notice for notice in bench.heard.notices if "was killed" in notice]
    assert told == [f"a delegation in /w was killed; its changes are {saved}"]


@pytest.mark.parametrize("during", ["sweep", "gather"])
@aio
async def test_a_cancel_also_ends_the_work_before_the_first_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    cancel = CancelHandle()

    async def hanging(*args: object) -> None:
        cancel.pull()
        await asyncio.Event().wait()

    if during == "sweep":
        monkeypatch.setattr(execution, "sweep", hanging)
    else:
        monkeypatch.setattr(Journal, "read", hanging)
    bench = bench_in(tmp_path)
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await bench.delegate(cancel=cancel)
    assert bench.heard.jobs == [] and bench.told("alpha", "starts") == []


def test_the_docstring_of_delegate_describes_every_option_with_its_default() -> None:
    shown = inspect.getdoc(delegate)
    assert shown is not None
    told = re.findall(r"^(\w+) \(default (.+?)\): \S", shown, re.MULTILINE)
    parameters = inspect.signature(delegate).parameters.values()
    options = {each.name: each.default for each in parameters if each.default is not each.empty}
    assert dict(told) == {name: repr(is_).replace("'", '"') for name, is_ in options.items()}
    assert {each.kind for each in parameters if each.name in options} == {
        inspect.Parameter.KEYWORD_ONLY
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"role": None}, "role must be a string, not NoneType"),
        ({"prompt": b"x"}, "prompt must be a string, not bytes"),
        ({"prompt": " "}, "the prompt is empty"),
        ({"peer": 3}, "peer must be a string, not int"),
        ({"check": True}, "check must be a string, not bool"),
        ({"permit": "approve-all"}, "permit= takes a function"),
        ({"on_event": "me"}, "on_event= takes a function"),
        ({"fallback": "some"}, "unknown fallback 'some': use all, peers, none"),
        ({"tier": "huge"}, "no tier 'huge'"),
        ({"timeout": 0}, "timeout= must be a number of seconds"),
        ({"timeout": "5"}, "timeout= must be a number of seconds"),
        ({"timeout": True}, "timeout= must be a number of seconds"),
        ({"workspace": b"/"}, "workspace= takes the path"),
        ({"on_notice": "print"}, "on_notice= takes a function"),
        ({"apply": True}, "only a patch from a worktree can be applied"),
    ],
    ids=str,
)
@aio
async def test_an_invalid_argument_is_an_error_before_anything_starts(
    given: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=told):
        await delegate(**{"role": "review", "prompt": "x", "workspace": tmp_path, **given})


@pytest.mark.parametrize("function", [True, False])
@aio
async def test_a_damaged_ledger_is_a_notice_of_the_library_too(
    function: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = bench_in(tmp_path)
    bench.settings()
    bench.state.mkdir()
    ledger_path(bench.state).write_bytes(b"junk" * 4096)
    monkeypatch.setattr(execution, "load_context", lambda folder: bench.place())
    told: list[str] = []
    with pytest.raises(NoPeer):
        await delegate(
            "review",
            "x",
            workspace=bench.work,
            fallback="peers",
            on_notice=told.append if function else None,
        )
    logged = [one.getMessage() for one in caplog.records if one.name == "dragoman.delegation"]
    found, others = (told, logged) if function else (logged, told)
    assert [one for one in found if "damaged" in one]
    assert not [one for one in others if "damaged" in one]
