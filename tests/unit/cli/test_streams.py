"""The streams of a process that was started without some of them, or with a poor encoding."""

from __future__ import annotations

import subprocess
import sys

import pytest

REPORT = """
import os, sys
for number in {closed}:
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)
from dragoman.cli.streams import prepare
prepare()
print(sys.stdin.read())
print("h\u00e4llo")
print("told", file=sys.stderr)
assert os.pipe()[0] > 2
"""


@pytest.mark.parametrize(
    ("closed", "out", "err"),
    [
        ((), "\nh\\xe4llo\n", "told\n"),
        ((0,), "\nh\\xe4llo\n", "told\n"),
        ((1,), "", "told\n"),
        ((2,), "\nh\\xe4llo\n", ""),
        ((0, 1, 2), "", ""),
    ],
)
def test_a_closed_stream_leads_nowhere_and_every_character_can_be_written(
    closed: tuple[int, ...], out: str, err: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(closed=closed)],
        input="",
        capture_output=True,
        text=True,
        timeout=30,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)
