"""A broker on standard input and output: which one, and that both are joined."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.broker.client import liveness
from dragoman.cli import broker_stdio
from dragoman.cli.run_plan import RunOptions, plan_of
from dragoman.errors import BrokerError
from tests.aio import aio
from tests.unit.cli.calling import Shell

ENDPOINT = SimpleNamespace(name="scout-1", address="/nowhere/scout-1.sock")


async def closed_at_once() -> None:
    """The connection of the greeting is closed when the stream is open."""


FOUND = SimpleNamespace(connection=SimpleNamespace(aclose=closed_at_once), endpoint=ENDPOINT)


def listening(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    """What connects to the endpoint gets this stream."""

    async def open_stream(address: str) -> Any:
        assert address == ENDPOINT.address
        return stream

    monkeypatch.setattr(broker_stdio, "open_stream", open_stream)


@aio
async def test_the_broker_of_the_plan_is_joined_with_stdin_and_stdout(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    said: list[bytes] = []
    stream = SimpleNamespace(write=said.append)

    async def ensure(spec: Any, *, prepare: Any, ttl: Any) -> Any:
        asked.append((spec.peer, spec.workspace, ttl, (await prepare(spec)).parallel))
        return FOUND

    async def open_stdio() -> str:
        return "stdio"

    async def join(near: Any, far: Any) -> None:
        asked.append((near, far))

    listening(monkeypatch, stream)
    monkeypatch.setattr(broker_stdio, "ensure", ensure)
    monkeypatch.setattr(broker_stdio, "open_stdio", open_stdio)
    monkeypatch.setattr(broker_stdio, "join", join)
    plan = plan_of(RunOptions(peer="scout", command=None, ttl="2m", approve_all=True))
    assert await broker_stdio.attach(plan) == 0
    assert asked == [("scout", str(shell.cwd), 120.0, None), ("stdio", stream)]
    assert [json.loads(line)["params"] for line in said] == [{"policy": "approve-all"}]


@aio
async def test_the_broker_is_told_the_policy_before_all_else(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []

    async def ensure(spec: Any, *, prepare: Any, ttl: Any) -> Any:
        return FOUND

    async def open_stdio() -> str:
        return "stdio"

    async def join(near: Any, far: Any) -> None:
        said.append("the other program")

    listening(monkeypatch, SimpleNamespace(write=said.append))
    monkeypatch.setattr(broker_stdio, "ensure", ensure)
    monkeypatch.setattr(broker_stdio, "open_stdio", open_stdio)
    monkeypatch.setattr(broker_stdio, "join", join)
    plan = plan_of(RunOptions(peer="scout", command=None, deny_all=True))
    assert await broker_stdio.attach(plan) == 0
    terms, rest = said
    assert json.loads(terms)["params"] == {"policy": "deny-all"}
    assert terms.endswith(b"\n")
    assert rest == "the other program"


@aio
async def test_a_broker_that_hangs_is_an_error_that_names_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = asyncio.Event()

    async def aclose() -> None:
        closed.set()

    async def ensure(spec: Any, *, prepare: Any, ttl: Any) -> Any:
        return FOUND

    async def open_stdio() -> str:
        return "stdio"

    async def join(near: Any, far: Any) -> None:
        await closed.wait()

    async def is_hung(address: str) -> bool:
        return True

    listening(monkeypatch, SimpleNamespace(write=lambda data: None, aclose=aclose))
    monkeypatch.setattr(broker_stdio, "ensure", ensure)
    monkeypatch.setattr(broker_stdio, "open_stdio", open_stdio)
    monkeypatch.setattr(broker_stdio, "join", join)
    monkeypatch.setattr(liveness, "is_hung", is_hung)
    plan = plan_of(RunOptions(peer="scout", command=None))
    with pytest.raises(BrokerError, match="the broker scout-1 does not answer"):
        await broker_stdio.attach(plan)
