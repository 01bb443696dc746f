"""The remote side of a link: it echoes every line, and obeys a line with a command.

`!note` is not echoed but noted where the test can see it; `!end` ends the remote side. As a
program, this module is the remote side in a child process: `plain` with blocking reads and writes
and without dragoman, `stdio` with our own standard input and output as the stream.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from dragoman.errors import ConnectionLost
from dragoman.transports.base import Stream
from dragoman.transports.stdio import open_stdio

NOTED = b"the remote side took note\n"


class FarEnd:
    """The remote side on a stream."""

    def __init__(self, stream: Stream, on_note: Callable[[], None]) -> None:
        self.stream = stream
        self.on_note = on_note
        self.over = asyncio.Event()
        self.ends: list[ConnectionLost] = []
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        answers: list[bytes] = []
        for line in lines:
            if line == b"!note":
                self.on_note()
            elif line == b"!end":
                self.over.set()
            else:
                answers.append(line + b"\n")
        if answers and not self.over.is_set():
            self.stream.write(b"".join(answers))

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)
        self.over.set()


def plain() -> None:
    """Blocking, line by line. `!hold` waits for a signal; `!deaf` closes the input and stays."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    source, target = sys.stdin.buffer, sys.stdout.buffer
    for line in source:
        if line == b"!note\n":
            os.write(2, NOTED)
        elif line == b"!hold\n":
            signal.sigwait({signal.SIGUSR1})
        elif line == b"!deaf\n":
            os.close(0)
            signal.pause()
        elif line == b"!end\n":
            return
        else:
            target.write(line)
            target.flush()


async def stdio() -> None:
    stream = await open_stdio()
    # What is printed here would break the echo if it reached the stream.
    print("printed beside the stream", flush=True)  # noqa: T201
    end = FarEnd(stream, lambda: print(NOTED.decode(), end="", file=sys.stderr, flush=True))  # noqa: T201
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stream.resume_reading)
    receive = end.data_received

    def data_received(data: bytes) -> None:
        if b"!hold\n" in data:
            stream.pause_reading()
            data = data.replace(b"!hold\n", b"")
        receive(data)

    end.data_received = data_received  # type: ignore[method-assign]
    stream.start(end)
    await end.over.wait()
    await stream.aclose()


if __name__ == "__main__":
    if sys.argv[1] == "plain":
        plain()
    else:
        asyncio.run(stdio())
