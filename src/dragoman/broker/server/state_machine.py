"""State machine of a broker: starting, idle, serving, restarting, failed, draining, stopped.

Pure: `broker` reports events and acts on the new state. scripts/draw_states.py draws the table for
the documentation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final


class BrokerState(enum.StrEnum):
    """State of a broker."""

    STARTING = "starting"
    """The peer is being started for the first time; callers wait."""
    IDLE = "idle"
    """The peer is running and has nothing to do."""
    SERVING = "serving"
    """At least one turn runs or waits."""
    RESTARTING = "restarting"
    """The peer died and is being started again; prompts wait."""
    FAILED = "failed"
    """The peer could not be started. The next caller triggers a retry."""
    DRAINING = "draining"
    """New work is refused; running and queued turns are finished."""
    STOPPED = "stopped"
    """The broker has ended."""


class BrokerEvent(enum.StrEnum):
    """Events of a broker."""

    READY = "the peer answers"
    LOST = "the peer died"
    UNSTARTABLE = "the peer cannot be started"
    WANTED = "a caller tries again"
    WORK = "a prompt arrives"
    DONE = "the last turn ends"
    DRAIN = "a drain is requested"
    STOP = "a stop is requested"


_S, _H = BrokerState, BrokerEvent

TABLE: Final[dict[BrokerState, dict[BrokerEvent, BrokerState]]] = {
    BrokerState.STARTING: {
        _H.READY: _S.IDLE,
        _H.LOST: _S.RESTARTING,
        _H.UNSTARTABLE: _S.FAILED,
        _H.DRAIN: _S.DRAINING,
        _H.STOP: _S.STOPPED,
    },
    BrokerState.IDLE: {
        _H.WORK: _S.SERVING,
        _H.LOST: _S.RESTARTING,
        _H.DRAIN: _S.DRAINING,
        _H.STOP: _S.STOPPED,
    },
    BrokerState.SERVING: {
        _H.DONE: _S.IDLE,
        _H.LOST: _S.RESTARTING,
        _H.DRAIN: _S.DRAINING,
        _H.STOP: _S.STOPPED,
    },
    BrokerState.RESTARTING: {
        _H.READY: _S.IDLE,
        _H.UNSTARTABLE: _S.FAILED,
        _H.DRAIN: _S.DRAINING,
        _H.STOP: _S.STOPPED,
    },
    BrokerState.FAILED: {
        _H.WANTED: _S.RESTARTING,
        _H.DRAIN: _S.DRAINING,
        _H.STOP: _S.STOPPED,
    },
    BrokerState.DRAINING: {
        _H.DONE: _S.STOPPED,
        _H.STOP: _S.STOPPED,
    },
    BrokerState.STOPPED: {},
}
"""The next state for each state and event. Events not listed change nothing: a peer that dies
while the broker drains is restarted for the waiting turns, and the broker keeps draining."""


class Lifecycle:
    """The current state of one broker. The callback `changed` is called with every new state."""

    __slots__ = ("_changed", "state")

    def __init__(self, changed: Callable[[BrokerState], None] | None = None) -> None:
        self.state = BrokerState.STARTING
        self._changed = changed

    def happens(self, happening: BrokerEvent) -> BrokerState:
        """Record an event and return the new state."""
        following = TABLE[self.state].get(happening, self.state)
        if following is not self.state:
            self.state = following
            if self._changed is not None:
                self._changed(following)
        return following

    @property
    def takes_work(self) -> bool:
        """Whether new prompts and sessions are accepted."""
        return self.state not in (BrokerState.DRAINING, BrokerState.STOPPED)
