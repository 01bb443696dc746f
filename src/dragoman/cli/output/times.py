"""Format instants and durations, and parse ages such as ``30d``.

"3 min ago" for people, ISO 8601 in UTC for programs. Reads no clock: the current time is an
argument.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from dragoman.errors import UsageError

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""The units of an age, in seconds."""

_AGE: Final = r"(\d+(?:\.\d+)?)\s*([smhdw]?)"


def ago(at: float | None, now: float) -> str:
    """Format how long ago something was; empty if the time is None.

    A time in the future, after a clock change, counts as now.
    """
    if at is None:
        return ""
    return f"{span(max(now - at, 0.0))} ago"


def span(seconds: float) -> str:
    """Format a duration in one unit, for people."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def iso(at: float | None) -> str | None:
    """Format an instant as ISO 8601 in UTC. Returns None for None or a number out of range."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        # An imported file may contain any number.
        return None


def parse_age(age: str) -> float:
    """Return seconds from ``90s``, ``30m``, ``12h``, ``30d``, ``2w``, or plain seconds. Raises
    `ValueError` for any other text."""
    found = re.fullmatch(_AGE, age.strip().lower())
    if found is None:
        raise ValueError(age)
    number, unit = found.groups()
    return float(number) * UNITS[unit or "s"]


def seconds_of(age: str, *, option: str) -> float:
    """Return the seconds of a duration given as the value of `option`. Raises `UsageError` if it is
    invalid."""
    try:
        return parse_age(age)
    except ValueError:
        raise UsageError(
            f"{option} takes a time such as 90s, 30m, 12h, 30d or 2w, not {age!r}"
        ) from None
