"""Time commands from start to end: `dragoman` compared with `acpx`.

Run as `python -m bench.cli`, after `scripts/peers/install.py` has installed acpx and the pinned
node. There are two comparisons: the help text, and one prompt to the same agent in a child process.
Every measurement is a separate process, the two commands alternate, and each ratio is computed
within one repetition. The rest of `bench` measures the layers below.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench import environment
from bench.__main__ import say
from scripts.peers import install

REPETITIONS = 15
QUICK_REPETITIONS = 5

PARROT = environment.ROOT / "examples" / "parrot.py"
PROMPT = "hello"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One thing that both commands can do."""

    name: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    says: str
    """Text that both must print, so that neither is fast by doing nothing."""


def comparisons(python: str) -> list[Comparison]:
    agent = (python, str(PARROT))
    ours = (python, "-m", "dragoman")
    theirs = tuple(install.program("acpx"))
    return [
        Comparison("help", (*ours, "--help"), (*theirs, "--help"), "Usage: "),
        Comparison(
            "one prompt to an echo agent",
            # The agent finds dragoman through this variable; acpx passes on all variables.
            (*ours, "run", PROMPT, "--env", "PYTHONPATH", "--", *agent),
            (*theirs, "--agent", shlex.join(agent), "exec", PROMPT),
            PROMPT,
        ),
    ]


def timed(command: Sequence[str], says: str, seed: int, home: Path) -> tuple[float, float]:
    """Wall and CPU seconds of one process and of the descendants that it waited for."""
    env = environment.variables(seed)
    env |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        at = time.perf_counter()
        pid = os.posix_spawn(
            command[0],
            list(command),
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, err.fileno(), 2),
            ],
        )
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - at
        told, trouble = (_text(file) for file in (out, err))
    if status or says not in told:
        code = os.waitstatus_to_exitcode(status)
        raise SystemExit(f"{shlex.join(command)} failed with {code}:\n{told}{trouble}")
    return wall, usage.ru_utime + usage.ru_stime


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def compare(one: Comparison, repetitions: int) -> str:
    """Lines of the table for one comparison."""
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        # Repetition 0 is a warm-up: it writes compiled files and fills the system caches.
        for repetition in range(repetitions + 1):
            turns = [(ours, one.ours), (theirs, one.theirs)]
            for figures, command in turns if repetition % 2 else reversed(turns):
                figures_of_this = timed(command, one.says, repetition, home)
                if repetition:
                    figures.append(figures_of_this)
    lines = []
    for at, figure in enumerate(("wall", "CPU")):
        mine, others = ([each[at] for each in runs] for runs in (ours, theirs))
        ratios = [other / my for my, other in zip(mine, others, strict=True)]
        lines.append(
            f"{one.name:<28} {figure:<5} {statistics.median(mine) * 1000:8.0f} ms"
            f" {statistics.median(others) * 1000:8.0f} ms"
            f" {statistics.median(ratios):6.2f}x ({min(ratios):.2f}..{max(ratios):.2f})"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cli", description="Compare dragoman with acpx, command by command."
    )
    parser.add_argument("--quick", action="store_true", help="fewer measurements")
    options = parser.parse_args(argv)
    pin = install.pins()["acpx"]
    if not pin.folder.is_dir():
        sys.stdout.write("not compared with acpx: it is not installed; run `make test-peers`\n")
        return 0
    python = environment.ready(say)
    repetitions = QUICK_REPETITIONS if options.quick else REPETITIONS
    node = install.pins()["node"].version
    sys.stdout.write(
        f"dragoman against acpx {pin.version} on node {node}; medians of {repetitions}\n"
        f"{'':<34} {'dragoman':>11} {'acpx':>11} faster by\n"
    )
    for one in comparisons(python):
        sys.stdout.write(compare(one, repetitions) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
