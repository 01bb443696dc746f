"""Asking brokers that run, where none does."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dragoman.hub.broker.endpoint import brokers_folder
from dragoman.hub.visiting import broker_with, close_at_peer, statuses
from dragoman.transports.identity import own_identity
from tests.aio import aio
from tests.unit.cli.brokers import RECORD
from tests.unit.hub.stored import paths_in, session


@aio
async def test_without_a_broker_there_is_nothing_to_close(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    assert await statuses(paths) == []
    assert await broker_with(session(), paths) is None
    assert await close_at_peer(session(), paths) is None


@aio
async def test_a_broker_that_does_not_answer_has_no_session(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    folder = brokers_folder(paths.runtime)
    folder.mkdir(parents=True)
    record = msgspec.structs.replace(
        RECORD, peer="scout", broker=own_identity(), address=str(tmp_path / "nobody.sock")
    )
    (folder / "scout-1.1.json").write_bytes(msgspec.json.encode(record))
    ((found, status),) = await statuses(paths)
    assert (found.peer, status) == ("scout", None)
    assert await broker_with(session(), paths) is None
