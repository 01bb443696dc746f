"""Health of a peer: circuit breaker, backoff, and parking after a quota or login failure.

Pure: time and randomness are arguments. `read` turns the end of a turn into a `Reading`, which says
until when to park the peer. `store.ledger` stores the result and `routing` reads it.
"""

from __future__ import annotations

import enum
import math
import random
import re
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, structs

from dragoman.events.parts import Failure, Limit
from dragoman.events.words import ErrorKind, Outcome
from dragoman.store.values import Health, Park

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]

LOGIN_PARK: Final = 900.0
"""Seconds for which a peer that needs a login is parked. We are not notified of a login, and the
user should not have to wait long after one; a successful turn ends the parking at once."""

QUOTA_PARK: Final = 3600.0
"""Seconds for which a peer without quota is parked if it does not say when the quota resets."""

LONGEST_PARK: Final = 31 * 86_400.0
"""Maximum parking time in seconds. Quotas reset monthly at the latest, and a misread number must
not park a peer for good."""

PASSING: Final = 60.0
"""Longest time, in seconds, to wait until a limit is lifted; a longer one parks the peer."""

FIRST_BACKOFF: Final = 1.0
LONGEST_BACKOFF: Final = 30.0
"""The random pause before the first retry is at most `FIRST_BACKOFF` seconds. Each further retry
doubles this bound, up to `LONGEST_BACKOFF`, which is short enough for a user who waits."""


class Sign(enum.StrEnum):
    """What the end of a turn indicates about its peer."""

    WELL = "well"
    NOTHING = "nothing"
    """It says more about the task or the user than about the peer."""
    PASSING = "passing"
    """A temporary limit: the same peer may be tried again after a pause."""
    QUOTA = "quota"
    LOGIN = "login"
    FAULT = "fault"
    """The peer crashed, hung, or violated its protocol."""


class Reading(Struct, frozen=True, kw_only=True):
    """What the end of a turn means for its peer: a sign, and until when to park the peer or how
    long to wait."""

    sign: Sign
    why: str = ""
    park_until: float | None = None
    retry_after: float | None = None
    """Seconds until a temporary limit is lifted; None if the peer does not say."""


_SIGNS: Final[dict[Outcome, Sign]] = {
    Outcome.OK: Sign.WELL,
    Outcome.EMPTY: Sign.FAULT,
    Outcome.REFUSED: Sign.NOTHING,
    Outcome.TRUNCATED: Sign.NOTHING,
    Outcome.DENIED: Sign.NOTHING,
    Outcome.CANCELLED: Sign.NOTHING,
    Outcome.TIMED_OUT: Sign.FAULT,
    Outcome.CRASHED: Sign.FAULT,
    Outcome.AUTH_REQUIRED: Sign.LOGIN,
    Outcome.QUOTA: Sign.QUOTA,
    Outcome.FAILED: Sign.FAULT,
    Outcome.PROTOCOL_ERROR: Sign.FAULT,
    Outcome.UNSUPPORTED: Sign.NOTHING,
    Outcome.UNKNOWN: Sign.FAULT,
}

_HARD: Final = re.compile(
    r"insufficient_quota|exceeded your (current|monthly|daily) (quota|limit)|usage limit"
    r"|per[ _-]?(day|month)|daily (limit|quota)|monthly (limit|quota)|out of credits?"
    r"|credit balance|billing|limit_reached|quota_exhausted|exhausted your",
    re.IGNORECASE,
)
"""Matches messages about a limit that a short wait does not lift."""


def read(
    outcome: Outcome,
    failure: Failure | None = None,
    *,
    now: float,
    limits: tuple[Limit, ...] = (),
    login: str = "",
) -> Reading:
    """Interpret the end of a turn. `limits` are the account limits last reported, and `login`
    is the command that logs in to the peer."""
    sign = _SIGNS[outcome]
    kind = failure.kind if failure else None
    message = failure.message if failure else ""
    if kind is ErrorKind.OVERLOADED:
        sign = Sign.PASSING
    if sign is Sign.LOGIN:
        what = f"log in with `{login}`" if login else "log in to it"
        return Reading(sign=sign, why=f"it requires a login: {what}", park_until=now + LOGIN_PARK)
    if sign not in (Sign.QUOTA, Sign.PASSING):
        return Reading(sign=sign, why=message)
    reset = _reset_at(failure, limits, now)
    wait = None if reset is None else max(reset - now, 0.0)
    hard = sign is Sign.QUOTA and (
        kind is ErrorKind.QUOTA
        or bool(_HARD.search(message))
        or (failure is None or kind not in (ErrorKind.RATE_LIMITED, ErrorKind.OVERLOADED))
    )
    if not hard and (wait is None or wait <= PASSING):
        return Reading(sign=Sign.PASSING, why=message, retry_after=wait)
    until = now + QUOTA_PARK if reset is None else min(reset, now + LONGEST_PARK)
    said = "" if reset is not None else "; the time of its reset is unknown"
    return Reading(sign=Sign.QUOTA, why=f"its quota is used up{said}", park_until=until)


def backoff(tried: int, rng: random.Random, *, retry_after: float | None = None) -> float:
    """Return the seconds to wait before attempt number `tried` + 1; the first attempt has number 1.

    It has random jitter, so that clients that were refused together do not retry together, and is
    never shorter than the peer's own retry-after.
    """
    ceiling = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(max(tried - 1, 0), 16))
    drawn = rng.uniform(ceiling / 2, ceiling)
    return drawn if retry_after is None else retry_after + drawn / 2


class Breaker(Struct, frozen=True, kw_only=True):
    """Circuit breaker: opens after some failures in a row, and later allows one trial turn."""

    threshold: int = 3
    """Number of failures in a row that open it: one may be an accident, and two may have the same
    cause."""
    cool_down: float = 60.0
    """Seconds until the first trial; doubled after every failed trial, up to `longest`."""
    longest: float = 3600.0
    trial: float = 600.0
    """Seconds for which a trial blocks other turns. After that another trial may start, because the
    process that started this one may be dead."""

    def state(self, health: Health, now: float) -> BreakerState:
        """Return the state of the breaker. Closed: use the peer. Open: do not use it. Half open:
        one turn may try."""
        if health.opened_at is None:
            return "closed"
        if now < self.opens_again_at(health):
            return "open"
        tried = health.trial_at
        busy = tried is not None and tried >= health.opened_at and now < tried + self.trial
        return "open" if busy else "half_open"

    def opens_again_at(self, health: Health) -> float:
        """Return when an open breaker becomes half open; minus infinity for a closed one."""
        if health.opened_at is None:
            return -math.inf
        beyond = max(health.failures - self.threshold, 0)
        return health.opened_at + min(self.longest, self.cool_down * 2.0 ** min(beyond, 16))

    def begun(self, health: Health, now: float) -> Health:
        """Return the health, updated for the start of a turn.

        If the breaker is half open, this turn is the trial.
        """
        if self.state(health, now) == "half_open":
            return structs.replace(health, trial_at=now)
        return health

    def ended(self, health: Health, reading: Reading, now: float, surroundings: str = "") -> Health:
        """Return the health, updated for the end of a turn.

        `surroundings` identifies the credentials that are set (see `parked.surroundings_here`).
        """
        parked: dict[str, Any] = {}
        if reading.park_until is not None:
            parked = {"parked_until": reading.park_until, "parked_why": reading.why}
            if reading.sign is Sign.LOGIN:
                still = {name: park for name, park in health.logins.items() if now < park.until}
                park = Park(reading.park_until, reading.why)
                parked = {"logins": {**still, surroundings: park}}
        match reading.sign:
            case Sign.WELL:
                return structs.replace(health.recovered(surroundings), last_ok_at=now)
            case Sign.FAULT:
                failures = health.failures + 1
                opened_at = now if failures >= self.threshold else health.opened_at
                return structs.replace(
                    health,
                    failures=failures,
                    opened_at=opened_at,
                    last_failed_at=now,
                    last_error=reading.why or None,
                )
            case Sign.QUOTA | Sign.LOGIN:
                return structs.replace(
                    health,
                    trial_at=None,
                    last_failed_at=now,
                    last_error=reading.why or None,
                    **parked,
                )
            case Sign.PASSING | Sign.NOTHING:
                # A trial without a clear result leaves the decision to the next one.
                return structs.replace(health, trial_at=None)


BREAKER: Final = Breaker()
"""The circuit breaker of all peers."""


def greeted(health: Health, seconds: float) -> Health:
    """Return the health, with a handshake that took `seconds` added to the moving average."""
    before = health.handshake_seconds
    # Weighted by a fifth: one slow start on a busy machine does not make a slow peer.
    smoothed = seconds if before is None else before + (seconds - before) / 5
    return structs.replace(health, handshake_seconds=smoothed)


# -- when a limit resets

_INSTANTS: Final = ("resets_at", "resetsAt", "reset_at", "resetAt", "reset")
_PERIODS: Final = (
    *("retry_after", "retryAfter", "retry-after", "retryDelay", "retry_delay"),
    *("resets_in_seconds", "resetsInSeconds"),
)
_DEPTH: Final = 6
"""Maximum depth to which an error's data is searched: providers wrap errors in errors."""

_UNITS: Final = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PERIOD: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?"
    r"|s(?:ec(?:ond)?s?)?)(?![a-z])",
    re.IGNORECASE,
)
_SAID: Final = re.compile(
    r"(?:try again|retry|resets?|available again|wait)(?:ing)?\s*(?:in|after|for)?:?\s*"
    r"((?:(?:about|and|,)?\s*\d+(?:\.\d+)?\s*[a-z]+\s*)+)",
    re.IGNORECASE,
)

_THIS_CENTURY: Final = 4_102_444_800
"""The first second of the year 2100. A larger number is in milliseconds."""


def _reset_at(failure: Failure | None, limits: tuple[Limit, ...], now: float) -> float | None:
    """Return when the reached limits reset, or None if neither `limits` nor the failure says so."""
    told = [limit.resets_at for limit in limits if limit.reached and limit.resets_at is not None]
    future = [at for at in told if at > now]
    if future:
        # All exhausted limits have to reset before the peer is usable.
        return max(future)
    if failure is None:
        return None
    found = _search(failure.data, now, _DEPTH)
    if found is None:
        said = _SAID.search(failure.message)
        seconds = _seconds(said.group(1)) if said else None
        found = None if seconds is None else now + seconds
    return found if found is not None and math.isfinite(found) and found >= now else None


def _search(data: Any, now: float, depth: int) -> float | None:
    if depth == 0:
        return None
    if isinstance(data, dict):
        for name in _INSTANTS:
            if name in data and (at := _instant(data[name])) is not None:
                return at
        for name in _PERIODS:
            if name in data and (seconds := _seconds(data[name])) is not None:
                return now + seconds
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    for value in inner:
        if (at := _search(value, now, depth - 1)) is not None:
            return at
    return None


def _number(value: Any) -> float | None:
    """Return a number from JSON; None for anything else, and for an integer that is too large for a
    float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _instant(value: Any) -> float | None:
    if (number := _number(value)) is not None:
        return number / 1000 if number >= _THIS_CENTURY else number
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
            # Without a time zone the instant is ambiguous.
            return at.timestamp() if at.tzinfo is not None else None
        except (ValueError, OverflowError):
            return None
    return None


def _seconds(value: Any) -> float | None:
    """Parse a period: a number of seconds, or text such as "3h 20m" and "12.5s". Returns None if it
    is neither."""
    if (number := _number(value)) is not None:
        return number
    if not isinstance(value, str):
        return None
    if re.fullmatch(r"\s*[0-9]+(?:\.[0-9]*)?\s*", value):
        return float(value)
    total = 0.0
    found = False
    for number, unit in _PERIOD.findall(value):
        found = True
        short = "ms" if unit.lower().startswith(("ms", "milli")) else unit[0].lower()
        total += float(number) * _UNITS[short]
    return total if found else None
