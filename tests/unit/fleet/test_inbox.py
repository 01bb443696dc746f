"""The consumers of the inbox. tests/fleet reads it from a real server."""

from __future__ import annotations

from typing import Any

from nats.js.errors import NotFoundError

from dragoman.fleet import subjects
from dragoman.fleet.inbox import FILTERS, take_inbox
from tests.aio import aio


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
