"""Connecting over ssh, with a script instead of ssh: greeting, other output, and every failure."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker import host_protocol
from dragoman.broker.client.ssh import connected, explain, open_host
from dragoman.broker.client.ssh_command import SSH_VARIABLE, Host
from dragoman.config.schema import HostSettings
from dragoman.errors import ConnectionBroken, ConnectionLost, HostUnavailable, ProcessExited
from dragoman.rpc import Connection, End
from dragoman.rpc.responder import Ignore
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Request
from tests.aio import aio

BOX = Host("box", HostSettings(dragoman="/opt/dragoman"))

GREETER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        greeting = {"protocol": PROTOCOL, "version": "7.7", "user": "me", "home": "/home/me"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": greeting}), flush=True)
"""


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Use a shell script as the ssh program."""
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv(SSH_VARIABLE, str(program))


PINGED = """
import json, sys
pings = 0
for line in sys.stdin:
    asked = json.loads(line)
    told = {"result": {"protocol": 1, "version": "7.7"}}
    if asked["method"].endswith("/ping"):
        pings += 1
        if pings > 3:
            sys.exit(7)
        told = ANSWER
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
"""
"""Gives the same answer to each ping, and exits at the fourth."""

STOPPED = """
import json, os, signal, sys
asked = json.loads(sys.stdin.readline())
greeting = {"protocol": 1, "version": "7.7"}
print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": greeting}), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
"""A process that is stopped after its greeting."""


def greeter(tmp_path: Path, protocol: int = 1, *, script: str = GREETER) -> str:
    """Return a command that sends the greeting of a remote dragoman."""
    file = tmp_path / "greeter.py"
    file.write_text(script.replace("PROTOCOL", str(protocol)))
    return f"exec {shlex.quote(sys.executable)} {shlex.quote(str(file))}"


@aio
async def test_output_before_the_greeting_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = (
        'echo "Welcome!"; echo "{\\"not\\": \\"ours\\"}"; printf "\\033[31mno end of line"; echo'
    )
    stand_in(tmp_path, monkeypatch, f"{noise}\n{greeter(tmp_path)}")
    said: list[bytes] = []
    opened = await open_host(BOX, on_stderr=said.append)
    try:
        assert opened.greeting.version == "7.7"
    finally:
        await opened.aclose()


@aio
async def test_endless_output_before_the_greeting_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "while echo noise; do :; done")
    with pytest.raises(HostUnavailable, match="prints too much") as refused:
        await open_host(BOX)
    assert "[ -t 1 ]" in refused.value.remedy


@aio
async def test_another_protocol_number_is_rejected_with_bootstrap_as_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, greeter(tmp_path, protocol=2))
    with pytest.raises(HostUnavailable, match=r"7\.7 there speaks protocol 2") as refused:
        await open_host(BOX)
    assert "dragoman hosts bootstrap box" in refused.value.remedy


@pytest.mark.parametrize(
    ("said", "code", "problem", "remedy", "passing"),
    [
        (
            "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.",
            255,
            "host key has changed",
            "ssh-keygen -R",
            False,
        ),
        ("Host key verification failed.", 255, "host key is unknown", "compare the key", False),
        ("me@box: Permission denied (publickey,password).", 255, "password", "ssh-copy-id", False),
        ("ssh: Could not resolve hostname box: ...", 255, "cannot be resolved", "spelling", True),
        ("connect to host box port 22: Connection refused", 255, "no SSH server", "sshd", True),
        ("connect to host box port 22: No route to host", 255, "No route", "manually", True),
        (
            "sh: 1: /opt/dragoman: not found",
            127,
            "/opt/dragoman or its Python",
            "hosts bootstrap",
            False,
        ),
        ("exec: /usr/bin/python3: not found", 127, "Python", "hosts bootstrap", False),
        ("/opt/dragoman: Permission denied", 126, "cannot be run", "hosts check", False),
        ("No such command 'stdio'.", 2, "too old", "hosts bootstrap", False),
        ("OSError: [Errno 28] No space left on device", 1, "disk there is full", "free", False),
        ("Traceback ...\nKeyError: 'x'", 1, "exit code 1", "hosts check", False),
    ],
)
@aio
async def test_every_failure_has_a_remedy(
    said: str,
    code: int,
    problem: str,
    remedy: str,
    passing: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(tmp_path, monkeypatch, f"printf '%s\\n' {shlex.quote(said)} >&2; exit {code}")
    with pytest.raises(HostUnavailable) as refused:
        await open_host(BOX)
    assert problem in str(refused.value)
    assert remedy in refused.value.remedy
    assert refused.value.retryable is passing


@aio
async def test_a_missing_ssh_program_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SSH_VARIABLE, "/nowhere/ssh")
    with pytest.raises(HostUnavailable, match="nowhere"):
        await open_host(BOX)


def test_a_lost_connection_is_retryable() -> None:
    assert explain(BOX, ConnectionLost("gone")).retryable


@aio
async def test_a_remote_dragoman_that_is_stopped_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_protocol, "PING_INTERVAL", 0.01)
    monkeypatch.setattr(host_protocol, "PING_TIMEOUT", 0.05)
    stand_in(tmp_path, monkeypatch, greeter(tmp_path, script=STOPPED))
    opened = await open_host(BOX)
    try:
        with pytest.raises(ConnectionBroken, match="dragoman on box does not answer within"):
            async with asyncio.timeout(30):
                await opened.call(host_protocol.FOLLOW, {"job": "j-1"}, timeout=None)
    finally:
        opened.connection.stream.hurry()
        await opened.aclose()


@aio
@pytest.mark.parametrize(
    "answer",
    [{"error": {"code": -32601, "message": "no such method"}}, {}],
    ids=["unknown method", "malformed"],
)
async def test_an_error_in_response_to_a_ping_is_a_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    monkeypatch.setattr(host_protocol, "PING_INTERVAL", 0.01)
    script = PINGED.replace("ANSWER", repr(answer))
    stand_in(tmp_path, monkeypatch, greeter(tmp_path, script=script))
    opened = await open_host(BOX)
    try:
        async with asyncio.timeout(30):
            ended = await opened.connection.wait_ended()
        assert isinstance(ended, ProcessExited) and ended.exit_code == 7
    finally:
        await opened.aclose()


@aio
async def test_a_response_that_this_side_does_not_read_yet_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_protocol, "PING_INTERVAL", 0.001)
    monkeypatch.setattr(host_protocol, "PING_TIMEOUT", 0.005)
    pings = 0
    enough = asyncio.Event()

    class Far(Ignore):
        async def request(self, request: Request) -> Any:
            nonlocal pings
            if request.method == host_protocol.HELLO:
                return {"protocol": host_protocol.PROTOCOL, "version": "7.7"}
            pings += 1
            if pings == 4:
                enough.set()
            await asyncio.Event().wait()

    near, far = memory_pair()
    async with Connection(far, End.AGENT, Far(), trace=False):
        opened = connected(BOX, near)
        try:
            await opened.greet({})
            opened.connection.flow.paused = True
            async with asyncio.timeout(30):
                await enough.wait()
            assert opened.connection.failure is None
        finally:
            await opened.aclose()
