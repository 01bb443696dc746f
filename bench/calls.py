"""Time calls of `dragoman.connect` inside the process that makes them.

Measures the time from connecting until the prompt is written, and a small turn with and without a
broker. `bench.warm` runs it as `python -m bench.calls`, with the interpreter of the benchmarks. It
prints one line of JSON. The environment determines the peer and the directory of its broker.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import dragoman
from dragoman.broker.client import connect
from dragoman.runs import open_by_name

IMPORTED = (open_by_name, connect)
"""The modules that the first call of `dragoman.connect` imports. They are imported before the clock
starts, because the figures of the commands include import times."""

PROMPT_METHOD = b'"session/prompt"'
"""Text that only the message that starts a turn contains."""


class Written:
    """Records when a prompt was written, for all streams of one type."""

    def __init__(self, kind: Any) -> None:
        self.at = 0.0
        write = kind.write

        def watched(stream: Any, data: Any) -> None:
            write(stream, data)
            if PROMPT_METHOD in data:
                self.at = time.perf_counter()

        kind.write = watched


async def call(peer_name: str, workspace: Path, prompt: str, seen: dict[Any, Written]) -> float:
    """Make one call as a program does. Returns the seconds from connecting until the prompt was
    written."""
    at = time.perf_counter()
    async with dragoman.connect(peer_name, workspace=workspace) as peer:
        kind: Any = type(peer.client.connection._stream)
        if kind not in seen:
            seen[kind] = Written(kind)
        async with peer.session() as conversation:
            result = await conversation.ask(prompt)
    if not result.ok:
        raise SystemExit(f"{peer_name} did not answer: {result}")
    return seen[kind].at - at


async def calls(peer_name: str, workspace: Path, prompt: str, count: int) -> list[float]:
    """Make sequential calls, each with its own connection and session."""
    seen: dict[Any, Written] = {}
    return [await call(peer_name, workspace, prompt, seen) for _ in range(count)]


async def turns(peer_name: str, workspace: Path, prompt: str, count: int) -> list[list[float]]:
    """Time pairs of turns in two open sessions: with a child process and through the broker."""
    pairs: list[list[float]] = []
    async with (
        dragoman.connect(peer_name, workspace=workspace, warm=False) as direct,
        dragoman.connect(peer_name, workspace=workspace, warm=True) as warm,
        direct.session() as here,
        warm.session() as there,
    ):
        for number in range(count):
            pair = [0.0, 0.0]
            order = ((0, here), (1, there))
            for place, conversation in order if number % 2 else reversed(order):
                at = time.perf_counter()
                result = await conversation.ask(prompt)
                pair[place] = time.perf_counter() - at
                if result.text.strip() != prompt:
                    raise SystemExit(f"{peer_name} said {result.text!r} to {prompt!r}")
            pairs.append(pair)
    return pairs


def main() -> None:
    what, peer_name, workspace, prompt, count = sys.argv[1:]
    work: Any = {"calls": calls, "turns": turns}[what]
    figures = asyncio.run(work(peer_name, Path(workspace), prompt, int(count)))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
