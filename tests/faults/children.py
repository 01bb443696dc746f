"""Small programs in their own processes, to be killed or to run on a full disk.

Starts and ends them and reads what they print: one line of JSON at a time. The test that runs a
program defines what it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHILD_TIMEOUT = 50.0
"""Seconds for a small Python program on a busy machine."""


@contextlib.contextmanager
def child(
    program: str, *words: str | Path, inside: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:  # noqa: TID251 - the process that is to be killed
    """A running program with these arguments, started through the command prefix `inside`."""
    process = subprocess.Popen(  # noqa: TID251 - the process that is to be killed
        [*inside, sys.executable, "-c", program, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        with process:
            yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:  # noqa: TID251
    """Return the next line that the program printed."""
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline())
    return told


def last_words(process: subprocess.Popen[str], before: dict[str, Any]) -> dict[str, Any]:  # noqa: TID251
    """Return the last line that a killed program printed, or `before` if it printed none."""
    assert process.stdout is not None
    for rest in process.stdout.read().splitlines(keepends=True):
        if rest.endswith("\n"):
            before = json.loads(rest)
    return before


def go(processes: list[subprocess.Popen[str]]) -> None:  # noqa: TID251
    """Release all processes that wait for a line, at once."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def run(program: str, *words: str | Path, inside: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the last line of a program that ends by itself."""
    with child(program, *words, inside=inside) as process:
        out, _ = process.communicate(timeout=CHILD_TIMEOUT)
        assert process.returncode == 0
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def private_mounts() -> tuple[str, ...]:
    """Return a command prefix that runs a command in its own mount namespace; skip the test if that
    is not possible."""
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("mount") is None:
        pytest.skip("there is no way to mount anything here")
    command = (unshare, "--mount")
    tried = subprocess.run(
        [*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip("this user may not mount anything")
    return command


def small_disk(folder: Path, *, size: str, used: str) -> tuple[str, ...]:
    """Return a command prefix under which a directory is a small disk with a file ``x`` on it that
    can be deleted to free space; skip the test if that is not possible."""
    script = (
        f'mount -t tmpfs -o size={size} tmpfs "$0" && head -c {used} /dev/zero > "$0/x" '
        '&& exec "$@"'
    )
    return (*private_mounts(), "sh", "-c", script, str(folder))
