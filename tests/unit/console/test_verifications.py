"""Verifications started from the page: progress, stopping and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.console import verifications as module
from dragoman.console.json_routes import INTERNAL_PROBLEM
from dragoman.console.verifications import Verifications
from dragoman.errors import UnknownPeer, UsageError
from dragoman.paths import VARIABLES, Paths
from tests.aio import aio
from tests.unit.console.place import TIMEOUT, short_paths


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with short_paths() as paths:
        for name, variable in VARIABLES.items():
            monkeypatch.setenv(variable, str(getattr(paths, name)))
        yield paths


class Heard:
    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.ended = asyncio.Event()
        self.began = asyncio.Event()

    def __call__(self, shown: dict[str, Any]) -> None:
        self.told.append(shown)
        if shown["rungs"]:
            self.began.set()
        if shown["state"] == "ended":
            self.ended.set()


@aio
async def test_every_step_is_reported_and_the_card_is_stored(paths: Paths) -> None:
    heard = Heard()
    verifications = Verifications(heard)
    await verifications.start("scout", turns=False)
    with pytest.raises(UsageError, match="already"):
        await verifications.start("scout", turns=False)
    async with asyncio.timeout(TIMEOUT * 3):
        await heard.ended.wait()
    counts = [len(shown["rungs"]) for shown in heard.told]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] > 5
    (last,) = verifications.all
    assert last["summary"].startswith("It starts, speaks acp") and last["problem"] == ""
    assert list((paths.data / "cards" / "scout").iterdir())
    await verifications.aclose()


@aio
async def test_a_verification_is_stopped_and_an_unknown_peer_refused(paths: Paths) -> None:
    heard = Heard()
    verifications = Verifications(heard)
    with pytest.raises(UnknownPeer):
        await verifications.start("missing", turns=False)
    assert not verifications.stop("scout")
    await verifications.start("scout", turns=False)
    async with asyncio.timeout(TIMEOUT):
        await heard.began.wait()
        assert verifications.stop("scout")
        await heard.ended.wait()
    assert verifications.all[0]["problem"] == "stopped"
    await verifications.aclose()


@aio
async def test_a_verification_that_is_stopped_before_it_began_ends(paths: Paths) -> None:
    heard = Heard()
    verifications = Verifications(heard)
    await verifications.start("scout", turns=False)
    assert verifications.stop("scout")
    async with asyncio.timeout(TIMEOUT):
        await heard.ended.wait()
    assert not verifications.stop("scout")
    await verifications.aclose()


@aio
async def test_verifying_a_peer_that_is_not_installed_reports_it(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    heard = Heard()
    verifications = Verifications(heard)
    await verifications.start("codex", turns=False)
    async with asyncio.timeout(TIMEOUT):
        await heard.ended.wait()
    assert "codex" in verifications.all[0]["problem"]
    await verifications.aclose()


@aio
async def test_a_verification_that_fails_inside_dragoman_says_so(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: Any, **more: Any) -> None:
        raise OSError("a path of this machine")

    monkeypatch.setattr(module, "verify_known", broken)
    heard = Heard()
    verifications = Verifications(heard)
    await verifications.start("scout", turns=False)
    async with asyncio.timeout(TIMEOUT):
        await heard.ended.wait()
    assert verifications.all[0]["problem"] == INTERNAL_PROBLEM
    await verifications.aclose()
