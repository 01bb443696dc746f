"""What the end of a turn says about a peer, and what the breaker makes of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dragoman.delegation.health import (
    LOGIN_PARK,
    LONGEST_BACKOFF,
    LONGEST_PARK,
    QUOTA_PARK,
    Breaker,
    Reading,
    Sign,
    backoff,
    greeted,
    read,
)
from dragoman.events.parts import Failure, Limit
from dragoman.events.words import ErrorKind, Outcome
from dragoman.store.values import Health, Park

NOW = 1_800_000_000.0
WELL = Reading(sign=Sign.WELL)
FAULT = Reading(sign=Sign.FAULT, why="it crashed")
BREAKER = Breaker(threshold=2, cool_down=10.0, longest=60.0, trial=100.0)


def limited(
    message: str = "", data: Any = None, kind: ErrorKind = ErrorKind.RATE_LIMITED
) -> Reading:
    return read(Outcome.QUOTA, Failure(message, kind, data=data), now=NOW)


# -- reading


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_says_something(outcome: Outcome) -> None:
    assert isinstance(read(outcome, now=NOW).sign, Sign)


@pytest.mark.parametrize(
    ("outcome", "sign"),
    [
        (Outcome.OK, Sign.WELL),
        (Outcome.CANCELLED, Sign.NOTHING),
        (Outcome.DENIED, Sign.NOTHING),
        (Outcome.REFUSED, Sign.NOTHING),
        (Outcome.CRASHED, Sign.FAULT),
        (Outcome.TIMED_OUT, Sign.FAULT),
        (Outcome.EMPTY, Sign.FAULT),
        (Outcome.UNKNOWN, Sign.FAULT),
    ],
)
def test_only_what_the_peer_has_to_answer_for_is_its_fault(outcome: Outcome, sign: Sign) -> None:
    found = read(outcome, now=NOW)
    assert found.sign is sign
    assert found.park_until is None


def test_a_wish_for_a_login_parks_the_peer_with_the_command() -> None:
    found = read(Outcome.AUTH_REQUIRED, now=NOW, login="codex login")
    assert found.sign is Sign.LOGIN
    assert found.park_until == NOW + LOGIN_PARK
    assert "`codex login`" in found.why


def test_a_passing_limit_does_not_park_a_peer() -> None:
    assert limited("429 Too Many Requests") == Reading(
        sign=Sign.PASSING, why="429 Too Many Requests"
    )
    assert limited("please try again in 20s").retry_after == 20.0
    overloaded = Failure("busy", ErrorKind.OVERLOADED)
    assert read(Outcome.FAILED, overloaded, now=NOW).sign is Sign.PASSING


@pytest.mark.parametrize(
    ("message", "data", "after"),
    [
        ("Try again in 3 hours 20 minutes.", None, 12_000),
        ("You've hit your usage limit. Try again in 2 days 1 hour.", None, 176_400),
        ("limit reached, resets in 1h30m", None, 5400),
        ("", {"resets_at": NOW + 700}, 700),
        ("", {"resetsAt": (NOW + 700) * 1000}, 700),
        ("", {"reset": "2027-01-15T09:00:00Z"}, 3600),
        ("", {"error": {"details": [{"@type": "x"}, {"retryDelay": "120.5s"}]}}, 120.5),
        ("", {"resets_in_seconds": 90}, 90),
        ("", {"retry_after": "1800"}, 1800),
    ],
)
def test_a_quota_parks_the_peer_until_it_resets(message: str, data: Any, after: float) -> None:
    found = limited(message, data, ErrorKind.QUOTA)
    assert found.sign is Sign.QUOTA
    assert found.park_until == pytest.approx(NOW + after)


def test_a_quota_that_does_not_say_when_it_resets_parks_for_a_while_and_says_so() -> None:
    found = limited("quota", kind=ErrorKind.QUOTA)
    assert found.park_until == NOW + QUOTA_PARK
    assert "reset is unknown" in found.why
    assert read(Outcome.QUOTA, now=NOW).park_until == NOW + QUOTA_PARK


@pytest.mark.parametrize(
    "message",
    [
        "You exceeded your current quota, please check your plan and billing details",
        "insufficient_quota",
        "Quota exceeded for GenerateRequestsPerDayPerProjectPerModel",
        "Your credit balance is too low",
    ],
)
def test_a_rate_limit_that_does_not_pass_by_waiting_is_a_quota(message: str) -> None:
    assert limited(message).sign is Sign.QUOTA


def test_a_long_wait_is_a_quota_and_a_short_one_is_not() -> None:
    assert limited("", {"retry_after": 3600}).park_until == NOW + 3600
    assert limited("", {"retry_after": 30}).park_until is None


def test_limits_that_were_reached_say_when_the_last_of_them_resets() -> None:
    limits = (
        Limit("five hours", 100.0, 300, NOW + 600, reached=True),
        Limit("week", 100.0, 10_080, NOW + 9000, reached=True),
        Limit("month", 50.0, None, NOW + 90_000),
    )
    failure = Failure("x", ErrorKind.QUOTA)
    assert read(Outcome.QUOTA, failure, now=NOW, limits=limits).park_until == NOW + 9000


@pytest.mark.parametrize(
    "data",
    [
        {"resets_at": NOW - 5},
        {"resets_at": float("nan")},
        {"resets_at": float("inf")},
        {"resets_at": True},
        {"reset": "tomorrow"},
        {"reset": "2027-01-15T09:00:00"},
        {"resets_at": 10**400},
        {"retry_after": 10**400},
        {"retry_after": "soon"},
        {"retry_after": "²"},
        [[[[[[[[{"resets_at": NOW + 5}]]]]]]]],
    ],
)
def test_a_reset_that_makes_no_sense_is_not_believed(data: Any) -> None:
    assert limited("", data, ErrorKind.QUOTA).park_until == NOW + QUOTA_PARK


def test_no_number_parks_a_peer_for_good() -> None:
    assert limited("", {"retry_after": 1e12}, ErrorKind.QUOTA).park_until == NOW + LONGEST_PARK


# -- trying again


def test_the_pause_grows_is_drawn_and_is_bounded() -> None:
    rng = random.Random(1)
    first = [backoff(1, rng) for _ in range(50)]
    fourth = [backoff(4, rng) for _ in range(50)]
    assert len(set(first)) == 50
    assert max(first) <= 1.0 and min(first) >= 0.5
    assert min(fourth) >= 4.0
    assert max(backoff(1000, rng) for _ in range(50)) <= LONGEST_BACKOFF


def test_the_pause_is_never_shorter_than_the_peer_asks_for() -> None:
    rng = random.Random(2)
    assert all(20.0 < backoff(1, rng, retry_after=20.0) <= 20.5 for _ in range(50))


def test_the_same_source_gives_the_same_pause() -> None:
    assert backoff(3, random.Random(7)) == backoff(3, random.Random(7))


# -- the breaker


def failed(times: int, at: float = NOW) -> Health:
    health = Health(peer="codex")
    for _ in range(times):
        health = BREAKER.ended(health, FAULT, at)
    return health


def test_the_breaker_opens_after_some_failures_in_a_row() -> None:
    assert BREAKER.state(failed(1), NOW) == "closed"
    assert BREAKER.state(failed(2), NOW) == "open"
    between = BREAKER.ended(BREAKER.ended(failed(1), WELL, NOW), FAULT, NOW)
    assert BREAKER.state(between, NOW) == "closed"


def test_after_the_cool_down_one_may_try_and_others_wait_for_it() -> None:
    health = failed(2)
    assert BREAKER.state(health, NOW + 9.9) == "open"
    assert BREAKER.state(health, NOW + 10) == "half_open"
    tried = BREAKER.begun(health, NOW + 10)
    assert BREAKER.state(tried, NOW + 11) == "open"
    # Whoever tried it is dead.
    assert BREAKER.state(tried, NOW + 110) == "half_open"


def test_a_trial_that_succeeds_closes_it_and_one_that_fails_doubles_the_wait() -> None:
    tried = BREAKER.begun(failed(2), NOW + 10)
    assert BREAKER.state(BREAKER.ended(tried, WELL, NOW + 11), NOW + 11) == "closed"
    again = BREAKER.ended(tried, FAULT, NOW + 11)
    assert BREAKER.state(again, NOW + 30) == "open"
    assert BREAKER.state(again, NOW + 31) == "half_open"


def test_the_wait_is_bounded_however_often_it_failed() -> None:
    assert BREAKER.opens_again_at(failed(500)) == NOW + 60


def test_a_trial_that_says_nothing_lets_the_next_one_try() -> None:
    tried = BREAKER.begun(failed(2), NOW + 10)
    after = BREAKER.ended(tried, Reading(sign=Sign.NOTHING), NOW + 11)
    assert BREAKER.state(after, NOW + 11) == "half_open"


def test_a_turn_of_a_closed_breaker_is_not_a_trial() -> None:
    health = Health(peer="codex")
    assert BREAKER.begun(health, NOW) is health


def test_a_login_parks_where_it_is_missing_and_success_ends_it_there() -> None:
    reading = read(Outcome.AUTH_REQUIRED, now=NOW, login="codex login")
    until = reading.park_until
    assert until is not None
    parked = BREAKER.ended(Health(peer="codex"), reading, NOW, "bare")
    assert parked.parking(NOW, "bare") == Park(until, reading.why)
    assert parked.parking(NOW, "keyed") is None and parked.parking(until, "bare") is None
    both = BREAKER.ended(parked, reading, NOW, "other")
    well = BREAKER.ended(both, WELL, NOW, "bare")
    assert well.parking(NOW, "bare") is None and well.parking(NOW, "other") is not None
    later = BREAKER.ended(both, read(Outcome.AUTH_REQUIRED, now=until), until, "late")
    assert set(later.logins) == {"late"}, "what has passed is forgotten"


def test_quota_parks_everywhere_and_success_ends_it() -> None:
    reading = read(Outcome.QUOTA, now=NOW)
    parked = BREAKER.ended(Health(peer="codex"), reading, NOW)
    assert parked.parking(NOW, "anywhere") and parked.parked_why == reading.why
    assert BREAKER.state(parked, NOW) == "closed"
    assert parked.failures == 0
    assert BREAKER.ended(parked, WELL, NOW).parking(NOW) is None


def test_handshakes_are_smoothed() -> None:
    first = greeted(Health(peer="codex"), 1.0)
    assert first.handshake_seconds == 1.0
    assert greeted(first, 6.0).handshake_seconds == 2.0
