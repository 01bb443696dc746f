"""Starting and stopping the service. tests/fleet runs it with real servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.errors import UsageError
from dragoman.fleet.service import run_service
from dragoman.fleet.team import FleetFolder
from tests.aio import aio


@aio
async def test_running_without_keys_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no fleet"):
        await run_service(
            FleetFolder(tmp_path),
            server=None,
            coordinate=True,
            stop=asyncio.Event(),
            on_notice=lambda text: None,
        )


@aio
async def test_the_service_ends_when_stop_is_set(tmp_path: Path) -> None:
    folder = FleetFolder(tmp_path)
    folder.prepare()
    stop = asyncio.Event()
    stop.set()
    await run_service(folder, server=None, coordinate=True, stop=stop, on_notice=lambda text: None)
