"""Exit codes of the command line, and the code for each turn outcome.

Codes up to 5 and 130 mean the same as in acpx. The codes for errors are in `cli.error_messages`;
the user documentation is docs/reference/exit-codes.md.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dragoman.client.results import Result


class ExitCode(enum.IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TIMEOUT = 3
    NO_SESSION = 4
    DENIED = 5
    AUTH_REQUIRED = 6
    NO_PEER = 7
    QUOTA = 8
    BUDGET = 9
    UNVERIFIED = 10
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: Final = {
    ExitCode.OK: "The agent did what it was asked to do, and said so.",
    ExitCode.FAILED: (
        "The agent, the protocol or the machine failed; an empty or refused answer, too."
    ),
    ExitCode.USAGE: (
        "The command line cannot be done like this, or names a peer that does not exist."
    ),
    ExitCode.TIMEOUT: "A time budget ran out: the handshake, the session or the turn.",
    ExitCode.NO_SESSION: "The session that was asked for does not exist.",
    ExitCode.DENIED: (
        "A permission was denied and none approved, whatever the agent said afterwards."
    ),
    ExitCode.AUTH_REQUIRED: "The agent wants a login first.",
    ExitCode.NO_PEER: "No enabled peer can take the work.",
    ExitCode.QUOTA: "The agent's quota is used up, or its model turns requests away.",
    ExitCode.BUDGET: "A limit on what may be spent was reached.",
    ExitCode.UNVERIFIED: "A peer was verified and failed.",
    ExitCode.INTERRUPTED: "Interrupted with Ctrl-C.",
    ExitCode.TERMINATED: "Ended by a signal from outside.",
}
"""What each code says, in one sentence."""

_OUTCOMES: Final = {
    "ok": ExitCode.OK,
    "denied": ExitCode.DENIED,
    "timed_out": ExitCode.TIMEOUT,
    "auth_required": ExitCode.AUTH_REQUIRED,
    "quota": ExitCode.QUOTA,
}
"""Outcomes that have a code of their own; every other one is a failure."""


def of_result(result: Result) -> ExitCode:
    """The code for the end of a turn that nobody interrupted."""
    outcome = result.outcome.value
    if result.failure is not None and result.failure.kind == "not_found":
        return ExitCode.NO_SESSION
    return of_outcome(outcome)


def of_outcome(outcome: str) -> ExitCode:
    """The code for an outcome, such as that of a stored job."""
    return _OUTCOMES.get(outcome, ExitCode.FAILED)
