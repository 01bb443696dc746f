"""Callbacks of a delegation: what surfaces show while it runs."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.routing import Candidate, Decision
from dragoman.events.model import Event


class DelegationListener:
    """Callbacks of a delegation. They do nothing by default; a subclass overrides those it
    needs."""

    def job(self, job: str) -> None:
        """Called when the job id of the delegation is known."""

    def decided(self, decision: Decision) -> None:
        """Called when the routing decision is made."""

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        """Called before an attempt starts."""

    def event(self, event: Event) -> None:
        """Called with every event of an attempt."""

    def reported(self, number: int, report: AttemptReport) -> None:
        """Called when an attempt has ended."""

    def notice(self, text: str) -> None:
        """Called with a message for the user."""


class EventListener(DelegationListener):
    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event

    def event(self, event: Event) -> None:
        self._on_event(event)
