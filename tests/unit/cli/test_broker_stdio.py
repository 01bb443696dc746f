"""A broker on standard input and output: which one, and that both are joined."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.cli import broker_stdio
from dragoman.cli.options import RunOptions, plan_of
from tests.aio import aio
from tests.unit.cli.calling import Shell


@aio
async def test_the_broker_of_the_plan_is_joined_with_stdin_and_stdout(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    said: list[bytes] = []
    stream = SimpleNamespace(write=said.append)

    async def ensure(spec: Any, *, prepare: Any, ttl: Any) -> Any:
        asked.append((spec.peer, spec.workspace, ttl, (await prepare(spec)).parallel))
        return SimpleNamespace(stream=stream)

    async def open_stdio() -> str:
        return "stdio"

    async def join(near: Any, far: Any) -> None:
        asked.append((near, far))

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
        return SimpleNamespace(stream=SimpleNamespace(write=said.append))

    async def open_stdio() -> str:
        return "stdio"

    async def join(near: Any, far: Any) -> None:
        said.append("the other program")

    monkeypatch.setattr(broker_stdio, "ensure", ensure)
    monkeypatch.setattr(broker_stdio, "open_stdio", open_stdio)
    monkeypatch.setattr(broker_stdio, "join", join)
    plan = plan_of(RunOptions(peer="scout", command=None, deny_all=True))
    assert await broker_stdio.attach(plan) == 0
    terms, rest = said
    assert json.loads(terms)["params"] == {"policy": "deny-all"}
    assert terms.endswith(b"\n")
    assert rest == "the other program"
