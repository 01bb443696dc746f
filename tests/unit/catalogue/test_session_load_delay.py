"""How long a new session must not be loaded."""

from __future__ import annotations

from dragoman.catalogue.session_load_delay import remaining


def test_the_rest_of_the_minute_is_counted_by_the_clock_and_not_from_the_beginning() -> None:
    assert remaining(120.0, 130.0) == 50.5
    assert remaining(179.0, 179.5) == 1.0
    assert remaining(120.0, 181.0) == 0.0


def test_a_session_that_began_at_the_very_end_of_a_minute_may_be_of_the_next_for_its_peer() -> None:
    assert remaining(179.8, 180.0) == 60.5


def test_a_clock_that_was_set_back_makes_nobody_wait() -> None:
    assert remaining(200.0, 190.0) == 0.0
