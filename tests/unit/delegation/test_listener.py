"""Callbacks of a delegation."""

from __future__ import annotations

from dragoman.delegation.listener import DelegationListener, EventListener
from dragoman.events.model import Event, Noticed, Source


def event() -> Noticed:
    return Noticed(Source("acp", "1"), 1, None, None, "x", None, False, severity="info", title="x")


def test_a_listener_ignores_what_it_does_not_override() -> None:
    heard = DelegationListener()
    heard.job("j-1")
    heard.event(event())
    heard.notice("x")


def test_an_event_listener_passes_events_on_to_its_function() -> None:
    seen: list[Event] = []
    EventListener(seen.append).event(event())
    assert seen == [event()]
