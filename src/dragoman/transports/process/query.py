"""Run a program once and return its output, for example to ask for its version.

Limits time and output size, runs it in an empty directory, and leaves no process behind. The caller
knows which command lines are safe to run.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.errors import ConnectionLost, SpawnError
from dragoman.transports import spawn

MAX_ANSWER_SIZE: Final = 64 * 1024
"""A version and a list of models are shorter; what goes on for ever is cut."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program said, and how it ended."""

    output: str
    errors: str
    exit_code: int | None
    """None if it had to be stopped."""


class _Ear:
    def __init__(self) -> None:
        self.heard = bytearray()
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        if len(self.heard) >= MAX_ANSWER_SIZE:
            self.over.set()

    def stream_ended(self, error: ConnectionLost) -> None:
        self.over.set()


async def ask_program(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
) -> ProgramOutput | None:
    """Run a program until it ends or the time is over; None if it could not be started.

    It stands in an empty folder: some programs load what they find in the one they are started in.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        try:
            stream = await spawn(argv, cwd=folder, env=env, inherit=inherit)
        except SpawnError:
            return None
        ear = _Ear()
        try:
            stream.start(ear)
            async with asyncio.timeout(timeout):
                await ear.over.wait()
        except TimeoutError:
            pass
        finally:
            await stream.aclose()
        output = bytes(ear.heard[:MAX_ANSWER_SIZE]).decode("utf-8", "replace")
        return ProgramOutput(output, stream.stderr_tail(), stream.exit_code)
