"""Render a delegation in every output format, and compute its exit code.

Shows the decision, each attempt with its reason, and the report at the end. The events of an
attempt are rendered like any turn (`output.renderer`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.cli.error_messages import login_of, of_attempt
from dragoman.cli.exit_codes import ExitCode, of_outcome
from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.quiet import Quiet
from dragoman.cli.output.renderer import PassedVariables
from dragoman.cli.output.turn_text import TextShow
from dragoman.delegation.candidates import only_last_resort
from dragoman.delegation.listener import DelegationListener
from dragoman.delegation.spending_limits import OVER_BUDGET
from dragoman.errors import Unsupported, UsageError

if TYPE_CHECKING:
    from dragoman.catalogue import Catalogue
    from dragoman.cli.output.renderer import Renderer
    from dragoman.delegation import Delegation
    from dragoman.delegation.attempt_report import AttemptReport
    from dragoman.delegation.routing import Candidate, Decision
    from dragoman.events.model import Event


_USAGE: Final = frozenset({UsageError.error_class, Unsupported.error_class})
"""The `error_class` of errors in the request itself, such as a model that the peer does not
have."""


class DelegationOutput(DelegationListener):
    """Shows a delegation while it runs."""

    def __init__(
        self,
        show: Renderer,
        catalogue: Catalogue,
        *,
        tells_last_resort: bool = True,
        permissions_for: Callable[[str], str] = lambda peer: "",
        env_for: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        self._show = show
        self._catalogue = catalogue
        self._permissions_for = permissions_for
        """Callback that returns the preset of the permission policy for a peer; empty if it is
        unknown."""
        self._env_for = env_for
        """Callback that returns the names of the variables that the settings pass to a peer; None
        if these names are unknown."""
        self._tells_last_resort = tells_last_resort
        """Whether to explain why only a last resort is used. `dragoman init` has already done
        so."""
        self._json = show if isinstance(show, JsonLines) else None
        self._quiet = isinstance(show, Quiet)
        self._answers_at_end = isinstance(show, TextShow) and show.separate
        if isinstance(show, TextShow) and show.separate:
            # Only the last attempt has the answer, and which attempt is the last is known only at
            # the end.
            show.streams_answer = False

    def job(self, job: str) -> None:
        if self._json is not None:
            self._json.line({"type": "JobBegun", "job": job, "session_key": None})
            self._json.flush()
        elif not self._quiet:
            self._show.notice(f"job {job}")

    def decided(self, decision: Decision) -> None:
        if self._json is not None:
            self._json.line({"type": "Decision", **msgspec.to_builtins(decision)})
        elif not self._quiet and self._tells_last_resort:
            if why := only_last_resort(decision):
                self._show.notice(why)

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        if self._json is not None:
            self._json.line(
                {
                    "type": "AttemptBegun",
                    "number": number,
                    "peer": candidate.peer,
                    "host": candidate.host,
                    "tier": candidate.tier,
                    "model": candidate.model,
                    "reason": reason,
                }
            )
        elif not self._quiet:
            self._show.notice(f"attempt {number}: {candidate.peer} [{reason}]")
            self._show.doing(f"starting {candidate.peer}")

    def event(self, event: Event) -> None:
        self._show.event(event)

    def reported(self, number: int, report: AttemptReport) -> None:
        if self._json is not None:
            self._json.line({"type": "Attempt", "number": number, **report.as_json()})

    def notice(self, text: str) -> None:
        self._show.notice(text)

    def over(self, done: Delegation, *, terminated: bool = False) -> int:
        """Show the end of the delegation and return the exit code."""
        code = exit_code(done, terminated=terminated)
        show = self._show
        if show.broken:
            return code
        if self._json is not None:
            self._json.line(as_json(done, code))
            self._json.flush()
            if self._json.strict:
                return code
        elif self._quiet or self._answers_at_end:
            if text := done.text.strip("\n"):
                show.write_data(text + "\n")
                show.flush()
            if self._quiet and done.ok and len(done.attempts) == 1:
                return code
        for line in done.lines():
            show.notice(line)
        if not done.ok and not done.interrupted:
            peer = done.final.peer
            known = self._catalogue.get(peer) if peer in self._catalogue else None
            login = "" if known is None else login_of(known.credentials, os.environ)
            passed = None
            if known is not None and self._env_for is not None:
                own = self._env_for(peer)
                names = (*known.credentials.env, *known.credentials.endpoints, *own)
                passed = PassedVariables(names, own, option=False)
            permissions = self._permissions_for(peer)
            for line in of_attempt(done.final, login=login, permissions=permissions, passed=passed):
                show.notice(line)
        return code


def as_json(done: Delegation, code: int) -> dict[str, Any]:
    """Return the result of a delegation as a JSON object."""
    return {"type": "Delegation", "exit_code": code, **done.as_json()}


def exit_code(done: Delegation, *, terminated: bool = False) -> int:
    """Return the exit code for a delegation that has ended. `terminated`: whether a signal other
    than Ctrl-C interrupted it."""
    if done.ok:
        return ExitCode.OK
    if done.interrupted:
        return ExitCode.TERMINATED if terminated else ExitCode.INTERRUPTED
    if done.final.error_class == OVER_BUDGET:
        return ExitCode.BUDGET
    if done.final.error_class in _USAGE:
        return ExitCode.USAGE
    return of_outcome(done.final.outcome.value) or ExitCode.FAILED
