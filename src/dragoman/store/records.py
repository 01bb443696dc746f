"""Records of the session store: session, job, note and gap, and how their keys and ids are made.

`store.store` keeps them. In JSON the fields are in camel case, as in the protocols.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

EVENT_SPAN: Final = 10**9
"""How far event numbers skip ahead when another process resumes a session. The previous process may
have been killed after it showed events that were not stored: their numbers must not be reused, or a
reader's cursor would point to another event. No process shows that many events."""

JobState: TypeAlias = Literal["queued", "running", "ended"]

EDITOR_PEER: Final = "dragoman"
"""The peer name in the records of editors' sessions. The peers that work in such a session have
sessions of their own, which its notes name."""

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Thirty-two digits in the order of their codes, without look-alike letters."""

_EPOCH: Final = 1_735_689_600
"""The first second of 2025. Thirty bits of seconds since then last until 2059."""

_SECOND_BITS: Final = 30

_RANDOM_BITS: Final = 30
"""Number of random bits. A clock may stop, or restart with the machine; then only randomness
distinguishes ids."""

_lock = threading.Lock()
_last = -1


class SessionRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation that outlives the process that started it."""

    key: str
    """Our own id for the session, never the peer's."""
    peer: str
    root: str
    """The root directory (`root_of`): the session is found from there and from any directory
    below."""
    name: str | None = None
    peer_session_id: str
    cwd: str
    created_at: float
    updated_at: float
    closed_at: float | None = None
    title: str | None = None
    mode: str | None = None
    model: str | None = None
    next_event: int = 0
    """The number of the next event."""

    @property
    def events(self) -> int:
        """Number of events of the session, including those that could not be stored."""
        return self.next_event % EVENT_SPAN

    @property
    def resumed_event(self) -> int:
        """The number of the next event if another process resumes the session."""
        return self.next_event + EVENT_SPAN


class JobRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One prompt to a peer: its state, and its result once it has ended."""

    id: str
    session_key: str
    """The key of its session; empty if the work failed before there was a session."""
    peer: str
    root: str
    prompt: str = ""
    state: JobState = "queued"
    outcome: str | None = None
    stop: str | None = None
    text: str = ""
    failure: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    first_event: int = 0
    """The number of its first event. Meaningless before it starts."""
    next_event: int = 0
    """The number after its last event."""
    endpoint: str | None = None
    """The name of the broker's endpoint; None for a run without one."""
    runner: dict[str, Any] = {}
    """The process that runs it: pid, start time, boot id."""
    missing_events: int = 0
    """How many of its events could not be stored. Computed from the gaps of its session."""
    notices: tuple[str, ...] = ()
    """What the user should know about it, such as declined questions. Computed from the notes of
    its session."""


class Note(Struct, frozen=True, kw_only=True, rename="camel"):
    """A record that is not an event of the peer, such as who allowed what."""

    at_event: int
    """The number of the event that it precedes."""
    kind: str
    data: dict[str, Any]
    at: float


GAP: Final = "gap"
"""The kind of note that stands for events that could not be stored."""

JOB_NOTICE: Final = "notice"
"""The kind of note with a notice for the user of a job (`JobNotice`)."""


REPORT: Final = "attempt_report"
CHECK: Final = "check"
APPLIED: Final = "patch_applied"
"""Kinds of notes for a review: what a delegation knew at the end of an attempt, a check that ran
later, and that a patch was applied."""

LOCAL_KINDS: Final = frozenset({REPORT, CHECK, APPLIED})
"""Kinds of notes that name files and commands of this machine. They are neither exported nor
imported: another person's session must not decide which command is run here."""


class Gap(Struct, frozen=True, kw_only=True):
    """Events that happened and could not be stored."""

    first: int
    next: int
    """The number after the last missing event."""
    why: str = ""


class JobNotice(Struct, frozen=True, kw_only=True):
    """A notice for the user of a job."""

    job: str
    text: str


def counted(events: int) -> str:
    """Return a number of events in words, such as "3 events"."""
    return "1 event" if events == 1 else f"{events} events"


def new_job_id() -> str:
    """Return an id for a job, greater than those of earlier seconds."""
    return f"j-{_new_word()}"


def delegated_job(id: str) -> str:
    """Return the id of the delegated job that an attempt belongs to, or an empty string for a job
    that is not an attempt.

    An attempt's id consists of the job's id and a number.
    """
    job, _, number = id.rpartition("-")
    return job if number.isdigit() and job.count("-") else ""


def new_session_key() -> str:
    """Return a new session key. Keys sort by creation time: to the second, and within one process
    in exact order."""
    return f"s-{_new_word()}"


def _new_word() -> str:
    global _last
    # A clock before 2025 wraps around, so that its seconds differ too.
    seconds = (int(time.time()) - _EPOCH) & (1 << _SECOND_BITS) - 1
    chance = int.from_bytes(os.urandom(4), "big") & (1 << _RANDOM_BITS) - 1
    number = seconds << _RANDOM_BITS | chance
    with _lock:
        if _last >> _RANDOM_BITS >= seconds:
            # Randomness alone would give duplicates if very many ids are made within a second, and
            # they would not be in order.
            number = _last + 1
        _last = number
    return "".join(
        _DIGITS[number >> shift & 31] for shift in range(_SECOND_BITS + _RANDOM_BITS - 5, -1, -5)
    )


def root_of(folder: Path) -> Path:
    """Return the root of the repository that contains a directory, or else the directory itself,
    with links resolved."""
    real = Path(os.path.realpath(folder))
    for above in (real, *real.parents):
        if os.path.lexists(above / ".git"):
            return above
    return real
