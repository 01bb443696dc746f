"""Starts echo_agent.py as a child process, talks to it, and shows that nothing is left of it.

It owns the show: what is asked, what comes back in which order and when, what a refusal looks like
and how the process ends. How messages travel is the business of `dragoman.rpc`, and how processes
live and die that of `dragoman.transports`. `make demo` runs it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from time import perf_counter

import msgspec

from dragoman import Connection, End, RemoteError, Router, spawn

AGENT = Path(__file__).with_name("echo_agent.py")

CALL_TIMEOUT = 20.0
"""The agent answers in about a millisecond, but first its interpreter has to start."""

COUNTED_CALLS = 2_000

TEXTS = ("a dragoman stood between courts that shared no language", "and carried business through")


class Word(msgspec.Struct):
    """What the agent says on the way to its answer."""

    number: int
    word: str


class Answer(msgspec.Struct):
    """How many words it said."""

    words: int


def show(label: str, text: str, seconds: float | None = None) -> None:
    """One line of the show; in colour where a person looks at a terminal."""
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    left = f"\033[36m{label:>10}\033[0m" if colours else f"{label:>10}"
    took = "" if seconds is None else f"{seconds * 1000:.1f} ms"
    if colours:
        took = f"\033[2m{took}\033[0m"
    print(f"{left}  {text:<52}{took}".rstrip())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def ask(connection: Connection, text: str, said: list[tuple[Word, float]]) -> None:
    """Ask for one echo; the words have all arrived when the answer has."""
    said.clear()
    show("ask", text)
    began = perf_counter()
    raw = await connection.call("echo", {"text": text}, timeout=CALL_TIMEOUT)
    ended = perf_counter()
    for word, at in said:
        show("said", f"{word.number}  {word.word}", at - began)
    answer = msgspec.json.decode(raw, type=Answer)
    expected = list(enumerate(text.split(), 1))
    if [(word.number, word.word) for word, _ in said] != expected or answer.words != len(expected):
        raise SystemExit(f"the words came back wrong: {said}")
    show("answer", f"{answer.words} words, all in order", ended - began)


async def main() -> None:
    said: list[tuple[Word, float]] = []
    router = Router()
    router.on_notification("echo/word", lambda word: said.append((word, perf_counter())), Word)

    began = perf_counter()
    stream = await spawn([sys.executable, str(AGENT)])
    show("started", f"{AGENT.name} as process {stream.pid}", perf_counter() - began)

    async with Connection(stream, End.CLIENT, router) as connection:
        for text in TEXTS:
            await ask(connection, text, said)

        try:
            await connection.call("sing", timeout=CALL_TIMEOUT)
        except RemoteError as error:
            show("refused", f"sing: {error}")

        began = perf_counter()
        for _ in range(COUNTED_CALLS):
            await connection.call("echo", {"text": "x"}, timeout=CALL_TIMEOUT)
        each = (perf_counter() - began) / COUNTED_CALLS
        show("counted", f"{COUNTED_CALLS:,} calls one after another, each in", each)
        began = perf_counter()

    show("closed", f"exit code {stream.exit_code}", perf_counter() - began)
    if is_running(stream.pid):
        raise SystemExit(f"process {stream.pid} is still there")
    show("gone", f"no process {stream.pid} any more")


asyncio.run(main())
