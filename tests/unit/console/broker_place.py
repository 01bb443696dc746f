"""A broker in this process that consoles can find, with a real agent behind it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.broker.endpoint import endpoint_of
from dragoman.broker.records import BrokerRecord, RecordFile
from dragoman.broker.spec import endpoint_name, folders_of
from dragoman.client.folders import make_private
from dragoman.paths import Paths
from dragoman.transports.listener import listen_unix
from dragoman.transports.process.identity import own_identity
from tests.integration.broker_stage import Stage, TestCaller, stage


@asynccontextmanager
async def broker(paths: Paths) -> AsyncIterator[tuple[Stage, BrokerRecord]]:
    async with stage(paths.state.parent) as at:
        endpoint = endpoint_of(endpoint_name(at.broker.spec), folders_of(paths))
        file = endpoint.record(1)
        make_private(file.parent)
        listener = await listen_unix(endpoint.address, at.broker.serve)
        record = BrokerRecord(
            name=endpoint.name,
            address=endpoint.address,
            peer="agent",
            workspace=at.broker.spec.workspace,
            version="0",
            broker=own_identity(),
            owner="test",
            started_at=time.time(),
        )
        RecordFile(file, record).write()
        try:
            yield at, record
        finally:
            file.unlink()
            await listener.aclose()


async def submit(caller: TestCaller, session: str, text: str, job: str = "j-1") -> None:
    params = {
        "sessionId": session,
        "prompt": [{"type": "text", "text": text}],
        "job": job,
        "policy": "approve-reads",
        "asks": True,
    }
    await caller.call("_dragoman/submit", params)
