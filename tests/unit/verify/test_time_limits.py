from __future__ import annotations

from dragoman.verify.time_limits import LadderLimits


def test_a_client_is_held_to_the_same_limits() -> None:
    limits = LadderLimits(handshake=1, session=2, answer=3, first_event=4, silence=5, turn=6)
    budgets = limits.budgets()
    told = (budgets.initialize, budgets.session, budgets.request)
    assert told == (1, 2, 3)
    assert (budgets.first_event, budgets.silence, budgets.total) == (4, 5, 6)
    assert budgets.tool_silence == 5


def test_a_peer_that_is_known_to_be_slow_gets_a_longer_handshake_and_never_a_shorter_one() -> None:
    assert LadderLimits(handshake=30).budgets(90).initialize == 90
    assert LadderLimits(handshake=30).budgets(5).initialize == 30


def test_the_handshake_has_half_a_minute_by_default() -> None:
    assert LadderLimits().handshake == 30
