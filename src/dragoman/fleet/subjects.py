"""Subjects and streams of a team on the server, and the rights of its members.

A member's name is part of every subject that it may write to, so the server itself rejects messages
in another member's name. But a member can name any subject for the reply to its message, regardless
of its rights, and the server sends the reply there. Therefore the streams and the coordinator have
their own account, which can be reached only through the subjects in `SHARED`: a reply goes back to
the members' account and cannot reach the streams. No member may create a consumer, which could also
deliver to any subject. Members read by direct get, where the subject of the request names the
stream and the subject to read.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from dragoman.errors import UsageError
from dragoman.fleet.tokens import Rights, Shared

MemberKind: TypeAlias = Literal["worker", "submitter"]

INBOX: Final = "INBOX"
"""Stream of the members' messages to the coordinator: submissions, results, cancellations."""
EVENTS: Final = "EVENTS"
OBJECTS: Final = "OBJECTS"
JOBS: Final = "KV_jobs"
"""Stream of the job records, in the layout of the key-value bucket `jobs`."""
FLEET: Final = "KV_fleet"
"""Stream of the bucket `fleet`: the leader and the drained workers."""

EVENT_SUBJECTS: Final = "evt.*.*.*"
OBJECT_SUBJECTS: Final = "obj.*.*.*"
INBOX_SUBJECTS: Final = ("submit.*.*", "result.*.*.*", "cancel.*.*")
JOB_SUBJECTS: Final = "$KV.jobs.*"
FLEET_SUBJECTS: Final = "$KV.fleet.>"

ACTED: Final = "-acted"
"""Subject suffix of an inbox message that says what a running attempt did (not its result)."""

BEATS: Final = "beat.*"
QUESTIONS: Final = "ask.*.*"
JOINS: Final = "join.*"
DRAIN: Final = "drain"
"""Subject of a request to stop or resume assigning jobs to a worker. No member can send it."""
WORKERS: Final = "workers"
"""Subject of an empty message that says that the list of workers has changed."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_JOB: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DIRECT: Final = "$JS.API.DIRECT.GET"


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a member."""
    return _NAME.fullmatch(text) is not None


def require_name(name: str) -> str:
    """Return a member's name unchanged. Raises `UsageError` if `is_name` does not accept it."""
    if not is_name(name):
        raise UsageError(
            f"invalid name {name!r}: use 1 to 40 letters, digits, - and _, "
            "beginning with a letter or digit"
        )
    return name


def is_job_id(text: str) -> bool:
    return _JOB.fullmatch(text) is not None


def require_job_id(job: str) -> str:
    """Return a job id unchanged. Raises `UsageError` unless it has only letters, digits, - and _.
    Subjects allow more, but workers use the id as a directory name."""
    if not is_job_id(job):
        raise UsageError(f"not a job id: {job[:80]!r}")
    return job


def job_record(job: str) -> str:
    return f"$KV.jobs.{job}"


def assignment(worker: str) -> str:
    return f"job.{worker}"


def beat(worker: str) -> str:
    return f"beat.{worker}"


def events(worker: str, job: str, attempt: int | str) -> str:
    return f"evt.{worker}.{job}.{attempt}"


def result(worker: str, job: str, attempt: int | str) -> str:
    return f"result.{worker}.{job}.{attempt}"


def acted(worker: str, job: str, attempt: int) -> str:
    """Return the inbox subject for what an attempt did outside its worktree, used if the event
    stream is full. Workers may publish to it because it matches the subjects of their results."""
    return f"{result(worker, job, attempt)}{ACTED}"


def submission(submitter: str, job: str) -> str:
    return f"submit.{submitter}.{job}"


def cancellation(submitter: str, job: str) -> str:
    return f"cancel.{submitter}.{job}"


def question(member: str, word: str) -> str:
    return f"ask.{member}.{word}"


def chunk(owner: str, object_id: str, index: int | str) -> str:
    return f"obj.{owner}.{object_id}.{index}"


def join(code_id: str) -> str:
    return f"join.{code_id}"


def inbox_prefix(member: str) -> str:
    """Return the prefix of a member's reply subjects, to which other members cannot subscribe."""
    return f"_INBOX_{member}"


def direct_get(stream: str, subject: str = "") -> str:
    return f"{_DIRECT}.{stream}.{subject}" if subject else f"{_DIRECT}.{stream}"


def leader_get(stream: str) -> str:
    """Return the subject to read from the leader of a stream. Only the coordinator may publish to
    it."""
    return f"$JS.API.STREAM.MSG.GET.{stream}"


def rights_of(kind: MemberKind, name: str) -> Rights:
    """Return the rights of a worker or a submitter."""
    read_objects = direct_get(OBJECTS, chunk("*", "*", "*"))
    replies = f"{inbox_prefix(name)}.>"
    if kind == "worker":
        return Rights(
            publish=(
                beat(name),
                events(name, "*", "*"),
                f"result.{name}.*.*",
                chunk(name, "*", "*"),
                read_objects,
            ),
            subscribe=(assignment(name), replies),
        )
    return Rights(
        publish=(
            submission(name, "*"),
            cancellation(name, "*"),
            question(name, "*"),
            chunk(name, "*", "*"),
            read_objects,
            direct_get(JOBS, job_record("*")),
            direct_get(EVENTS),
        ),
        subscribe=(EVENT_SUBJECTS, JOB_SUBJECTS, WORKERS, replies),
    )


def join_rights(code_id: str) -> Rights:
    """Return the rights of a join code: to send join requests and to receive the replies."""
    return Rights(publish=(join(code_id),), subscribe=(f"{inbox_prefix(code_id)}.>",))


SHARED: Final = Shared(
    services=(
        BEATS,
        QUESTIONS,
        JOINS,
        *INBOX_SUBJECTS,
        EVENT_SUBJECTS,
        OBJECT_SUBJECTS,
        direct_get(OBJECTS, OBJECT_SUBJECTS),
        direct_get(JOBS, JOB_SUBJECTS),
        direct_get(EVENTS),
    ),
    streams=(assignment("*"), JOB_SUBJECTS, WORKERS),
)
"""Subjects that the account with the streams shares with the members' account."""
