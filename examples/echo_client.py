"""Starts echo_agent.py as a child process, talks to it, and shows that nothing is left of it.

It owns the show: what is asked, what comes back in which order and when, what a refusal looks like
and how the process ends. How messages travel is the business of `dragoman.rpc`, and how processes
live and die that of `dragoman.transports`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from time import perf_counter

import msgspec

from dragoman import RemoteError
from dragoman.rpc import Connection, End, Router
from dragoman.transports import spawn

AGENT = Path(__file__).with_name("echo_agent.py")

CALL_TIMEOUT = 20.0
"""The agent answers in about a millisecond, but first its interpreter has to start."""

COUNTED_CALLS = 2_000

PAUSE = 0.02
"""Between two words, so that a person can see them come one by one."""

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
    took = "" if seconds is None else f"{seconds * 1000:8.2f} ms"
    if colours:
        took = f"\033[2m{took}\033[0m"
    print(f"{left}  {text:<52}{took}".rstrip())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Show:
    """Shows each word as it comes, and remembers them."""

    def __init__(self) -> None:
        self.words: list[tuple[int, str]] = []
        self.began_at = 0.0

    def hear(self, word: Word) -> None:
        self.words.append((word.number, word.word))
        show("said", f"{word.number}  {word.word}", perf_counter() - self.began_at)

    async def ask(self, connection: Connection, text: str) -> None:
        """Ask for one echo; the words have all been heard when the answer is here."""
        show("ask", text)
        self.words.clear()
        self.began_at = perf_counter()
        raw = await connection.call("echo", {"text": text, "pause": PAUSE}, timeout=CALL_TIMEOUT)
        took = perf_counter() - self.began_at
        answer = msgspec.json.decode(raw, type=Answer)
        expected = list(enumerate(text.split(), 1))
        if self.words != expected or answer.words != len(expected):
            raise SystemExit(f"the words came back wrong: {self.words}")
        show("answer", f"{answer.words} words, all in order", took)


async def main() -> None:
    watching = Show()
    router = Router()
    router.on_notification("echo/word", watching.hear, Word)

    began = perf_counter()
    stream = await spawn([sys.executable, str(AGENT)])
    show("started", f"{AGENT.name} as process {stream.pid}", perf_counter() - began)

    async with Connection(stream, End.CLIENT, router) as connection:
        await connection.call("echo", {"text": ""}, timeout=CALL_TIMEOUT)
        show("ready", "its first answer", perf_counter() - began)

        for text in TEXTS:
            await watching.ask(connection, text)

        try:
            await connection.call("sing", timeout=CALL_TIMEOUT)
        except RemoteError as error:
            show("refused", f"sing: {error}")

        began = perf_counter()
        for _ in range(COUNTED_CALLS):
            await connection.call("echo", {"text": ""}, timeout=CALL_TIMEOUT)
        took = perf_counter() - began
        show("counted", f"{COUNTED_CALLS:,} calls, one after another", took)
        show("", "so each took", took / COUNTED_CALLS)
        began = perf_counter()

    show("closed", f"exit code {stream.exit_code}", perf_counter() - began)
    if is_running(stream.pid):
        raise SystemExit(f"process {stream.pid} is still there")
    show("gone", f"no process {stream.pid} any more")


asyncio.run(main())
