"""The streams reject new messages when they are full, and together fit the team's disk limit.

tests/fleet reads them from a real server.
"""

from __future__ import annotations

from typing import Any

from nats.js.api import DiscardPolicy, RetentionPolicy
from nats.js.errors import NotFoundError

from dragoman.fleet import subjects
from dragoman.fleet.streams import DEFAULT_SIZE, FILTERS, stream_configs, take_inbox
from tests.aio import aio


def test_all_streams_together_fit_into_the_disk_limit() -> None:
    for size in (100 * 1024**2, 10 * 1024**3):
        assert sum(one.max_bytes or 0 for one in stream_configs(size)) <= size
    assert stream_configs(-1) == stream_configs(DEFAULT_SIZE)


def test_a_full_stream_rejects_new_messages_and_drops_none() -> None:
    assert all(one.discard is DiscardPolicy.NEW for one in stream_configs(-1))


def test_inbox_messages_stay_until_the_coordinator_acknowledges_them() -> None:
    (inbox,) = [one for one in stream_configs(-1) if one.name == subjects.INBOX]
    assert inbox.retention is RetentionPolicy.WORK_QUEUE and not inbox.max_age


def test_a_chunk_of_an_object_can_be_written_only_once() -> None:
    (objects,) = [one for one in stream_configs(-1) if one.name == subjects.OBJECTS]
    assert objects.max_msgs_per_subject == 1 and objects.discard_new_per_subject


def test_every_stream_except_inbox_and_leader_has_the_same_age_limit() -> None:
    ages = {one.name: one.max_age for one in stream_configs(-1, keep_days=1)}
    day = 24 * 3600
    assert ages == {
        subjects.INBOX: None,
        subjects.EVENTS: day,
        subjects.OBJECTS: day,
        subjects.JOBS: day,
        subjects.FLEET: None,
    }


class FakeJetStream:
    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.calls: list[str] = []

    async def delete_consumer(self, stream: str, name: str) -> None:
        self.calls.append(f"delete {name}")
        if name not in self.known:
            raise NotFoundError
        self.known.remove(name)

    async def add_consumer(self, stream: str, config: Any) -> None:
        assert config.durable_name not in self.known
        self.known.add(config.durable_name)
        self.calls.append(f"add {config.durable_name}")


def test_every_message_of_the_inbox_has_one_consumer() -> None:
    wanted = sorted(subject for filters in FILTERS.values() for subject in filters)
    assert wanted == sorted(subjects.INBOX_SUBJECTS)


@aio
async def test_a_new_coordinator_replaces_the_consumers_of_the_one_before() -> None:
    for known in ((), tuple(FILTERS)):
        fake: Any = FakeJetStream(*known)
        await take_inbox(fake)
        assert fake.known == set(FILTERS)
        assert fake.calls == [f"{word} {name}" for name in FILTERS for word in ("delete", "add")]
