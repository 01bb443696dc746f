"""HTTP API of the fleet screen: teams with workers and jobs, one job, its events, and cancel.

It calls the same functions as `dragoman fleet workers|jobs|watch|cancel`. `fleet_watch` owns the
connections.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from dragoman.console.json_routes import MAX_ID, json_route
from dragoman.console.retry import delay_after
from dragoman.console.session_feed import as_json
from dragoman.decoders import convert_typed
from dragoman.errors import FleetUnreachable, UnknownJob
from dragoman.events import model
from dragoman.rpc.tasks import together
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from dragoman.console.fleet_watch import FleetWatch, TeamWatch
    from dragoman.console.live_state import LiveState
    from dragoman.console.session_feed import Send
    from dragoman.fleet.records import FleetJob
    from dragoman.fleet.submitter import FleetEvent, JobReader

FEED: Final = "fleet/"
"""Prefix of the keys with which browsers follow a job's events: fleet/TEAM/JOB."""

_JOB_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Pattern of a valid job id. An id becomes part of a NATS subject, so it must not contain dots or
wildcards."""


class FleetRoutes:
    """Handles the requests of the fleet screen."""

    def __init__(self, state: LiveState, fleet: FleetWatch) -> None:
        self._fleet = fleet
        state.add_feed(FEED, self._follow)

    def routes(self) -> Sequence[Route]:
        at = "/api/v1/fleet"
        return [
            Route(at, json_route(self._all)),
            Route(f"{at}/{{team}}/jobs/{{id}}", json_route(self._job)),
            Route(f"{at}/{{team}}/jobs/{{id}}/cancel", json_route(self._cancel), methods=["POST"]),
        ]

    async def _all(self, request: Request) -> Any:
        teams = [team.shown() for team in self._fleet.teams]
        return {"teams": teams, "problem": self._fleet.problem}

    async def _job(self, request: Request) -> Any:
        team, id = self._named(request.path_params["team"], request.path_params["id"])
        return job_as_json(await team.job(id), mine=team.credential.name)

    async def _cancel(self, request: Request) -> Any:
        from dragoman.fleet.submitter import cancel

        team, id = self._named(request.path_params["team"], request.path_params["id"])
        return {"cancelled": await cancel(team.open_connection(), id)}

    def _named(self, team: str, id: str) -> tuple[TeamWatch, str]:
        found = self._fleet.team(team)
        if found is None:
            raise UnknownJob(f"this user has no submitter credential for fleet {team[:MAX_ID]!r}")
        if not _JOB_ID.fullmatch(id):
            raise UnknownJob(f"the fleet has no job {id[:MAX_ID]!r}")
        return found, id

    async def _follow(self, key: str, send: Send) -> None:
        """Send a job's events, from the first one, until the job is done. If the fleet cannot be
        reached, try again, which sends them all again."""
        from dragoman.fleet.connection import FleetConnection
        from dragoman.fleet.submitter import JobReader

        team, id = self._named(*key.removeprefix(FEED).rpartition("/")[::2])
        await send([], True)
        notices = _Notices(send)
        failed, told = 0, ""
        while True:
            try:
                # A separate connection: closing it ends the reader's subscriptions.
                async with FleetConnection(team.credential) as connection:
                    reader = JobReader(connection, id, on_notice=notices.add)
                    await together(_send_events(reader, notices, send), notices.run())
                return
            except FleetUnreachable as error:
                failed += 1
                if str(error) != told:
                    told = str(error)
                    notices.add(f"{told}; trying again")
                    await send(notices.take(), True)
            await asyncio.sleep(delay_after(failed))


class _Notices:
    """Collects the notices of a job reader. `run` sends them even if no event follows, for example
    while the server does not answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._texts: list[str] = []
        self._counts: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._ended = False

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._changed.set()

    def end(self) -> None:
        """Let `run` end after it has sent the last notices."""
        self._ended = True
        self._changed.set()

    def take(self) -> list[dict[str, Any]]:
        """Return the notices that were not sent yet, and forget them."""
        texts, self._texts = self._texts, []
        return [self._told(text) for text in texts]

    def _told(self, text: str) -> dict[str, Any]:
        # Numbered, because the browser skips a mark that it has seen, and a server may be lost
        # more than once.
        self._counts[text] += 1
        mark = f"notice:{self._counts[text]}:{text}"
        return _notice(text, severity="warning", mark=mark)

    async def run(self) -> None:
        """Send notices until `end` is called."""
        ended = False
        while not ended:
            await self._changed.wait()
            self._changed.clear()
            ended = self._ended
            if notices := self.take():
                await self._send(notices, True)


async def _send_events(reader: JobReader, notices: _Notices, send: Send) -> None:
    attempt = 0
    async with aclosing(reader.follow()) as events:
        async for event in events:
            told = [*notices.take(), _event_as_json(event)]
            if event.attempt != attempt:
                attempt = event.attempt
                told.insert(0, _attempt_began(event))
            await send(told, True)
    notices.end()


def _attempt_began(event: FleetEvent) -> dict[str, Any]:
    title = f"attempt {event.attempt} on {event.worker}"
    return _notice(title, severity="info", mark=f"{event.attempt}")


def _notice(title: str, *, severity: str, mark: str) -> dict[str, Any]:
    return {
        "type": "Noticed",
        "severity": severity,
        "title": title,
        "detail": None,
        "retrying": False,
        "mark": mark,
    }


def _event_as_json(event: FleetEvent) -> dict[str, Any]:
    from dragoman.fleet.records import NOTICE

    # All events are sent again after a reconnect. The browser uses the mark to skip duplicates.
    mark = f"{event.attempt}:{event.number}"
    if event.event.get("type") == NOTICE:
        text = f"{event.worker}: {event.event.get('text')}"
        return _notice(text, severity="warning", mark=mark)
    try:
        # Workers do not send the raw message of an event.
        told = as_json(convert_typed({"raw": None} | event.event, model.Event))
    except UNDECODABLE:
        # A worker may send anything, and a newer one may send unknown kinds of events.
        told = {"type": "Unknown"}
    return told | {"mark": mark}


def job_as_json(job: FleetJob, *, mine: str) -> dict[str, Any]:
    """Return a job with its attempts and its result, as JSON. `mine` is the name of this
    submitter."""
    spec, result = job.spec, job.result
    return {
        "id": job.id,
        "submitter": job.submitter,
        "mine": job.submitter == mine,
        "role": spec.role,
        "prompt": spec.prompt,
        "peer": spec.peer,
        "needs": list(spec.needs),
        "state": job.state,
        "cancelled": job.cancelled,
        "createdAt": job.created_at,
        "endedAt": job.ended_at,
        "attempts": [
            {
                "number": each.number,
                "worker": each.worker,
                "assignedAt": each.assigned_at,
                "endedAt": each.ended_at,
                "end": each.end,
                "why": each.why,
            }
            for each in job.attempts
        ],
        "result": None
        if result is None
        else {
            "ok": result.ok,
            "outcome": result.outcome,
            "text": result.text,
            "peer": result.peer,
            "worker": result.worker,
            "attempt": result.attempt,
            "seconds": result.seconds,
            "patch": result.patch is not None,
            "why": result.why,
        },
    }
