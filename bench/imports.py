"""Measure an import: the time of a new interpreter that does it, minus one that does nothing.

Run as `python -m bench.imports COUNT PLACEMENT STATEMENT`, in a separate process like every
measurement. Prints one line of JSON. `bench.works` measures a library after the import.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

from bench.measure import place

BARE = "pass"


def run(statement: str) -> tuple[float, float]:
    """Wall and CPU seconds of one interpreter, from its start until it is reaped."""
    at = time.perf_counter()
    argv = [sys.executable, "-c", statement]
    pid = os.posix_spawn(sys.executable, argv, dict(os.environ))
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - at
    if status:
        raise SystemExit(f"python -c {statement!r} failed")
    return wall, usage.ru_utime + usage.ru_stime


def main() -> None:
    count, placement, statement = sys.argv[1:]
    place(placement)
    run(statement)  # The first run may have to write compiled files.
    bare: list[tuple[float, float]] = []
    loaded: list[tuple[float, float]] = []
    for _ in range(int(count)):
        bare.append(run(BARE))
        loaded.append(run(statement))
    (wall, cpu), (bare_wall, bare_cpu) = (
        [statistics.median(column) for column in zip(*runs, strict=True)] for runs in (loaded, bare)
    )
    sys.stdout.write(json.dumps({"wall": wall - bare_wall, "cpu": cpu - bare_cpu}) + "\n")


if __name__ == "__main__":
    main()
