"""Which process is at the other end of a connection."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dragoman.mcp_server.caller_process import caller_of
from dragoman.transports.process.identity import variables_of
from tests.aio import aio

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid inode\n"


def kernel(folder: Path, *lines: str, pid: int = 4242, inode: str = "77") -> Path:
    """A folder that looks like what the system shows."""
    (folder / "net").mkdir()
    (folder / "net" / "tcp").write_text(HEAD + "".join(f"{line}\n" for line in lines))
    process = folder / str(pid)
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "3").symlink_to(f"socket:[{inode}]")
    (process / "environ").write_bytes(b"DRAGOMAN_DEPTH=2\0HOME=/x\0DRAGOMAN_LINEAGE=j-1\0")
    return folder


def line(local: str, inode: str = "77") -> str:
    return f"   0: {local} 0100007F:2210 01 00000000:00000000 00:00000000 00000000 0 0 {inode} 1"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it cannot be told")
def test_a_port_leads_to_the_process_that_has_it(tmp_path: Path) -> None:
    proc = kernel(tmp_path, line("0100007F:1F90"))
    assert caller_of(0x1F90, proc=proc) == 4242
    assert caller_of(0x1F91, proc=proc) is None


@pytest.mark.parametrize("local", ["0200007F:1F90", "0100007F:1F90"])
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it cannot be told")
def test_another_address_or_a_connection_that_is_over_leads_nowhere(
    local: str, tmp_path: Path
) -> None:
    inode = "77" if local.startswith("02") else "0"
    assert caller_of(0x1F90, proc=kernel(tmp_path, line(local, inode), "garbage")) is None


def test_if_the_system_shows_nothing_no_process_is_found(tmp_path: Path) -> None:
    assert caller_of(80, proc=tmp_path) is None
    assert variables_of(80, "", proc=tmp_path) is None


def test_only_variables_of_ours_are_read(tmp_path: Path) -> None:
    found = variables_of(4242, "DRAGOMAN_", proc=kernel(tmp_path))
    assert found == {"DRAGOMAN_DEPTH": "2", "DRAGOMAN_LINEAGE": "j-1"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it cannot be told")
@aio
async def test_a_real_connection_leads_to_a_real_process() -> None:
    connected: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set_result(writer.get_extra_info("peername")[1])
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    program = f"import socket, sys; s = socket.create_connection(('127.0.0.1', {port})); input()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    try:
        async with asyncio.timeout(20):
            found = caller_of(await connected)
        assert found == process.pid != os.getpid()
    finally:
        process.stdin.write(b"\n")
        process.stdin.close()
        await process.wait()
        server.close()
        await server.wait_closed()
