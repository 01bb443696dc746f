"""Timeouts and size limits of a verification, with their reasons.

They are passed as an argument, so that a test or a user with a slow machine can change them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.client.budgets import Budgets
from dragoman.transports.process.child import ShutdownTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderLimits:
    """Limits of a verification, in seconds unless noted."""

    handshake: float = 30.0
    """From the start to the first answer. Real agents need up to 12 s on a busy machine."""
    session: float = 60.0
    """Opening a session: agents connect to their MCP servers in that time."""
    answer: float = 20.0
    """Any other request. All but one of them do no work."""
    first_event: float = 60.0
    """From a prompt to the first event."""
    silence: float = 60.0
    """Between two events in a turn. Some agents silently retry a failing model for longer, which is
    also a valid result of a verification."""
    turn: float = 180.0
    """A whole turn: the prompts request little."""
    cancel_grace: float = 10.0
    """From a cancel to the end of the turn."""
    cancel_arrival: float = 1.0
    """From a cancel to the normal end of a turn. A turn that ends within this time may have ended
    before the cancel arrived; one that ends later has ignored it. Real agents stop within 0.25
    s."""
    tail: float = 1.0
    """Time without updates after the end of a turn until everything counts as received."""
    replay_quiet: float = 0.3
    """Time without updates after which a replay that follows its response counts as over."""
    mcp_start: float = 2.0
    """For an MCP server to be started after the session was opened. Agents that start it with
    the session do so before they respond; the others wait for a turn, so a longer timeout would
    not help."""
    exit: float = 5.0
    """From the end of its input to its exit. Agents need up to 2.2 s, and some never exit."""
    rung: float = 600.0
    """One whole rung, whatever it waits for, in case another limit is missing."""
    oversized_size: int = 8 * 1024 * 1024
    """Size in bytes of the line that is longer than a peer expects. The usual accidental limits of
    peers are 64 KiB and 1 MiB."""
    shutdown: ShutdownTimes = ShutdownTimes()
    """Timeouts of the shutdown, before the peer is killed."""

    def budgets(self, handshake: float | None = None) -> Budgets:
        """Return the limits as client budgets.

        `handshake` is the timeout in the peer's descriptor, used if it is longer than ours.
        """
        return Budgets(
            initialize=max(self.handshake, handshake or 0.0),
            session=self.session,
            request=self.answer,
            first_event=self.first_event,
            silence=self.silence,
            tool_silence=self.silence,
            total=self.turn,
            cancel_grace=self.cancel_grace,
            replay_quiet=self.replay_quiet,
        )
