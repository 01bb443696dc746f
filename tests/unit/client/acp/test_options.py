"""What a client offers when nobody chose anything."""

from __future__ import annotations

from dragoman.client.acp import ClientOptions
from dragoman.client.permissions import Answer, Question


def test_what_is_not_chosen_permits_nothing_runs_nothing_and_asks_nobody() -> None:
    options = ClientOptions()
    assert options.permit(Question("s", "c", "t", "read", [], None)) is Answer.REJECT_ONCE
    assert (options.terminals, options.terminal_login) == (False, False)
    assert (options.elicit, options.visits, options.extension) == (None, False, None)
    assert options.unstable is False
