"""Callbacks of a delegation: what surfaces show while it runs.

The surfaces have listeners of their own; `execution.delegate` uses `FunctionListener`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.routing import Candidate, Decision
from dragoman.events.model import Event

log: Final = logging.getLogger("dragoman.delegation")


class DelegationListener:
    """Callbacks of a delegation. By default `notice` logs its text and the others do nothing; a
    subclass overrides those it needs."""

    def job(self, job: str) -> None:
        """Called when the job id of the delegation is known."""

    def decided(self, decision: Decision) -> None:
        """Called when the routing decision is made."""

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        """Called before an attempt starts."""

    def event(self, event: Event) -> None:
        """Called with every event of an attempt."""

    def reported(self, number: int, report: AttemptReport) -> None:
        """Called with the report of an attempt that has ended."""

    def notice(self, text: str) -> None:
        """Called with a message for the user. Logs it by default, so that none is lost."""
        log.warning("%s", text)


class FunctionListener(DelegationListener):
    """Passes events and notices to functions. Without a function for notices, they are logged."""

    def __init__(
        self,
        *,
        on_event: Callable[[Event], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        self._on_event = on_event
        self._on_notice = on_notice

    def event(self, event: Event) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def notice(self, text: str) -> None:
        if self._on_notice is None:
            super().notice(text)
        else:
            self._on_notice(text)
