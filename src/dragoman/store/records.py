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
"""How far event numbers skip ahead when another process resumes a session. The previous process
may have been killed after it showed events that were not stored: their numbers must not be
reused, or a reader's cursor would point to another event. No process shows as many."""

JobState: TypeAlias = Literal["queued", "running", "ended"]

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Thirty-two digits in the order of their codes, without look-alike letters."""

_EPOCH: Final = 1_735_689_600
"""The first second of 2025. Thirty bits of seconds since then last until 2059."""

_SECOND_BITS: Final = 30

_RANDOM_BITS: Final = 30
"""A clock may be stopped or restart with the machine: then only randomness tells ids apart."""

_lock = threading.Lock()
_last = -1


class SessionRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation that outlives the process that started it."""

    key: str
    """Our own id for it, never the peer's."""
    peer: str
    root: str
    """The directory that it is found from, and from any directory below (`root_of`)."""
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
        """Its number of events, including those that could not be stored."""
        return self.next_event % EVENT_SPAN

    @property
    def resumed_event(self) -> int:
        """The number of the next event if another process resumes the session."""
        return self.next_event + EVENT_SPAN


class JobRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One prompt, from its creation to its end."""

    id: str
    session_key: str
    """Empty if the work failed before there was a session."""
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


class Note(Struct, frozen=True, kw_only=True, rename="camel"):
    """A record that is not an event of the peer, such as who allowed what."""

    at_event: int
    """The number of the event that it precedes."""
    kind: str
    data: dict[str, Any]
    at: float


GAP: Final = "gap"
"""The kind of a note that stands for events that could not be stored."""


class Gap(Struct, frozen=True, kw_only=True):
    """Events that happened and could not be stored."""

    first: int
    next: int
    """The number after the last of them."""
    why: str = ""


def counted(events: int) -> str:
    """A count of events in words."""
    return "1 event" if events == 1 else f"{events} events"


def new_job_id() -> str:
    """An id for a job, greater than those of earlier seconds."""
    return f"j-{_new_word()}"


def new_session_key() -> str:
    """A key for a session, greater than those of earlier seconds."""
    return f"s-{_new_word()}"


def _new_word() -> str:
    global _last
    # A clock before 2025 wraps around, so that its seconds differ too.
    seconds = (int(time.time()) - _EPOCH) & (1 << _SECOND_BITS) - 1
    chance = int.from_bytes(os.urandom(4), "big") & (1 << _RANDOM_BITS) - 1
    number = seconds << _RANDOM_BITS | chance
    with _lock:
        if _last >> _RANDOM_BITS >= seconds:
            # Randomness alone would give duplicates if very many are made within a second, and they
            # would not be in order.
            number = _last + 1
        _last = number
    return "".join(
        _DIGITS[number >> shift & 31] for shift in range(_SECOND_BITS + _RANDOM_BITS - 5, -1, -5)
    )


def root_of(folder: Path) -> Path:
    """The root of the repository that contains a directory, else the directory itself; links
    resolved."""
    real = Path(os.path.realpath(folder))
    for above in (real, *real.parents):
        if os.path.lexists(above / ".git"):
            return above
    return real
