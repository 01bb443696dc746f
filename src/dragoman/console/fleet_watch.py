"""Follow the user's fleets: the workers and jobs of each team, as a submitter sees them.

A fleet server publishes every job change, and a message when the list of workers has changed. Facts
that only the coordinator knows, such as why a job waits, are requested after a change.
`fleet_routes` handles the requests of the page. Without a fleet credential, no fleet module is
imported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from dragoman.client.folders import make_private
from dragoman.console.retry import changed_or_due
from dragoman.errors import DragomanError, FleetError, FleetRefused, UnknownJob, UsageError
from dragoman.rpc.tasks import TaskOwner, in_thread
from dragoman.transports.file_watch import FileWatch

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from dragoman.console.live_state import LiveState
    from dragoman.fleet.connection import FleetConnection
    from dragoman.fleet.credentials import MemberCredential
    from dragoman.fleet.records import FleetJob, JobLine, WorkerStatus

log: Final = logging.getLogger("dragoman.console")

FOLDER: Final = "fleet"
"""Directory of the credentials, in the data directory."""

TELL_INTERVAL: Final = 0.2
"""Seconds during which changes are combined into one message to the browsers."""

ASK_INTERVAL: Final = 1.0
"""Seconds between two requests to the coordinator while jobs keep changing."""

CONNECT_INTERVAL: Final = 5.0
"""Seconds before reconnecting to a server that could not be reached."""

MAX_JOBS: Final = 500
"""Maximum number of jobs in the list, newest first."""


class FleetWatch:
    """Follows every team that the user can submit jobs to. Call `start`, and always `aclose`."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._folder = state.paths.data / FOLDER
        self._tasks = TaskOwner("fleet watch")
        self._watch: FileWatch | None = None
        self._joined = asyncio.Event()
        self._failed = 0
        """Number of consecutive failed reads of the credentials."""
        self.problem = ""
        """Why some credentials cannot be read; empty if all can be."""
        self._teams: dict[str, TeamWatch] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        state.add_to_snapshot("fleets", lambda: list(self._teams))
        state.add_to_snapshot("fleetProblem", lambda: self.problem)

    async def start(self) -> None:
        # The directory must exist to be watched.
        make_private(self._folder)
        self._watch = FileWatch([self._folder], lambda folder, name: self._joined.set())
        await self._read()
        self._tasks.start(self._follow_credentials(), "follow the credentials")

    async def aclose(self) -> None:
        if self._watch is not None:
            self._watch.close()
        # Closing a connection counts as a change and starts the timer: cancel the timer last.
        await self._tasks.aclose()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def teams(self) -> list[TeamWatch]:
        return list(self._teams.values())

    def team(self, id: str) -> TeamWatch | None:
        return self._teams.get(id)

    async def _follow_credentials(self) -> None:
        """Read the credentials again each time they change: the user may join or leave a team at
        any time."""
        while True:
            await changed_or_due(self._joined, self._failed)
            # A file is written in several steps.
            await asyncio.sleep(TELL_INTERVAL)
            self._joined.clear()
            await self._read()

    async def _read(self) -> None:
        try:
            found, problem = await in_thread(str(self._folder), lambda _: self._credentials())
        except (DragomanError, OSError) as error:
            if self._has_problem(str(error)):
                self._changed()
            return
        self._has_problem(problem)
        for id in list(self._teams):
            if found.get(id) != self._teams[id].credential:
                del self._teams[id]
                self._running.pop(id).cancel()
        for id, credential in found.items():
            if id not in self._teams:
                team = self._teams[id] = TeamWatch(id, credential, self._changed)
                self._running[id] = self._tasks.start(team.run(), f"follow the fleet {id}")
        self._changed()

    def _has_problem(self, problem: str) -> bool:
        """Store why some credentials cannot be read; `problem` is empty if all can be. Returns
        whether it has changed."""
        self._failed = self._failed + 1 if problem else 0
        is_new = problem != self.problem
        self.problem = problem
        if problem and is_new:
            log.warning("cannot read the fleet credentials: %s", problem)
        return is_new

    def _credentials(self) -> tuple[dict[str, MemberCredential], str]:
        """Return the usable credentials by id, and why the others cannot be used (empty if all can
        be). Raises `UsageError` if there are credentials but nats-py is missing."""
        if not any(self._folder.glob("*.*.json")):
            return {}, ""
        try:
            import nats  # noqa: F401
        except ImportError as error:
            raise UsageError("nats-py is missing: pip install 'dragoman[fleet]'") from error
        from dragoman.fleet.credentials import credentials_of

        found, problems = credentials_of(self._state.paths, "submitter")
        return {f"{one.team}.{one.name}": one for one in found}, "; ".join(map(str, problems))

    def _changed(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TELL_INTERVAL, self._tell)

    def _tell(self) -> None:
        self._timer = None
        fleets = list(self._teams)
        self._state.tell({"type": "fleet", "fleets": fleets, "problem": self.problem})


class TeamWatch:
    """One team, as one of its submitters sees it."""

    def __init__(
        self, id: str, credential: MemberCredential, on_change: Callable[[], None]
    ) -> None:
        self.id = id
        self.credential = credential
        self.connection: FleetConnection | None = None
        self._on_change = on_change
        self._stale = asyncio.Event()
        self._connected = False
        self._problem = ""
        self._jobs: dict[str, dict[str, Any]] = {}
        self._workers: list[dict[str, Any]] = []

    def shown(self) -> dict[str, Any]:
        """Return the team as JSON for the page."""
        jobs = sorted(self._jobs.values(), key=lambda job: job["createdAt"], reverse=True)
        return {
            "id": self.id,
            "team": self.credential.team,
            "name": self.credential.name,
            "connected": self._connected,
            "problem": self._problem,
            "workers": self._workers,
            "jobs": jobs[:MAX_JOBS],
            "more": max(0, len(jobs) - MAX_JOBS),
        }

    def open_connection(self) -> FleetConnection:
        """Return the open connection. Raises `FleetUnreachable` if there is none."""
        from dragoman.errors import FleetUnreachable

        if self.connection is None:
            raise FleetUnreachable(self._problem or f"not connected to fleet {self.id}")
        return self.connection

    async def job(self, id: str) -> FleetJob:
        """Return the record of a job. Raises `UnknownJob` if the fleet has none with this id, and
        `FleetUnreachable` if there is no open connection."""
        from dragoman.fleet.submitter import read_job

        found = await read_job(self.open_connection(), id)
        if found is None:
            raise UnknownJob(f"fleet {self.credential.team} has no job {id[:100]!r}")
        return found

    async def run(self) -> None:
        """Follow the team until cancelled, or until the server refuses the credential."""
        while True:
            try:
                await self._follow()
            except FleetRefused as error:
                log.warning("fleet %s refused the credential: %s", self.id, error)
                self._lost(str(error))
                return
            except DragomanError as error:
                log.info("cannot follow fleet %s: %s", self.id, error)
                self._lost(str(error))
            await asyncio.sleep(CONNECT_INTERVAL)

    async def _follow(self) -> None:
        from dragoman.fleet import subjects
        from dragoman.fleet.connection import FleetConnection

        tasks = TaskOwner(f"fleet {self.id}")
        async with FleetConnection(self.credential, on_connected=self._link_changed) as connection:
            try:
                # After a dropped message, request the lists again.
                await connection.subscribe(
                    subjects.JOB_SUBJECTS, self._job_changed, on_dropped=self._stale.set
                )
                await connection.subscribe(
                    subjects.WORKERS, self._workers_changed, on_dropped=self._stale.set
                )
                self.connection, self._connected = connection, True
                closed = tasks.start(connection.wait_closed(), "wait for the end")
                closed.add_done_callback(lambda _: self._stale.set())
                failed = 0
                while not closed.done():
                    self._stale.clear()
                    failed = 0 if await self._ask(connection) else failed + 1
                    await changed_or_due(self._stale, failed)
                    await asyncio.sleep(ASK_INTERVAL)
                raise connection.refusal()
            finally:
                self.connection, self._connected = None, False
                await tasks.aclose()

    async def _ask(self, connection: FleetConnection) -> bool:
        """Request the lists of jobs and workers, and store them. Returns whether the coordinator
        sent both."""
        from dragoman.fleet.submitter import ask

        try:
            jobs = (await ask(connection, "jobs")).jobs
            self._workers = [_worker(each) for each in (await ask(connection, "workers")).workers]
        except DragomanError as error:
            self._problem = str(error)
            answered = False
        else:
            self._jobs = {line.id: _line(line) for line in jobs}
            self._problem = ""
            answered = True
        self._on_change()
        return answered

    async def _job_changed(self, message: Msg) -> None:
        from dragoman.fleet.records import FleetJob, decode, job_line

        try:
            job = decode(message.data, FleetJob)
        except FleetError as error:
            log.debug("ignored an invalid job record from fleet %s: %s", self.id, error)
        else:
            self._jobs[job.id] = _line(job_line(job))
            self._on_change()
        self._stale.set()

    async def _workers_changed(self, message: Msg) -> None:
        self._stale.set()

    def _link_changed(self, connected: bool) -> None:
        self._connected = connected
        self._problem = "" if connected else "the connection to the fleet was lost; reconnecting"
        # Changes made while disconnected were not received.
        self._stale.set()
        self._on_change()

    def _lost(self, problem: str) -> None:
        self._problem = problem
        self._on_change()


def _worker(worker: WorkerStatus) -> dict[str, Any]:
    return {
        "name": worker.name,
        "machine": worker.machine,
        "slots": worker.slots,
        "running": [each.job for each in worker.running],
        "labels": list(worker.labels),
        "peers": worker.peers,
        "draining": worker.draining,
        "version": worker.version,
    }


def _line(line: JobLine) -> dict[str, Any]:
    return {
        "id": line.id,
        "submitter": line.submitter,
        "role": line.role,
        "prompt": line.prompt,
        "state": line.state,
        "worker": line.worker,
        "attempts": line.attempts,
        "createdAt": line.created_at,
        "outcome": line.outcome,
        "waiting": line.waiting,
    }
