"""What a client offers when nobody chose anything."""

from __future__ import annotations

from dragoman.client.acp import ClientOptions
from dragoman.client.permissions import Answer, Question


def test_the_defaults_permit_nothing_run_nothing_and_ask_nothing() -> None:
    options = ClientOptions()
    assert options.permit(Question("s", "c", "t", "read", [], None)) is Answer.REJECT_ONCE
    assert (options.terminals, options.terminal_login) == (False, False)
    assert (options.elicit, options.visits, options.extension) == (None, False, None)
    assert options.unstable is False
