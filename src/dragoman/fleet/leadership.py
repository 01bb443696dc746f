"""Leader election among coordinators: the leader keeps renewing a record by revision.

Another coordinator takes over when, by its own clock, the record has not been renewed for its time
to live. A leader that cannot renew in time stops before that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from dragoman.errors import FleetConflict, FleetError
from dragoman.fleet import subjects
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.records import decode, encode

KEY: Final = "$KV.fleet.leader"


class LeaderRecord(Struct, frozen=True, kw_only=True):
    """The stored record that says who leads, and for how many seconds (`ttl`) without a renewal."""

    id: str
    """Random id of the coordinator that leads; empty if it has resigned."""
    ttl: float


class Leadership:
    """Acquires, renews and releases the leadership for one coordinator, over one connection."""

    def __init__(
        self, connection: FleetConnection, *, ttl: float, clock: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._ttl = ttl
        self._clock = clock
        self._record = LeaderRecord(id=secrets.token_hex(8), ttl=ttl)
        self._revision = 0
        self._until = 0.0
        self.epoch = 0
        """Sequence number of the record with which this leadership began, larger than that of any
        earlier one; 0 before `acquire`."""

    @property
    def leads(self) -> bool:
        """Whether this coordinator leads, and no other one can have taken over yet."""
        return self._clock() < self._until

    async def acquire(self) -> None:
        """Wait until this coordinator leads."""
        seen, since = -1, 0.0
        while True:
            found = await self._connection.last(subjects.FLEET, KEY)
            revision = 0 if found is None else found.sequence
            if revision != seen:
                seen, since = revision, self._clock()
            record = None if found is None else decode(found.data, LeaderRecord)
            free = record is None or not record.id or self._clock() - since > record.ttl
            if free:
                try:
                    await self._write(self._record, revision)
                except FleetConflict:
                    continue
                self.epoch = self._revision
                return
            await asyncio.sleep(self._ttl / 8)

    async def keep(self) -> None:
        """Renew the leadership repeatedly. Raises `FleetError` when a renewal fails."""
        while True:
            await asyncio.sleep(self._ttl / 4)
            await self._write(self._record, self._revision)

    async def release(self) -> None:
        """Resign, so that another coordinator can take over at once. Does nothing if this one does
        not lead."""
        if self.leads:
            self._until = 0.0
            await self._write(LeaderRecord(id="", ttl=self._ttl), self._revision)
            self._until = 0.0

    async def _write(self, record: LeaderRecord, revision: int) -> None:
        sent_at = self._clock()
        self._revision = await self._connection.store(
            KEY, encode(record), revision=revision, timeout=self._ttl / 2
        )
        # Counted from when it was sent. Another coordinator counts from when it saw the record,
        # which is later.
        self._until = sent_at + self._ttl

    def require(self) -> None:
        """Raise `FleetError` if another coordinator may lead now."""
        if not self.leads:
            raise FleetError("this coordinator could not renew its leadership in time")
