"""Exit codes of the command line, and the code for each turn outcome.

Codes 0 to 5 and 130 mean the same as in acpx. The codes for errors are in `cli.error_messages`; the
user documentation is docs/reference/exit-codes.md.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dragoman.client.results import Result


class ExitCode(enum.IntEnum):
    """Exit codes of a command."""

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
    ExitCode.OK: "The command succeeded. If it ran a turn, the outcome of the turn is `ok`.",
    ExitCode.FAILED: (
        "The agent, the protocol or the machine failed, the turn ended without success in another "
        "way, such as a refusal, or a command such as `doctor` found a problem."
    ),
    ExitCode.USAGE: (
        "The command line or a setting is invalid, or the command cannot be carried out as "
        "requested, for example because no peer has that name or the peer does not support it."
    ),
    ExitCode.TIMEOUT: (
        "A time budget ran out: the handshake, the session, the turn or reading stdin. Or the job "
        "of `jobs result` has not ended."
    ),
    ExitCode.NO_SESSION: "The session or job does not exist, or the session can no longer be used.",
    ExitCode.DENIED: (
        "A permission was denied and none approved, or the turn ended right after a denial."
    ),
    ExitCode.AUTH_REQUIRED: "The agent needs a login.",
    ExitCode.NO_PEER: "No enabled peer can do the work.",
    ExitCode.QUOTA: "The agent's quota is used up, or its provider rejects requests.",
    ExitCode.BUDGET: "A spending limit was reached.",
    ExitCode.UNVERIFIED: "A peer failed verification.",
    ExitCode.INTERRUPTED: "Interrupted with Ctrl-C.",
    ExitCode.TERMINATED: "Ended by SIGTERM or SIGHUP.",
}
"""A short description of each code."""

_OUTCOMES: Final = {
    "ok": ExitCode.OK,
    "denied": ExitCode.DENIED,
    "timed_out": ExitCode.TIMEOUT,
    "auth_required": ExitCode.AUTH_REQUIRED,
    "quota": ExitCode.QUOTA,
}
"""Outcomes with their own exit code. For every other outcome it is `FAILED`."""


def of_result(result: Result) -> ExitCode:
    """Return the code for a turn that was not interrupted."""
    outcome = result.outcome.value
    if result.failure is not None and result.failure.kind == "not_found":
        return ExitCode.NO_SESSION
    return of_outcome(outcome)


def of_outcome(outcome: str) -> ExitCode:
    """Return the code for an outcome, such as the outcome of a stored job."""
    return _OUTCOMES.get(outcome, ExitCode.FAILED)
