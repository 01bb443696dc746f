"""Relayed commands that survive the connection. tests/hosts runs them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.broker.client.ssh_command import Host
from dragoman.broker.host_protocol import INTERRUPT, OUTPUT, HostCommand
from dragoman.cli import host_command
from dragoman.cli.command_loop import CommandLoop, perform
from dragoman.cli.host_command import LASTING, run_there
from dragoman.cli.host_option import RELAYED
from dragoman.config.schema import HostSettings
from dragoman.errors import ConnectionEnded, HostUnavailable, UsageError
from dragoman.runs.host_link import HostLink
from dragoman.wire.messages import Notification
from tests.aio import aio
from tests.unit.cli.calling import Shell


def test_only_a_delegation_survives_the_connection() -> None:
    assert LASTING == ("delegate",)
    assert set(LASTING) < set(RELAYED)


def test_an_unknown_host_is_rejected_before_anything_is_started() -> None:
    with pytest.raises(UsageError, match="no host"):
        run_there("nowhere", ["jobs"])


def test_with_strict_json_a_host_that_cannot_be_reached_is_an_error_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("hosts", "add", "box").code == 0

    async def connection(link: HostLink) -> Any:
        assert link._on_stderr is not None
        link._on_stderr(b"no route\n")
        raise HostUnavailable("box", "no route to it")

    monkeypatch.setattr(HostLink, "connection", connection)
    words = ("delegate", "review", "x", "--no-stdin", "--json-strict")
    said = shell("--host", "box", *words)
    assert (said.code, said.err) == (1, "")
    assert json.loads(said.out)["error"] == "host_unavailable"
    said = shell("--host", "box", *words[:-1])
    assert (said.code, said.out) == (1, "")
    assert "dragoman: box: no route\n" in said.err


class Opened:
    """A connection that is lost while a command runs."""

    def listen(self, listener: Any) -> None:
        pass

    async def ask(self, method: str, params: Any, shape: Any, *, timeout: float | None) -> Any:
        lost = ConnectionEnded()
        lost.may_have_run = True
        raise lost


@aio
async def test_a_command_that_was_sent_may_have_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connection(link: HostLink) -> Any:
        return Opened()

    monkeypatch.setattr(HostLink, "connection", connection)
    asked = HostCommand(argv=["peers", "enable", "codex"])
    relayed = host_command._Relayed(Host("box", HostSettings()), CommandLoop(), asked)
    with pytest.raises(HostUnavailable, match="connection was lost") as lost:
        await relayed.run()
    assert lost.value.may_have_run


@aio
async def test_a_delegation_that_may_continue_there_names_the_command_that_lists_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def keep_trying(link: HostLink, work: Any) -> Any:
        raise HostUnavailable("box", "cannot reconnect", passing=True, may_have_run=True)

    monkeypatch.setattr(HostLink, "keep_trying", keep_trying)
    asked = HostCommand(argv=["delegate", "review", "x"], id="j-1234")
    relayed = host_command._Relayed(Host("box", HostSettings()), CommandLoop(), asked)
    with pytest.raises(HostUnavailable, match="cannot reconnect") as lost:
        await relayed.run()
    assert "dragoman --host box jobs list" in lost.value.remedy


@aio
async def test_output_that_cannot_be_read_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    asked = HostCommand(argv=["jobs"])
    relayed = host_command._Relayed(Host("box", HostSettings()), CommandLoop(), asked)
    for params in (b'{"offset": "4"}', b'{"offset": 4, "text": "rest"}'):
        relayed._told(Notification(OUTPUT, Raw(params), b""))
    told = capsys.readouterr()
    assert told.out == "rest"
    assert "part of the output is missing: invalid _dragoman/host/output" in told.err


class Talking:
    """A connection to a command that prints until it is interrupted."""

    def __init__(self) -> None:
        self.interrupted = asyncio.Event()

    def listen(self, listener: Any) -> None:
        self.listener = listener

    async def ask(self, method: str, params: Any, shape: type[Any], **limits: Any) -> Any:
        if method == INTERRUPT:
            self.interrupted.set()
            return msgspec.convert({"interrupted": True}, shape)
        for offset in (1, 2):
            text = Raw(b'{"offset": %d, "text": "x"}' % offset)
            self.listener(Notification(OUTPUT, text, b""))
        await self.interrupted.wait()
        return msgspec.convert({"code": 130}, shape)


def test_a_command_whose_output_cannot_be_written_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Talking()

    async def connection(link: HostLink) -> Any:
        return opened

    monkeypatch.setattr(HostLink, "connection", connection)
    live = CommandLoop()

    async def work() -> int:
        asked = HostCommand(argv=["jobs"])
        async with asyncio.timeout(10):
            return await host_command._Relayed(Host("box", HostSettings()), live, asked).run()

    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out, pytest.raises(BrokenPipeError):
        monkeypatch.setattr(sys, "stdout", out)
        perform(live, work)
    assert live.interrupts == 1


class Interrupting:
    """A connection whose command is there only at the third interrupt."""

    def __init__(self) -> None:
        self.asked = 0
        self.there = asyncio.Event()

    async def ask(self, method: str, params: Any, shape: type[Any], **limits: Any) -> Any:
        assert method == INTERRUPT
        self.asked += 1
        if self.asked == 3:
            self.there.set()
        return msgspec.convert({"interrupted": self.asked == 3}, shape)


@aio
async def test_an_interrupt_is_repeated_until_the_command_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Interrupting()

    async def connection(link: HostLink) -> Any:
        return opened

    monkeypatch.setattr(HostLink, "connection", connection)
    monkeypatch.setattr(host_command, "INTERRUPT_INTERVAL", 0.0)
    asked = HostCommand(argv=["delegate", "review", "x"], id="j-1234")
    relayed = host_command._Relayed(Host("box", HostSettings()), CommandLoop(), asked)
    relayed._interrupted(1)
    async with asyncio.timeout(10):
        await opened.there.wait()
    await relayed._tasks.aclose()
    assert opened.asked == 3


@aio
async def test_a_second_interrupt_says_that_the_work_may_go_on_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def work() -> None:
        asked = HostCommand(argv=["delegate", "review", "x"], id="j-1234")
        host_command._Relayed(Host("box", HostSettings()), CommandLoop(), asked)._interrupted(2)
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work())
    assert working.cancelled()
    assert "dragoman --host box jobs list" in capsys.readouterr().err


@aio
async def test_an_interrupt_that_cannot_be_delivered_says_that_the_work_may_go_on_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def connection(link: HostLink) -> Any:
        raise HostUnavailable("box", "no route to it")

    monkeypatch.setattr(HostLink, "connection", connection)

    async def work() -> None:
        asked = HostCommand(argv=["delegate", "review", "x"], id="j-1234")
        relayed = host_command._Relayed(Host("box", HostSettings()), CommandLoop(), asked)
        relayed._interrupted(1)
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work())
    assert working.cancelled()
    told = capsys.readouterr().err
    assert "could not interrupt the command" in told and "no route to it" in told
    assert "dragoman --host box jobs list" in told
