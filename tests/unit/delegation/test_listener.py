"""Callbacks of a delegation."""

from __future__ import annotations

import pytest

from dragoman.delegation.listener import DelegationListener, FunctionListener
from dragoman.events.model import Event, Noticed, Source


def event() -> Noticed:
    return Noticed(Source("acp", "1"), 1, None, None, "x", None, False, severity="info", title="x")


@pytest.mark.parametrize("heard", [DelegationListener(), FunctionListener()])
def test_a_listener_logs_notices_and_ignores_what_else_it_does_not_override(
    heard: DelegationListener, caplog: pytest.LogCaptureFixture
) -> None:
    heard.job("j-1")
    heard.event(event())
    heard.notice("the ledger was damaged")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("WARNING", "the ledger was damaged")
    ]


def test_a_function_listener_passes_events_and_notices_to_its_functions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Event] = []
    told: list[str] = []
    heard = FunctionListener(on_event=seen.append, on_notice=told.append)
    heard.event(event())
    heard.notice("the ledger was damaged")
    assert (seen, told, caplog.records) == ([event()], ["the ledger was damaged"], [])
