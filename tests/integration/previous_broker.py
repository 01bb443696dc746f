"""A broker as dragoman 0.1.0 had it: holds its name and answers with the recorded bytes.

For tests of what this dragoman does with one that still runs. It says ``ready``, then every request
as a line of JSON, and ends when it is told to stop. Only what names a process, the peer's files and
the question is put into the recorded answers anew, so that nothing but the version is out of date.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from dragoman.broker.lock import try_lock
from dragoman.transports.process.identity import own_identity
from tests.integration.previous_state import PREVIOUS

RECORDED = PREVIOUS / "broker"
ANSWERS = {f"_dragoman/{name}": RECORDED / f"{name}.json" for name in ("hello", "status", "stop")}


def answer(asked: dict[str, Any]) -> bytes:
    """The recorded answer to a request."""
    recorded = ANSWERS[asked["method"]].read_bytes()
    told = json.loads(recorded)
    anew = {"id": asked["id"]}
    if "pid" in told["result"]:
        anew |= {"pid": os.getpid(), "identity": asked["params"].get("identity", "")}
    for key, value in anew.items():
        before = json.dumps(told["result"].get(key, told.get(key)))
        recorded = recorded.replace(
            f'"{key}":{before}'.encode(), f'"{key}":{json.dumps(value)}'.encode()
        )
    return recorded


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def serve(folder: Path, name: str) -> None:
    """Be the broker of this name until somebody stops it."""
    stopped = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked = json.loads(line)
            say(json.dumps(asked))
            writer.write(answer(asked))
            await writer.drain()
            if asked["method"] == "_dragoman/stop":
                stopped.set()
        writer.close()

    address = folder / f"{name}.sock"
    record = folder / f"{name}.{os.getpid()}.json"
    lock = try_lock(folder / f"{name}.lock")
    assert lock is not None, "somebody has the name"
    with lock:
        own = msgspec.json.encode(own_identity())
        lock.write(own)
        written = json.loads((RECORDED / "record.json").read_bytes())
        written |= {"name": name, "address": str(address), "broker": json.loads(own)}
        record.write_text(json.dumps(written | {"children": []}))
        server = await asyncio.start_unix_server(talk, address)
        say("ready")
        await stopped.wait()
        server.close()
        address.unlink(missing_ok=True)
        record.unlink()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
