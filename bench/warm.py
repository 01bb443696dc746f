"""Measure the benefit of a warm broker, with a real agent and a fake model that answers at once.

Run as `python -m bench.warm`, after `scripts/peers/install.py` has installed the agents and acpx.
Makes three comparisons, each within one run: the second call with the first, a small turn through
the broker with one in a child process, and a warm `dragoman run` with a warm `acpx`. `bench.calls`
measures times inside a calling process. The contestant `broker` measures the throughput of a
broker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import environment, report
from bench.__main__ import machine, say
from dragoman.testing.fake_model import FakeModel
from scripts.peers import install
from tests.peers.agents import GEMINI, QWEN, Agent, descriptor
from tests.peers.commands import living_in
from tests.peers.programs import peer_environment

AGENTS = {agent.name: agent for agent in (GEMINI, QWEN)}
PARROT = environment.ROOT / "examples" / "parrot.py"

PROMPT = "CHUNKS:3"
FIRST_TEXT = b"chunk-1"
LAST_TEXT = b"chunk-3"
SESSION = "bench"

CALL_REPETITIONS = 5
QUICK_CALL_REPETITIONS = 2
TURNS = 400
QUICK_TURNS = 100
COMMAND_REPETITIONS = 15
QUICK_COMMAND_REPETITIONS = 5

WARM_UP_TURNS = 10
"""Number of turns that do not count: both ends import modules in their first turn."""

COMMAND_TIMEOUT = 120.0
"""Timeout in seconds for one process; a cold start on a busy machine takes ten."""

LEAVE_TIMEOUT = 15.0
"""Seconds before a process that was asked to exit is killed."""

BEGIN = "<!-- warm figures: written by python -m bench.warm --document -->"
END = "<!-- end of the warm figures -->"


@dataclass(frozen=True, slots=True)
class Home:
    """A separate home directory, with its environment variables."""

    path: Path
    workspace: Path
    variables: Mapping[str, str]

    def surroundings(self, seed: int) -> dict[str, str]:
        """The environment of a process that is started here."""
        python = environment.variables(seed)
        return {**self.variables, **{name: python[name] for name in python if "PYTHON" in name}}


def make_home(folder: Path, agent: Agent, model: FakeModel) -> Home:
    path, workspace = folder / "home", folder / "workspace"
    path.mkdir(parents=True)
    workspace.mkdir()
    agent.configure(path)
    # Set the variables that dragoman sets for an agent for acpx too: they avoid a launcher process.
    usual = descriptor(agent.name).env
    variables = {**peer_environment(path), **usual, **agent.provider(model.url)}
    return Home(path, workspace, variables)


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished command, and when the expected text appeared in its output."""

    out: bytes
    first: float
    wall: float


async def command(words: Sequence[str], home: Home, seed: int, until: bytes = b"") -> Ended:
    """Run a process to its end, while the model answers in this event loop."""
    with tempfile.TemporaryFile() as err:
        at = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=home.workspace,
            env=home.surroundings(seed),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
        )
        assert process.stdout is not None
        out, first = b"", 0.0
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT):
                while piece := await process.stdout.read(65536):
                    out += piece
                    if not first and until in out:
                        first = time.perf_counter() - at
                code = await process.wait()
        except TimeoutError:
            process.kill()
            raise SystemExit(f"{shlex.join(words)} hung") from None
        wall = time.perf_counter() - at
        err.seek(0)
        trouble = err.read().decode("utf-8", "replace")
    if code or until not in out:
        raise SystemExit(f"{shlex.join(words)} exited with {code}:\n{out!r}\n{trouble}")
    return Ended(out, first, wall)


async def timed_inside(python: str, home: Home, seed: int, *words: str) -> Any:
    """The figures of `bench.calls`, run in a separate process."""
    ended = await command([python, "-m", "bench.calls", *words], home, seed)
    return json.loads(ended.out)


# -- the result


@dataclass(slots=True)
class Table:
    """The lines of the result, each with its goal."""

    text: str = ""
    missed: list[str] = field(default_factory=list)

    def title(self, text: str) -> None:
        self.text += f"\n{text}\n"

    def line(self, name: str, *cells: str, goal: str = "", met: bool | None = None) -> None:
        verdict = {True: "yes", False: "NO", None: ""}[met]
        line = f"  {name:<36} {' '.join(f'{cell:>12}' for cell in cells)}"
        line += f"   {goal}: {verdict}" if goal else ""
        self.text += line.rstrip() + "\n"
        if met is False:
            self.missed.append(name)


def milliseconds(values: Sequence[float]) -> str:
    return f"{statistics.median(values) * 1000:.1f} ms"


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    return f"{form(statistics.median(values))} ({form(min(values))}..{form(max(values))})"


# -- the three comparisons


async def second_call(table: Table, python: str, home: Home, agent: str, repetitions: int) -> None:
    """From connecting until the prompt is written: without a broker, and then with it."""
    firsts: list[float] = []
    seconds: list[float] = []
    others: list[float] = []
    what = ("calls", agent, str(home.workspace), PROMPT)
    for repetition in range(repetitions + 1):
        await stop_brokers(python, home, repetition)
        first, second = await timed_inside(python, home, repetition, *what, "2")
        (other,) = await timed_inside(python, home, repetition, *what, "1")
        if repetition:
            firsts.append(first)
            seconds.append(second)
            others.append(other)
        say(f"calls: {repetition} of {repetitions}")
    await stop_brokers(python, home, repetitions)
    table.title(f"From connecting to the prompt being written, {agent}; medians of {repetitions}")
    table.line("the first call, which starts it", milliseconds(firsts))
    for name, calls in (
        ("the second, in the same process", seconds),
        ("the second, in another process", others),
    ):
        shares = [call / first for call, first in zip(calls, firsts, strict=True)]
        table.line(
            name,
            milliseconds(calls),
            spread(shares, "{:.1%}".format),
            goal="at most 10%",
            met=statistics.median(shares) <= 0.10,
        )


async def added(table: Table, python: str, home: Home, turns: int) -> None:
    """The time that the broker adds to a small turn with an agent that answers immediately."""
    peers = home.path / ".config" / "dragoman" / "peers"
    peers.mkdir(parents=True)
    (peers / "parrot.toml").write_text(
        'name = "parrot"\ntitle = "Parrot"\nprotocol = "acp"\nroles = ["research"]\n'
        f"[[launch]]\ncommand = {json.dumps([python, str(PARROT)])}\n"
        '[credentials]\nenv = ["PYTHONPATH"]\n'
    )
    what = ("turns", "parrot", str(home.workspace), "hello", str(turns + WARM_UP_TURNS))
    pairs = (await timed_inside(python, home, 1, *what))[WARM_UP_TURNS:]
    await stop_brokers(python, home, 1)
    direct, warm = zip(*pairs, strict=True)
    more = statistics.median(warm) - statistics.median(direct)
    table.title(f"A small turn with an agent that answers at once; medians of {turns}")
    table.line("a child process", milliseconds(direct))
    table.line("through a broker", milliseconds(warm))
    table.line(
        "what the broker adds", f"{more * 1000:.2f} ms", goal="less than 5 ms", met=more < 0.005
    )


async def warm_commands(
    table: Table, python: str, ours: Home, theirs: Home, agent: str, repetitions: int
) -> None:
    """One prompt in a warm session, from the command line."""
    acpx = [*install.program("acpx"), "--agent", shlex.join([*install.program(agent), "--acp"])]
    run = [python, "-m", "dragoman", "run", agent, "-s", SESSION, PROMPT]
    prompt = [*acpx, "prompt", "-s", SESSION, PROMPT]
    contestants = ((run, ours), (prompt, theirs))
    figures: tuple[list[Ended], list[Ended]] = ([], [])
    try:
        await command([*acpx, "sessions", "new", "--name", SESSION], theirs, 0)
        for words, home in contestants:
            await command(words, home, 0, FIRST_TEXT)
        kept = [set(living_in(home.path)) for _, home in contestants]
        # Repetition 0 is a warm-up: it fills the system caches.
        for repetition in range(repetitions + 1):
            order = list(enumerate(contestants))
            for at, (words, home) in order if repetition % 2 else reversed(order):
                ended = await command(words, home, repetition, FIRST_TEXT)
                if LAST_TEXT not in ended.out:
                    raise SystemExit(f"{words} did not print the whole answer: {ended.out!r}")
                if repetition:
                    figures[at].append(ended)
            say(f"commands: {repetition} of {repetitions}")
        # The processes that were running after the first prompt must have answered all others.
        if any(
            not pids or pids - set(living_in(home.path))
            for pids, (_, home) in zip(kept, contestants, strict=True)
        ):
            raise SystemExit("an agent exited between two prompts, so nothing was warm")
    finally:
        await stop_brokers(python, ours, 0)
        await command([*acpx, "sessions", "close", SESSION], theirs, 0)
    starts: tuple[list[float], list[float]] = ([], [])
    for repetition in range(repetitions):
        for at, (words, home) in enumerate(((run[:3], ours), (prompt[:2], theirs))):
            ended = await command([*words, "--version"], home, repetition)
            starts[at].append(ended.wall)
    pin, node = install.pins()["acpx"], install.pins()["node"]
    table.title(
        f"A prompt to a warm {agent}; acpx {pin.version} on node {node.version}; "
        f"medians of {repetitions}"
    )
    table.line("", "dragoman", "acpx", "faster by")
    for name, figure, goal, aim in (
        ("first text on the output", "first", "sooner", 1.0),
        ("end of the process", "wall", "3 times", 3.0),
    ):
        mine, other = ([getattr(ended, figure) for ended in runs] for runs in figures)
        ratios = [its / my for my, its in zip(mine, other, strict=True)]
        table.line(
            name,
            milliseconds(mine),
            milliseconds(other),
            spread(ratios, "{:.2f}x".format),
            goal=goal,
            met=statistics.median(ratios) >= aim,
        )
    table.line("start of the program (--version)", *map(milliseconds, starts))


# -- ending


async def stop_brokers(python: str, home: Home, seed: int) -> None:
    await command([python, "-m", "dragoman", "broker", "stop", "--all"], home, seed)


async def leave(homes: Sequence[Home]) -> None:
    """Wait for the remaining processes of these homes to exit, and kill them after a timeout."""
    for home in homes:
        give_up_at = time.monotonic() + LEAVE_TIMEOUT
        while left := living_in(home.path):
            if time.monotonic() > give_up_at:
                say(f"killed: {left}")
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.1)


async def measure(options: argparse.Namespace) -> Table:
    python = environment.ready(say)
    agent = AGENTS[options.agent]
    quick = options.quick
    table = Table()
    with tempfile.TemporaryDirectory(prefix="dragoman-warm-", ignore_cleanup_errors=True) as name:
        async with FakeModel() as model:
            ours, theirs, plain = (
                make_home(Path(name, who), agent, model) for who in ("ours", "theirs", "plain")
            )
            try:
                await second_call(
                    *(table, python, ours, agent.name),
                    QUICK_CALL_REPETITIONS if quick else CALL_REPETITIONS,
                )
                await added(table, python, plain, QUICK_TURNS if quick else TURNS)
                await warm_commands(
                    *(table, python, ours, theirs, agent.name),
                    QUICK_COMMAND_REPETITIONS if quick else COMMAND_REPETITIONS,
                )
            finally:
                await leave((ours, theirs, plain))
    return table


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.warm", description="Measure the benefit of a warm broker."
    )
    parser.add_argument("--quick", action="store_true", help="fewer measurements")
    parser.add_argument("--agent", choices=AGENTS, default=GEMINI.name, help="default %(default)s")
    parser.add_argument(
        "--document", type=Path, metavar="FILE", help="write the result between the marks in FILE"
    )
    options = parser.parse_args(argv)
    missing = [
        name for name in ("node", "acpx", options.agent) if not install.pins()[name].folder.is_dir()
    ]
    if missing:
        names = ", ".join(missing)
        sys.stdout.write(f"brokers not measured: {names} not installed; run `make test-peers`\n")
        return 0
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    table = asyncio.run(measure(options))
    text = f"{about}; ratios (lowest..highest)\n{table.text}"
    if table.missed:
        text += f"\nmissed: {'; '.join(table.missed)}\n"
    sys.stdout.write(text)
    if options.document is not None:
        document = options.document.read_text()
        options.document.write_text(report.documented(document, text, begin=BEGIN, end=END))
    return 0


if __name__ == "__main__":
    sys.exit(main())
