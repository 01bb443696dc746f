"""Render jobs as table rows, results and JSON lines.

The job records come from `store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dragoman.cli.output.escape import neutral, one_line
from dragoman.cli.output.renderer import duration
from dragoman.cli.output.times import ago, iso

if TYPE_CHECKING:
    from dragoman.store import JobRecord

HEAD: Final = ("job", "state", "peer", "begun", "took", "session", "prompt")
DROP: Final = ("session", "took", "begun")
"""Columns that a narrow terminal drops, least important first."""

SHOWN_PROMPT: Final = 60
"""Maximum length of a prompt in a list, in characters."""


def as_cells(job: JobRecord, now: float) -> list[str]:
    """Return a job as a row under `HEAD`."""
    return [
        job.id,
        state_of(job),
        job.peer,
        ago(job.created_at, now),
        took(job, now),
        job.session_key,
        one_line(job.prompt, width=SHOWN_PROMPT),
    ]


def state_of(job: JobRecord) -> str:
    """Return the state of a job, or its outcome if it has ended. If events of the job are not
    stored, their number is added."""
    told = job.outcome or job.state if job.state == "ended" else job.state
    missing = job.missing_events
    events = "event" if missing == 1 else "events"
    return f"{told}, {missing} {events} not stored" if missing else told


def took(job: JobRecord, now: float) -> str:
    """Return how long the job has been running, or ran in total; empty if it has not started."""
    if job.started_at is None:
        return ""
    ended_at = now if job.ended_at is None else job.ended_at
    return duration(max(ended_at - job.started_at, 0.0))


def stderr_of(job: JobRecord) -> str:
    """Return the end of the agent's stderr, formatted as lines, or an empty string if none is
    stored."""
    from dragoman.cli.error_messages import stderr_lines

    tail = (job.failure or {}).get("stderr_tail")
    return "".join(f"{line}\n" for line in stderr_lines(tail if isinstance(tail, str) else ""))


def notices_of(job: JobRecord) -> str:
    """Return the notices of a job, formatted as lines; empty if there are none."""
    return "".join(f"dragoman: {neutral(text)}\n" for text in job.notices)


def as_json(job: JobRecord) -> dict[str, Any]:
    """Return a job as a JSON object."""
    return {
        "type": "Job",
        "job": job.id,
        "state": job.state,
        "outcome": job.outcome,
        "stop": job.stop,
        "peer": job.peer,
        "root": job.root,
        "session_key": job.session_key,
        "prompt": job.prompt,
        "text": job.text,
        "failure": job.failure,
        "usage": job.usage,
        "created_at": iso(job.created_at),
        "started_at": iso(job.started_at),
        "ended_at": iso(job.ended_at),
        "first_event": job.first_event,
        "next_event": job.next_event,
        "missing_events": job.missing_events,
        "notices": list(job.notices),
        "broker": job.endpoint,
    }
