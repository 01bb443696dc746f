"""HTTP API of the ledger screen: cost, outcomes and time by day, role, peer or machine.

The totals are the same as those of `dragoman stats`.
"""

from __future__ import annotations

import time
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from starlette.routing import Route

from dragoman.console.json_routes import json_route, query_of
from dragoman.errors import UsageError
from dragoman.rpc.tasks import in_thread
from dragoman.store.ledger import Ledger, StatRow, ledger_path
from dragoman.store.ledger.attempt_table import day_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.requests import Request

    from dragoman.console.live_state import LiveState

MAX_DAYS: Final = 366
"""Maximum number of days in one response. A chart cannot show more bars."""

DAY: Final = 86_400.0


class _Query(Struct):
    days: int = 30


class LedgerRoutes:
    """Handles the requests of the ledger screen."""

    def __init__(self, state: LiveState) -> None:
        self._path = ledger_path(state.paths.state)

    def routes(self) -> Sequence[Route]:
        return [Route("/api/v1/ledger", json_route(self._sums))]

    async def _sums(self, request: Request) -> Any:
        asked = query_of(request, _Query)
        if not 1 <= asked.days <= MAX_DAYS:
            raise UsageError(f"days= takes a number from 1 to {MAX_DAYS}, not {asked.days}")
        return await in_thread(
            str(self._path), lambda _: sums_of(self._path, asked.days, now=time.time())
        )


def sums_of(path: Path, days: int, *, now: float) -> dict[str, Any]:
    """Return the totals of the last `days` days, including today. A day without attempts has a row
    too."""
    today = date.fromisoformat(day_of(now))
    first = today - timedelta(days=days - 1)
    since = time.mktime(first.timetuple())
    with Ledger.open(path, read_only=True) as ledger:
        by_day = {row.key: row for row in ledger.stats("day", since=since)}
        roles = ledger.stats("role", since=since)
        peers = ledger.stats("peer", since=since)
        machines = ledger.stats("machine", since=since)
    names = [(first + timedelta(days=number)).isoformat() for number in range(days)]
    return {
        "days": days,
        "day": [_row(name, by_day.get(name)) for name in names],
        "role": [_row(row.key, row) for row in roles],
        "peer": [_row(row.key, row) for row in peers],
        "machine": [_row(row.key, row) for row in machines],
    }


def _row(key: str | None, row: StatRow | None) -> dict[str, Any]:
    if row is None:
        return {
            "key": key, "attempts": 0, "done": 0, "failed": 0, "unfinished": 0, "totalSeconds": 0.0,
            "seconds": None, "costs": {}, "costUnknown": 0, "costEstimated": 0,
        }  # fmt: skip
    return {
        "key": key,
        "attempts": row.attempts,
        "done": row.done,
        "failed": row.finished - row.done,
        "unfinished": row.unfinished,
        "totalSeconds": row.total_seconds,
        "seconds": row.seconds,
        "costs": row.costs,
        "costUnknown": row.cost_unknown,
        "costEstimated": row.cost_estimated,
    }
