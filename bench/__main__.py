"""The command: run the programme, interleaved, and print the table.

Starts a separate client process for every measurement. In every repetition, all contestants take
turns, each time starting with another one. `programme` defines what is measured, and `lineup` lists
the contestants.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from bench import environment, report
from bench.lineup import Contestant, lineup
from bench.programme import IMPORTS, Entry, chosen

REPETITIONS = 7
QUICK_REPETITIONS = 3

CLIENT_TIMEOUT = 180.0
"""Timeout in seconds for one measurement. The longest takes a few seconds, so exceeding this means
that it hangs."""


def say(text: str) -> None:
    """Print progress on stderr; stdout is for the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def measure(
    entry: Entry, contestant: Contestant, size: int, seed: int, placement: str
) -> dict[str, float]:
    """Run one measurement in a separate process."""
    if entry.work == IMPORTS:
        python = contestant.client[0]
        command = [python, "-m", "bench.imports", str(size), placement, contestant.imports]
    else:
        command = [*contestant.client, entry.work, str(size), placement, *contestant.agent]
    try:
        done = subprocess.run(
            command,
            cwd=environment.ROOT,
            env=environment.variables(seed),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        # The agent exits by itself: the death of the client closes its input.
        raise SystemExit(f"{contestant.name} hung at {entry.id}") from None
    if done.returncode:
        raise SystemExit(f"{contestant.name} failed at {entry.id}:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def taking_part(everybody: Sequence[Contestant], names: Sequence[str]) -> list[Contestant]:
    """The named contestants, or the default ones."""
    known = [one.name for one in everybody]
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(
            f"unknown contestant: {', '.join(unknown)}; choose from {', '.join(known)}"
        )
    return [one for one in everybody if (one.name in names if names else one.usual)]


def rotated(contestants: Sequence[Contestant], by: int) -> list[Contestant]:
    by %= len(contestants)
    return [*contestants[by:], *contestants[:by]]


def machine() -> dict[str, object]:
    """Facts about the machine that readers of the figures need."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": model,
        "processors": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "sdk": environment.SDK,
        "msgspec": metadata.version("msgspec"),
    }


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Compare dragoman with a bare loop and the SDKs."
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller measurements")
    parser.add_argument("--only", default="", metavar="W1,W4", help="run only these workloads")
    parser.add_argument("--contestants", default="", metavar="NAME,NAME", help="run only these")
    parser.add_argument("--repetitions", type=int, help=f"default {REPETITIONS}")
    parser.add_argument(
        "--free", action="store_true", help="let the scheduler choose the processors"
    )
    parser.add_argument(
        "--document", type=Path, metavar="FILE", help="write the result between the marks in FILE"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    if sys.platform != "linux":
        raise SystemExit("the benchmarks read /proc and CPU clocks, so they run only on Linux")
    try:
        entries = chosen(filter(None, options.only.split(",")))
    except ValueError as error:
        raise SystemExit(str(error)) from None
    python = environment.ready(say)
    contestants = taking_part(lineup(python), list(filter(None, options.contestants.split(","))))
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    about = machine()

    sizes = {one.id: one.quick_size if options.quick else one.size for one in entries}
    runs: dict[str, dict[str, list[dict[str, float]]]] = {}
    for entry in entries:
        size = sizes[entry.id]
        placement = "free" if options.free else entry.placement
        by_name = runs.setdefault(entry.id, {one.name: [] for one in contestants})
        # Repetition 0 is a warm-up: it writes compiled files and fills the system caches.
        for repetition in range(repetitions + 1):
            for contestant in rotated(contestants, repetition):
                if (
                    not contestant.does(entry.id)
                    or entry.only
                    and contestant.name not in entry.only
                ):
                    continue
                figures = measure(entry, contestant, size, repetition, placement)
                if repetition:
                    by_name[contestant.name].append(figures)
            say(f"{entry.id}: {repetition} of {repetitions}")

    if options.json is not None:
        result = {"machine": about, "repetitions": repetitions, "sizes": sizes}
        options.json.write_text(json.dumps({**result, "runs": runs}, indent=1) + "\n")
    text = ", ".join(f"{name} {value}" for name, value in about.items())
    text += f"; medians of {repetitions} repetitions, ratios (lowest..highest)\n"
    for subject in [one for one in contestants if one.subject] or contestants[:1]:
        text += "\n" + report.table(runs, sizes, subject, contestants)
    sys.stdout.write(text)
    if options.document is not None:
        options.document.write_text(report.documented(options.document.read_text(), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
