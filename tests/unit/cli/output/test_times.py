"""Instants and ages in words."""

from __future__ import annotations

import pytest

from dragoman.cli.output.times import ago, iso, seconds_of, span
from dragoman.errors import UsageError


def test_an_instant_is_reported_by_its_age_in_the_largest_unit() -> None:
    now = 1_000_000.0
    assert ago(now - 5, now) == "5 s ago"
    assert ago(now - 61, now) == "1 min ago"
    assert ago(now - 7300, now) == "2 h ago"
    assert ago(now - 200_000, now) == "2 d ago"
    assert ago(None, now) == ""
    assert span(59.9) == "59 s"


def test_an_instant_in_the_future_is_now() -> None:
    assert ago(200.0, 100.0) == "0 s ago"


def test_programs_get_iso_in_utc_and_nothing_for_what_is_not_an_instant() -> None:
    assert iso(0.5) == "1970-01-01T00:00:00.500+00:00"
    assert iso(None) is None
    assert iso(1e300) is None


@pytest.mark.parametrize(
    ("age", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2 D", 172_800), ("7", 7)]
)
def test_an_age_is_read_with_its_unit(age: str, seconds: float) -> None:
    assert seconds_of(age, option="--older-than") == seconds


def test_what_is_not_an_age_is_refused_by_the_name_of_its_option() -> None:
    with pytest.raises(UsageError, match="--ttl takes a time"):
        seconds_of("soon", option="--ttl")
