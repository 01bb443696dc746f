"""RunResult: what was observed in one turn of a run.

`runs.run` fills it while the turn goes; callers read it when the turn has ended, or has failed.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from dragoman.client.results import Result
from dragoman.errors import BrokerError, DragomanError
from dragoman.events.model import Event, MessageDelta, TurnEnded, TurnStarted
from dragoman.events.parts import Failure
from dragoman.events.view import View
from dragoman.events.words import Role


class RunResult(Struct):
    """What was observed in one turn, and while the session was opened for it."""

    job: str = ""
    result: Result | None = None
    error: DragomanError | None = None
    """Why there was no turn."""
    prompted: bool = False
    """Whether the prompt was sent, so that it may have run."""
    acted: bool = False
    """Whether the peer said or did anything in its turn."""
    first_event_at: float | None = None
    greeted_seconds: float | None = None
    context: str = ""
    """What the peer knew of the session: `NEW`, `LIVE`, `RESTORED` or `FRESH`."""
    model: str | None = None
    restless: str | None = None
    """Why the peer may still be working."""
    over: Failure | None = None
    """The limit that ended the turn."""
    view: View = field(default_factory=View)
    model_error: DragomanError | None = None
    """Why the peer does not use the model that was asked for, where that is not an error."""
    unenforced: str = ""
    """Why the policy did not restrict the peer."""
    violations: tuple[str, ...] = ()
    """Files that changed in the turn although no request for that was allowed."""
    seconds: float = 0.0
    """How long the turn took."""

    def observe(self, event: Event, at: float) -> None:
        """Note an event of the session, which may show that the peer works on the turn."""
        if self.prompted and _is_life(event):
            self.acted = True
            if self.first_event_at is None:
                self.first_event_at = at

    @property
    def broker_failed(self) -> bool:
        """Whether the broker ended this run, and not the peer."""
        error = self.error if self.result is None else self.result.error
        return isinstance(error, BrokerError)


_SILENT: Final = (TurnStarted, TurnEnded)


def _is_life(event: Event) -> bool:
    """Whether an event shows that the peer works on the turn."""
    if event.turn is None or event.replay or isinstance(event, _SILENT):
        return False
    return not (isinstance(event, MessageDelta) and event.role is Role.USER)
