"""Format tool results for the model: as text and as structured content.

A failure says what happened and that the model must not answer in the peer's place. Otherwise
models do so, and the user takes such an answer for the peer's. Some hosts (Codex) show only the
structured content, so a failure is explained there as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dragoman.errors import CallTimeout, DragomanError, HandshakeFailed, NoPeer, UsageError
from dragoman.events.words import Outcome

if TYPE_CHECKING:
    from dragoman.delegation import Delegation
    from dragoman.delegation.peer_status import PeerStatus
    from dragoman.delegation.routing import Decision
    from dragoman.mcp_server.ask_peer import PeerAnswer
    from dragoman.store.records import JobRecord

MAX_TEXT_SIZE: Final = 100_000
"""Maximum length of a peer's answer, in characters. More would fill the context of the model that
asked."""

NOT_ASKED: Final = "not_asked"
"""The outcome if no peer was prompted."""

NOT_IN_ITS_PLACE: Final = (
    "Do not answer in the peer's place, and do not present work of your own as the peer's. "
    "Tell the user what happened."
)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool call, as text and as structured content."""

    text: str
    data: dict[str, Any]
    failed: bool = False


def of_delegation(done: Delegation, notices: Sequence[str] = ()) -> ToolAnswer:
    """Return the tool result for a delegation that has ended, with the `notices` of its work."""
    told = done.as_json()
    # The `explain` tool says which peers were passed over and why; a model need not read it every
    # time.
    del told["decision"]["passed_over"]
    data = {**told, "notices": list(notices)}
    facts = [*done.lines(), *notices, f"job {done.job}"]
    who = done.answered or "nobody"
    return _told(data, done.ok, f"{who} did it", "the delegation failed", done.text, facts)


def of_asked(asked: PeerAnswer, notices: Sequence[str] = ()) -> ToolAnswer:
    """Return the tool result for a prompt to one peer, with the `notices` of its work."""
    report = asked.report
    data = {
        **report.as_json(),
        "job": asked.job,
        "session": asked.session,
        "context": asked.context,
        "notices": list(notices),
    }
    facts = [
        *report.lines(),
        *notices,
        f"job {asked.job}, session {asked.session} ({asked.context})",
    ]
    return _told(
        data,
        report.ok,
        f"{report.peer} answered",
        f"{report.peer} did not complete it ({report.outcome.value})",
        report.text,
        facts,
    )


def _told(
    data: dict[str, Any], ok: bool, good: str, bad: str, said: str, facts: Sequence[str]
) -> ToolAnswer:
    said, cut = _cut(said)
    if cut:
        facts = [
            *facts,
            f"the answer is shortened: `dragoman jobs result {data['job']}` prints all of it",
        ]
    data = {**data, "text": said, "shortened": cut}
    told = "\n".join(facts)
    if ok:
        return ToolAnswer(f"{said}\n\n[dragoman: {good}]\n{told}", data)
    partly = f"\n\nThe output until then, which is not a result:\n{said}" if said.strip() else ""
    return ToolAnswer(
        f"FAILED: {bad}.\n{told}{partly}\n\n{NOT_IN_ITS_PLACE}",
        {"message": f"FAILED: {bad}. {NOT_IN_ITS_PLACE}", **data},
        failed=True,
    )


def of_started(job: str, who: str) -> ToolAnswer:
    """Return the tool result for a job that was started and runs in the background. `who` is its
    peer or role."""
    return ToolAnswer(
        f"Started as job {job} ({who}). It is not done: get the answer later with job_result.",
        {"ok": False, "outcome": "running", "job": job, "text": ""},
    )


def of_running(job: str, line: str, *, peer: str = "", seconds: float | None = None) -> ToolAnswer:
    """Return the tool result for work that is running in this process; `line` is its current
    progress line."""
    took = "" if seconds is None else f" for {seconds:.0f} s"
    return ToolAnswer(
        f"Job {job} is running{took}. {line}".rstrip(),
        {"ok": False, "outcome": "running", "job": job, "peer": peer, "text": "", "doing": line},
    )


def of_job(job: JobRecord) -> ToolAnswer:
    """Return the tool result for a stored job: its result if it has ended, otherwise its state and
    its output so far."""
    outcome = job.outcome or "unknown" if job.state == "ended" else job.state
    ok = job.state == "ended" and outcome in {one.value for one in Outcome if one.good}
    said, cut = _cut(job.text)
    data: dict[str, Any] = {
        "ok": ok,
        "outcome": outcome,
        "text": said,
        "shortened": cut,
        "job": job.id,
        "state": job.state,
        "peer": job.peer,
        "session": job.session_key,
        "failure": job.failure,
        "usage": job.usage,
        "notices": list(job.notices),
    }
    if job.state != "ended":
        so_far = f" What it said so far:\n{said}" if said else ""
        return ToolAnswer(f"Job {job.id} ({job.peer}) is {job.state}.{so_far}", data)
    told = job.failure or {}
    failure, stderr = str(told.get("message") or ""), str(told.get("stderr_tail") or "")
    return _told(
        data,
        ok,
        f"{job.peer} answered",
        f"{job.peer} did not complete it ({outcome}){failure and ': ' + failure}",
        said,
        [
            *(["said on stderr:", stderr.rstrip()] if stderr else []),
            *job.notices,
            f"job {job.id}",
        ],
    )


def of_cancelled(job: str, outcome: str | None) -> ToolAnswer:
    """Return the tool result for a request to cancel a job. `outcome`: the job's outcome if it had
    already ended; None if its agent has been asked to stop."""
    done = outcome is None
    text = f"Job {job} has already ended."
    if done:
        text = f"Job {job} is being cancelled. job_result has its output until then."
    told = "cancelled" if done else outcome
    return ToolAnswer(text, {"ok": done, "job": job, "cancelled": done, "outcome": told})


def of_peers(rows: Sequence[PeerStatus]) -> ToolAnswer:
    """Return the tool result that lists the known peers."""
    peers = [
        {
            "peer": row.descriptor.name,
            "title": row.descriptor.title,
            "installed": row.installed,
            "enabled": row.enabled,
            "version": row.version,
            "roles": list(row.descriptor.roles),
            "measured": row.card_state,
            "notes": list(row.notes),
            "missing": row.missing or None,
        }
        for row in rows
    ]
    lines = []
    for row in rows:
        state = "not installed" if not row.installed else "enabled" if row.enabled else "installed"
        roles = ", ".join(row.descriptor.roles)
        lines.append(f"{row.descriptor.name}: {state}; roles: {roles or 'none'}")
    return ToolAnswer(
        "\n".join(lines) + "\n\ndelegate uses enabled peers; ask_peer can use any installed peer.",
        {"peers": peers},
    )


def of_decision(decision: Decision) -> ToolAnswer:
    """Return the tool result that explains a routing decision."""
    import msgspec

    from dragoman.delegation.routing import explain

    return ToolAnswer("\n".join(explain(decision)), {"decision": msgspec.to_builtins(decision)})


def of_error(error: DragomanError, notices: Sequence[str] = ()) -> ToolAnswer:
    """Return the tool result for a call that raised an error, with the `notices` of its work until
    then."""
    advice = next(
        (
            text
            for name in ("remedy", "hint")
            if isinstance(text := getattr(error, name, ""), str) and text
        ),
        "",
    )
    data: dict[str, Any] = {
        "ok": False,
        "outcome": _outcome(error),
        "text": "",
        "job": None,
        "notices": list(notices),
        "error": {
            "class": error.error_class,
            "message": str(error),
            "blame": error.blame,
            "retryable": error.retryable,
            "mayHaveRun": error.may_have_run,
            "remedy": advice or None,
        },
    }
    happened = (
        "The peer may have started to work, and its answer is lost"
        if error.may_have_run
        else "No peer was prompted"
    )
    lines = [f"FAILED: {error}", f"{happened}.", *notices]
    if advice:
        lines.append(f"What to do: {advice}")
    if isinstance(error, NoPeer):
        data["error"]["reasons"] = error.reasons
        lines.append(
            "If your own task was delegated to you, do this part yourself, as your own work; "
            "otherwise tell the user, and do not answer in the peer's place."
        )
    elif isinstance(error, UsageError):
        lines.append("Fix the call if you can; otherwise tell the user. " + NOT_IN_ITS_PLACE)
    else:
        lines.append(NOT_IN_ITS_PLACE)
    return ToolAnswer("\n".join(lines), {"message": "\n".join(lines), **data}, failed=True)


def _outcome(error: DragomanError) -> str:
    """Return the outcome of a call that raised: timed out, failed, or no peer was prompted."""
    if isinstance(error, CallTimeout) or (isinstance(error, HandshakeFailed) and error.timed_out):
        return Outcome.TIMED_OUT.value
    return Outcome.FAILED.value if error.may_have_run else NOT_ASKED


def of_wrong_arguments(tool: str, why: str) -> ToolAnswer:
    """Return the tool result for a call with invalid arguments; `why` says what is wrong."""
    text = f"FAILED: {tool} was called with invalid arguments: {why}. No peer was prompted."
    data = {"ok": False, "outcome": NOT_ASKED, "text": "", "job": None, "error": {"message": why}}
    return ToolAnswer(text, {"message": text, **data}, failed=True)


def _cut(text: str) -> tuple[str, bool]:
    if len(text) <= MAX_TEXT_SIZE:
        return text, False
    return text[:MAX_TEXT_SIZE] + "…", True
