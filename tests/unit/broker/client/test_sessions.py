"""Asking brokers that run, where none does."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker.client import sessions
from dragoman.broker.client.sessions import (
    broker_with,
    close_at_peer,
    silent_brokers,
    statuses,
    take_over,
)
from dragoman.broker.endpoint import brokers_folder
from dragoman.errors import BrokerUnavailable, TurnInProgress
from dragoman.rpc.tasks import TaskOwner
from dragoman.store.store import store_path
from dragoman.transports.process.identity import identify, own_identity
from tests.aio import aio
from tests.unit.cli.brokers import RECORD
from tests.unit.runs.stored import held, job, paths_in, session, store_in


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
    assert [each.peer for each in await silent_brokers("scout", paths)] == ["scout"]
    assert await silent_brokers("codex", paths) == []


@pytest.mark.parametrize(
    ("fields", "free"),
    [
        ({"state": "ended"}, True),
        ({"state": "running"}, False),
        ({"state": "queued"}, False),
        ({"state": "running", "session_key": "s-0000000002"}, True),
    ],
)
@aio
async def test_a_session_in_which_another_process_works_is_not_taken_over(
    tmp_path: Path, fields: dict[str, Any], free: bool
) -> None:
    paths = paths_in(tmp_path)
    parent = identify(os.getppid())
    assert parent is not None
    with store_in(tmp_path) as store:
        for key in ("s-0000000001", "s-0000000002"):
            store.create_session(session(key))
        store.create_job(job(**{"outcome": None, "runner": dataclasses.asdict(parent), **fields}))
    wanted = session(name="talk")
    if free:
        await take_over(wanted, broker=None, pid=os.getpid(), paths=paths)
    else:
        with pytest.raises(TurnInProgress, match="j-0000000001 of the session talk"):
            await take_over(wanted, broker=None, pid=os.getpid(), paths=paths)
    # What runs in our own broker waits there for its turn.
    await take_over(wanted, broker="scout-1", pid=parent.pid, paths=paths)


@aio
async def test_a_job_whose_process_is_gone_holds_no_session(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    gone = dataclasses.replace(own_identity(), started="1")
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.create_job(job(state="running", outcome=None, runner=dataclasses.asdict(gone)))
    await take_over(session(), broker=None, pid=1, paths=paths)


@aio
async def test_the_loop_runs_on_while_the_store_is_held_and_a_session_taken_over(
    tmp_path: Path,
) -> None:
    paths = paths_in(tmp_path)
    with store_in(tmp_path) as store:
        store.create_session(session())
    with held(store_path(paths.state)):
        work = take_over(session(), broker=None, pid=os.getpid(), paths=paths)
        taking = TaskOwner("test").start(work, "take over")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not taking.done()
    await taking


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux refuses when the queue is full")
@pytest.mark.parametrize("is_full", [False, True])
@aio
async def test_a_session_that_a_silent_broker_may_have_open_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    monkeypatch.setattr(sessions, "ANSWER_TIMEOUT", 0.01)
    paths = paths_in(tmp_path)
    folder = brokers_folder(paths.runtime)
    folder.mkdir(parents=True)
    # The path of a socket must be short.
    below = tempfile.TemporaryDirectory()
    address = f"{below.name}/s"
    record = msgspec.structs.replace(
        RECORD, name="scout-1", peer="scout", broker=own_identity(), address=address
    )
    (folder / "scout-1.1.json").write_bytes(msgspec.json.encode(record))
    # Nothing accepts its connections, as if its process was stopped.
    with below, contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(address)
        listening.listen(0)
        if is_full:
            waiting = opened.enter_context(socket.socket(socket.AF_UNIX))
            waiting.connect(address)
        with pytest.raises(BrokerUnavailable, match="the session talk may be open") as raised:
            await take_over(session(name="talk"), broker=None, pid=os.getpid(), paths=paths)
    assert "`dragoman broker stop scout-1` ends it" in str(raised.value)
