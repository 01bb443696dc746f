"""Report of one attempt: outcome, text, changed files, denials, check, tokens, cost.

Formats it as text and JSON. Collects nothing itself: `client` supplies the turn, `worktree` the
changed files, `prices` the cost. `obstacle` says why no fallback may follow; `execution` decides.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.catalogue.enforcement import NOT_ENFORCED, violated
from dragoman.client.permissions import Denial
from dragoman.client.results import Result
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.delegation.worktree.patch import Applied, FileStat
from dragoman.delegation.worktree.snapshot import Changed
from dragoman.errors import DragomanError
from dragoman.events.parts import Failure, FileChange
from dragoman.events.words import FileOp, Outcome
from dragoman.store.ledger.records import NO_TOKENS, RuntimeRole, Tokens, tokens_of
from dragoman.store.values import FREE, UNKNOWN, Charge, Provenance

ContextState: TypeAlias = Literal["fresh", "restored", "replayed"]
"""What the peer knew of the conversation at the start: nothing, its own stored session, or a
transcript that was sent to it again."""

SHOWN_FILES: Final = 20
"""Maximum number of files listed in the text; the JSON has all of them."""

SHOWN_STDERR_LINES: Final = 40
"""Maximum number of stderr lines in the text: the last ones, because the end of a traceback matters
most."""

SHOWN_STDERR_WIDTH: Final = 500
"""Maximum length of a stderr line in the text, in characters."""

_SIGNS: Final = {FileOp.ADD: "+", FileOp.DELETE: "-"}


class AttemptReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Report of one attempt."""

    peer: str
    role: str
    reason: str = ""
    """Why this peer was tried."""
    runtime_role: RuntimeRole = "peer"
    machine: str | None = None
    """The machine on which the peer worked; None is this one."""
    tier: str | None = None
    asked_model: str | None = None
    model: str | None = None
    """The model that was used, if it is known."""
    outcome: Outcome
    text: str = ""
    truncated: bool = False
    """Whether the peer's answer was too long and `text` is only part of it."""
    stop: str = ""
    """The peer's own stop reason."""
    failure: Failure | None = None
    stderr_tail: str = ""
    """The end of the peer's stderr, redacted, if the error that ended the attempt contains it: such
    an error often has only a number, and stderr shows what happened."""
    error_class: str | None = None
    may_have_run: bool = False
    """Whether the prompt may have reached a model before the attempt failed."""
    changed: Changed | None = None
    """The changes on disk; None if they were not checked."""
    outside: tuple[str, ...] = ()
    """Files outside the workspace that the peer wrote, according to its tool calls."""
    denials: tuple[Denial, ...] = ()
    approvals: int = 0
    """Number of granted permissions."""
    unenforced: str | None = None
    """Why the policy did not restrict the peer; None if it did, or if it restricts nothing."""
    violations: tuple[str, ...] = ()
    """Files that changed although no request to change them was granted."""
    check: CheckResult | None = None
    tokens: Tokens = NO_TOKENS
    cost: Charge = UNKNOWN
    context: ContextState = "fresh"
    isolated: bool = False
    """Whether the peer worked in a worktree and not in the workspace."""
    patch: str | None = None
    """Path of the patch with the peer's changes, if it was kept."""
    patch_stat: tuple[FileStat, ...] = ()
    """The diffstat of that patch."""
    patch_top: str | None = None
    """The directory in which to apply the patch: the top of the repository."""
    applied: Applied | None = None
    started_at: float
    ended_at: float
    first_event_at: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the work counts as done: outcome ok, and the check passed if there is one."""
        return self.outcome.good and (self.check is None or self.check.ok)

    @property
    def seconds(self) -> float:
        return max(self.ended_at - self.started_at, 0.0)

    @property
    def first_event_seconds(self) -> float | None:
        """Seconds from the start to the first event; None if there was none."""
        if self.first_event_at is None:
            return None
        return max(self.first_event_at - self.started_at, 0.0)

    @property
    def files(self) -> tuple[FileChange, ...]:
        """The files in the workspace that this attempt changed."""
        if self.isolated:
            return self.applied.files if self.applied is not None and self.applied.ok else ()
        return self.changed.files if self.changed is not None else ()

    def obstacle(self) -> str | None:
        """Return why no other peer may be tried after this attempt, or None if it left no changes
        behind.

        An unknown state counts as changed. If another peer continued on top of partial changes, the
        user could no longer tell which peer changed what.
        """
        if self.outside:
            return f"it wrote outside the workspace: {_listed(self.outside)}"
        if self.isolated:
            return "its patch was applied" if self.files else None
        if self.changed is None:
            return "its changes were not checked"
        if self.changed.files:
            return f"it changed {_listed([change.path for change in self.changed.files])}"
        if self.changed.repository:
            return f"it changed {_listed(self.changed.repository)}"
        if not self.changed.complete:
            notes = "; ".join(self.changed.notes)
            return f"it cannot be proved that it changed nothing{notes and ': ' + notes}"
        return None

    def patch_obstacle(self) -> str:
        """Return why the patch of this attempt must not be applied, or an empty string if it may.
        `delegate --apply` and a review apply a patch only if this is empty."""
        if not self.outcome.good:
            return f"the turn ended as {self.outcome.value.replace('_', ' ')}"
        if self.check is not None and not self.check.ok:
            return f"the check failed: {self.check.command}"
        if self.outside:
            return f"it wrote outside the workspace: {_listed(self.outside)}"
        return ""

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object, with the derived values and without the data that the
        peer added to an error."""
        # The data that a peer adds to an error might not be JSON, and might be secret.
        failure = self.failure and msgspec.structs.replace(self.failure, data=None)
        bare = msgspec.structs.replace(self, failure=failure)
        value: dict[str, Any] = msgspec.to_builtins(bare)
        value["denials"] = [
            {"toolCallId": one.tool_call_id, "title": one.title, "kind": one.kind}
            for one in self.denials
        ]
        if self.failure is not None:
            del value["failure"]["data"]
        value.update(
            ok=self.ok,
            seconds=self.seconds,
            firstEventSeconds=self.first_event_seconds,
            files=msgspec.to_builtins([{"path": one.path, "op": one.op} for one in self.files]),
        )
        return value

    def lines(self) -> list[str]:
        """Return the report as lines of text for people, without the answer itself."""
        return list(_lines(self))


def report_of(
    result: Result,
    *,
    peer: str,
    role: str,
    started_at: float,
    ended_at: float,
    **more: Any,
) -> AttemptReport:
    """Return the report of a turn that has a result.

    `more` has further fields of the report; they override those of the result.
    """
    error = result.error
    values: dict[str, Any] = {
        "outcome": result.outcome,
        "text": result.text,
        "truncated": result.truncated,
        "stop": result.stop,
        "failure": result.failure,
        "error_class": None if error is None else error.error_class,
        # Once a turn has begun, the prompt counts as sent; only an error can show that it never
        # arrived.
        "may_have_run": True if error is None else error.may_have_run,
        "denials": result.denials,
        "approvals": result.approvals,
        "tokens": tokens_of(result.usage),
        **more,
    }
    return AttemptReport(peer=peer, role=role, started_at=started_at, ended_at=ended_at, **values)


def report_of_error(
    error: DragomanError,
    outcome: Outcome,
    failure: Failure | None,
    *,
    peer: str,
    role: str,
    started_at: float,
    ended_at: float,
    **more: Any,
) -> AttemptReport:
    """Return the report of an attempt that has no result of a turn, such as one whose peer did not
    start. `more` has further fields of the report."""
    values = {"may_have_run": error.may_have_run, "changed": Changed(), **more}
    return AttemptReport(
        peer=peer,
        role=role,
        outcome=outcome,
        failure=failure,
        error_class=error.error_class,
        started_at=started_at,
        ended_at=ended_at,
        **values,
    )


def _lines(report: AttemptReport) -> list[str]:
    told = [_headline(report)]
    if report.failure is not None:
        told.append(f"  {report.failure.message}")
    if said := [line.rstrip() for line in report.stderr_tail.splitlines() if line.strip()]:
        told.append("  said on stderr:")
        told += [f"    {line[:SHOWN_STDERR_WIDTH]}" for line in said[-SHOWN_STDERR_LINES:]]
    for change in report.files[:SHOWN_FILES]:
        told.append(f"  {_SIGNS.get(change.op, '~')} {change.path}")
    if len(report.files) > SHOWN_FILES:
        told.append(f"  and {len(report.files) - SHOWN_FILES} more files")
    if report.changed is not None:
        told += [f"  changed: {fact}" for fact in report.changed.repository]
        told += [f"  note: {note}" for note in report.changed.notes]
    told += [f"  wrote outside the workspace: {path}" for path in report.outside]
    if report.truncated:
        told.append(f"  the answer is longer than {len(report.text)} characters and was cut there")
    told += [f"  refused: {one.title or one.kind}" for one in report.denials]
    if report.denials and report.approvals:
        many = "s were" if report.approvals > 1 else " was"
        told.append(f"  {report.approvals} other permission{many} approved")
    if report.unenforced is not None:
        told.append(f"  {NOT_ENFORCED}: {report.unenforced}")
    if report.violations:
        told.append(f"  policy violated: {violated(report.violations)}")
    if report.applied is not None and not report.applied.ok:
        told += [f"  conflict: {one.path}: {one.why}" for one in report.applied.conflicts]
    kept = report.patch or (None if report.applied is None else report.applied.kept)
    if kept is not None:
        told += _patch_lines(report, kept)
    if report.check is not None:
        told += _check_lines(report.check)
    return told


def _patch_lines(report: AttemptReport, kept: str) -> list[str]:
    """Format a patch that was kept: its path, its diffstat, and the command that applies it."""
    stat = report.patch_stat or (report.applied.stat if report.applied is not None else ())
    told = [f"  the patch is {kept}"]
    if stat:
        width = max(len(one.path) for one in stat[:SHOWN_FILES])
        told += [f"    {one.path:<{width}} {_counts(one)}" for one in stat[:SHOWN_FILES]]
        if len(stat) > SHOWN_FILES:
            told.append(f"    and {len(stat) - SHOWN_FILES} more files")
        added, removed = (
            sum(count or 0 for count in counts)
            for counts in zip(*((one.added, one.removed) for one in stat), strict=True)
        )
        many = "file" if len(stat) == 1 else "files"
        told.append(f"    {len(stat)} {many} changed, +{added} -{removed} lines")
    if report.patch_top:
        told.append(f"  apply it: {shlex.join(['git', '-C', report.patch_top, 'apply', kept])}")
    return told


def _counts(stat: FileStat) -> str:
    return "binary" if stat.added is None else f"+{stat.added} -{stat.removed or 0}"


def _headline(report: AttemptReport) -> str:
    who = report.peer + (f" ({report.model})" if report.model else "")
    who += f" on {report.machine}" if report.machine else ""
    ended = report.outcome.value.replace("_", " ")
    if report.outcome.good and not report.ok:
        ended = "check failed"
    facts = [f"{ended} after {report.seconds:.1f} s"]
    if report.tokens.provenance is not Provenance.UNKNOWN:
        counts = (report.tokens.input, report.tokens.output)
        read, written = ("?" if one is None else f"{one:,}" for one in counts)
        facts.append(f"{read} {'token' if read == '1' else 'tokens'} in, {written} out")
    if report.cost.amount is not None:
        unit = report.cost.currency or ""
        exact = report.cost.provenance is Provenance.REPORTED or report.cost == FREE
        about = "" if exact else "about "
        facts.append(f"{about}{_amount(report.cost.amount)} {unit}".strip())
    else:
        facts.append("cost unknown")
    if report.context != "fresh":
        facts.append(f"{report.context} session")
    return f"{who}: {', '.join(facts)}" + (f" [{report.reason}]" if report.reason else "")


def _amount(amount: float) -> str:
    """Format an amount for people: four significant digits, and no exponent for the price of a
    short turn."""
    return f"{amount:.4g}" if not 0 < amount < 1e-4 else f"{amount:.8f}".rstrip("0")


def _check_lines(check: CheckResult) -> list[str]:
    if check.ok:
        return [f"  check passed: {check.command}"]
    why = check.problem or (check.signal and f"killed by {check.signal}") or f"{check.exit_code}"
    last = [line for line in check.tail.splitlines() if line.strip()][-3:]
    return [f"  check failed ({why}): {check.command}", *(f"    {line}" for line in last)]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
