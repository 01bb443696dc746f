"""``python -m dragoman.testing.storyteller --dialect NAME STORY``: tell a story on stdio.

STORY is the JSON that `dumps` writes, or a file that contains it. The program ends when its input
ends, and always after `LIFE_LIMIT` seconds.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.testing.storyteller import TELLERS, loads, tell

LIFE_LIMIT = 120
"""Seconds after which a teller always ends, in case a test loses it."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dragoman.testing.storyteller",
        description="An agent that tells one story at every prompt.",
    )
    parser.add_argument("--dialect", choices=TELLERS, required=True)
    parser.add_argument("story", help="a story as JSON, or a file that contains one")
    given = parser.parse_args(argv)
    text = given.story
    if not text.lstrip().startswith("{"):
        text = Path(text).read_text(encoding="utf-8")
    if hasattr(signal, "alarm"):
        signal.alarm(LIFE_LIMIT)
    tell(loads(text), given.dialect, sys.stdin.buffer, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
