"""Calls of `dragoman.connect`, timed from inside the process that makes them.

It owns two stopwatches: from connecting to the prompt being written, and a small turn with and
without a broker. Run by `bench.warm` as `python -m bench.calls`, with the interpreter of the bench;
it prints one line of JSON. Who the peer is, and where its broker lives, is in the environment that
it is given.
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
"""What `dragoman.connect` loads with its first call. It is loaded before the clock starts: how long
Python takes to load modules is told with the commands."""

PROMPT_METHOD = b'"session/prompt"'
"""What the message that begins a turn has in it, and no other."""


class Written:
    """When a prompt was handed to the system, for all streams of one kind."""

    def __init__(self, kind: Any) -> None:
        self.at = 0.0
        write = kind.write

        def watched(stream: Any, data: Any) -> None:
            write(stream, data)
            if PROMPT_METHOD in data:
                self.at = time.perf_counter()

        kind.write = watched


async def call(peer_name: str, workspace: Path, prompt: str, seen: dict[Any, Written]) -> float:
    """One call as a program makes it; seconds from connecting to the prompt being written."""
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
    """Calls one after the other, each with a connection and a session of its own."""
    seen: dict[Any, Written] = {}
    return [await call(peer_name, workspace, prompt, seen) for _ in range(count)]


async def turns(peer_name: str, workspace: Path, prompt: str, count: int) -> list[list[float]]:
    """Pairs of turns in two open sessions: with an agent of our own, and through the broker."""
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
