"""A sampling profiler: one workload of one contestant, sampled in both of its processes.

The sampler uses the CPU clock. It runs inside the processes and costs almost nothing between
samples. The command prints the result:

    python -m bench.profile W2.sequential dragoman_acp 20000

Each line is a function, with the share of samples in the function itself (including C functions and
system calls that it calls) and with everything that it called. Use `bench` for the times; this only
shows where they are spent.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

INTERVAL = 0.001
"""CPU seconds between samples; the kernel rounds it up to its own tick."""

SHOWN = 30
FOLDER = "BENCH_PROFILE"
"""The environment variable with the directory in which each process writes its samples."""

_START = "from bench.profile import start; start(); "

Place = tuple[str, str]


def start() -> None:
    """Sample this process until it exits. Called by the commands that `sampled` returns."""
    alone: Counter[Place] = Counter()
    with_called: Counter[Place] = Counter()

    def sample(number: int, frame: FrameType | None) -> None:
        seen: set[Place] = set()
        while frame is not None:
            code = frame.f_code
            place = code.co_qualname, "/".join(Path(code.co_filename).parts[-2:])
            if not seen:
                alone[place] += 1
            seen.add(place)
            frame = frame.f_back
        with_called.update(seen)

    def stop() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        total = max(1, alone.total())
        lines = [
            f"{count / total:6.1%} alone {with_called[place] / total:6.1%} with all it calls  "
            f"{place[0]}  {place[1]}"
            for place, count in alone.most_common(SHOWN)
        ]
        text = f"{total} samples in: {' '.join(sys.argv[:4])}\n" + "\n".join(lines) + "\n"
        Path(os.environ[FOLDER], str(os.getpid())).write_text(text)

    signal.signal(signal.SIGPROF, sample)
    atexit.register(stop)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)


def sampled(command: Sequence[str]) -> list[str]:
    """The command of a Python process, with the sampler started first."""
    python, how, what, *rest = command
    if how == "-m":
        what = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    return [python, "-c", _START + what, *rest]


def main(arguments: Sequence[str]) -> int:
    # Not at the top, because the sampled processes import this module too.
    from bench import environment
    from bench.lineup import lineup
    from bench.programme import chosen

    if len(arguments) not in (2, 3):
        raise SystemExit("usage: python -m bench.profile WORK CONTESTANT [SIZE]")
    (entry,) = chosen([arguments[0]])
    python = environment.ready(sys.stderr.write)  # type: ignore[arg-type]
    (contestant,) = (one for one in lineup(python) if one.name == arguments[1])
    size = arguments[2] if len(arguments) == 3 else str(entry.size)
    command = [*sampled(contestant.client), entry.work, size, entry.placement]
    command += sampled(contestant.agent)
    with tempfile.TemporaryDirectory() as folder:
        variables = {**environment.variables(1), FOLDER: folder}
        subprocess.run(command, cwd=environment.ROOT, env=variables, check=True)
        for seen in sorted(Path(folder).iterdir()):
            sys.stdout.write("\n" + seen.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
