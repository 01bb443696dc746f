"""The bridge as a program: where it serves, and how it says that it cannot."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dragoman import connect
from dragoman.transports.process import spawn
from tests.aio import aio
from tests.integration.children import Inbox
from tests.integration.peers import AGENT, ENVIRONMENT, WAIT_TIMEOUT

BRIDGE = [sys.executable, "-m", "dragoman.bridge", "--inherit", "PYTHONPATH"]


@pytest.mark.parametrize("where", ["--unix", "--websocket"])
@aio
async def test_it_serves_one_client_after_another_on_a_socket(where: str, tmp_path: Path) -> None:
    address = str(tmp_path / "socket") if where == "--unix" else "127.0.0.1:0"
    said: asyncio.Queue[bytes] = asyncio.Queue()
    async with asyncio.timeout(WAIT_TIMEOUT):
        program = await spawn(
            [*BRIDGE, where, address, "--", *AGENT],
            cwd=tmp_path,
            env=ENVIRONMENT,
            on_stderr=said.put_nowait,
        )
        program.start(Inbox())
        try:
            line = (await said.get()).decode()
            found = line.split("listening on ")[1].strip()
            target = found if found.startswith("ws") else f"unix:{found}"
            for _ in range(2):
                async with connect(target, workspace=tmp_path) as peer:
                    async with peer.session() as session:
                        assert (await session.ask("hi")).text == "ask: hi"
        finally:
            await program.aclose()


@aio
async def test_an_agent_that_cannot_be_used_is_said_on_stderr_and_is_the_exit_code(
    tmp_path: Path,
) -> None:
    program = await spawn(
        [*BRIDGE, "--", sys.executable, "-c", "print('Welcome!')"], cwd=tmp_path, env=ENVIRONMENT
    )
    inbox = Inbox()
    program.start(inbox)
    end = await inbox.end()
    assert getattr(end, "exit_code", None) == 1
    assert "exited with code 0 before it answered" in program.stderr_tail()
    assert "Welcome!" in program.stderr_tail()
    assert inbox.bytes == b""
    await program.aclose()
