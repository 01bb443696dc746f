"""Replies of the coordinator with lists of jobs and workers, each small enough for one message.

`schedule` has the lists, `coordinator` sends the replies, and `submitter` asks for what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from dragoman.broker.error_codec import describe
from dragoman.errors import FleetError
from dragoman.fleet.records import CoordinatorReply, ListQuestion, decode, encode
from dragoman.fleet.schedule import Schedule

MAX_REPLY_SIZE: Final = 768 * 1024
"""Maximum number of bytes of the entries in one reply. The server accepts 1 MiB."""


def jobs_reply(schedule: Schedule, now: float) -> CoordinatorReply:
    """Return as many of the newest jobs as fit."""
    lines = schedule.job_lines(now)
    return CoordinatorReply(jobs=lines[: _fitting(lines)])


def workers_reply(schedule: Schedule, data: bytes, now: float) -> CoordinatorReply:
    """Return as many workers as fit, after the one that the request names."""
    try:
        after = decode(data, ListQuestion).after if data else ""
    except FleetError as error:
        return CoordinatorReply(error=str(error), failure=describe(error))
    lines = [one for one in schedule.worker_lines(now) if one.name > after]
    count = _fitting(lines)
    return CoordinatorReply(workers=tuple(lines[:count]), more=count < len(lines))


def _fitting(lines: Sequence[Struct]) -> int:
    """Return how many entries of a list fit into one reply; at least one."""
    size = 0
    for count, line in enumerate(lines):
        size += len(encode(line)) + 1
        if size > MAX_REPLY_SIZE:
            return max(count, 1)
    return len(lines)
