"""What the console knows of all work: open questions, sessions and jobs, kept up to date.

Brokers tell of questions. Sessions and jobs are read from the store again when its files change,
and only what differs is passed on. `session_feed` follows the events of one session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.broker.client.brokers import list_brokers
from dragoman.broker.client.question_watch import answer_question, watch_questions
from dragoman.broker.endpoint import brokers_folder
from dragoman.broker.endpoint import make_private as make_runtime
from dragoman.client.folders import make_state
from dragoman.config.safe_files import locked, read_file, write_file
from dragoman.console.questions import OpenForm, OpenPermission, open_question
from dragoman.errors import ConnectError, ConnectionLost, DragomanError
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.jobs import list_jobs
from dragoman.store.open import open_store
from dragoman.store.store import FILE_NAME
from dragoman.transports.file_watch import FileWatch
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.protocol import ShownQuestion
    from dragoman.broker.records import BrokerRecord
    from dragoman.paths import Paths
    from dragoman.store.records import JobRecord, SessionRecord

log: Final = logging.getLogger("dragoman.console")

READ_INTERVAL: Final = 0.2
"""Seconds between two reads of the store while it changes all the time."""

RETRY_INTERVAL: Final = 0.5
"""Seconds until a broker that is there and could not be reached is tried again."""

MAX_SESSIONS: Final = 300
MAX_JOBS: Final = 600
MAX_PROMPT: Final = 300
"""Characters of a prompt in a list."""

MAX_SEEN: Final = 5 * MAX_JOBS
"""Jobs that are remembered as seen: more than are shown."""

GOOD: Final = frozenset({"ok"})
CALM: Final = frozenset({"cancelled"})


class LiveState:
    """Follows all brokers and the store of one user. `start` it, and always `aclose` it."""

    def __init__(self, paths: Paths, *, answers: bool, since: float = 0.0) -> None:
        self.paths = paths
        self._answers = answers
        self._since = since
        """What ended before counts as seen."""
        self._seen = SeenJobs(paths)
        self._tasks = TaskOwner("console")
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._store_listeners: list[Callable[[], None]] = []
        self._file_listeners: list[Callable[[str], None]] = []
        self._watch: FileWatch | None = None
        self._brokers: dict[str, BrokerRecord] = {}
        """Those that are watched, by name."""
        self._questions: dict[str, tuple[BrokerRecord, OpenPermission | OpenForm]] = {}
        self._sessions: dict[str, SessionRecord] = {}
        self._jobs: list[JobRecord] = []
        self._work: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Event()
        self._brokers_changed = asyncio.Event()

    async def start(self) -> None:
        folder = brokers_folder(self.paths.runtime)
        # Both have to be there to be watched.
        make_state(self.paths.state)
        make_runtime(folder)
        self._watch = FileWatch([self.paths.state, folder], self._file_changed)
        await self._read()
        self._tasks.start(self._follow_store(), "follow the store")
        self._tasks.start(self._follow_brokers(), "follow the brokers")
        self._brokers_changed.set()

    async def aclose(self) -> None:
        if self._watch is not None:
            self._watch.close()
        await self._tasks.aclose()

    # -- for those who show it

    def subscribe(self, listener: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Hand every change to `listener`; call the result to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_store(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after sessions and jobs were read again."""
        self._store_listeners.append(listener)
        return lambda: self._store_listeners.remove(listener)

    def on_state_file(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each file in the state folder that changes."""
        self._file_listeners.append(listener)

    @property
    def questions(self) -> list[OpenPermission | OpenForm]:
        """The questions that wait for a person, the oldest first."""
        found = [question for _, question in self._questions.values()]
        return sorted(found, key=lambda question: question.asked_at)

    @property
    def work(self) -> list[dict[str, Any]]:
        """Sessions and what is done in them, the one used last first."""
        return sorted(self._work.values(), key=lambda item: item["updatedAt"], reverse=True)

    def question(self, id: str) -> OpenPermission | OpenForm | None:
        found = self._questions.get(id)
        return None if found is None else found[1]

    def session(self, key: str) -> SessionRecord | None:
        return self._sessions.get(key)

    async def find_session(self, key: str) -> SessionRecord | None:
        """A session that may have begun at this moment."""
        if key not in self._sessions:
            await self._read()
        return self._sessions.get(key)

    def jobs_of(self, key: str) -> list[JobRecord]:
        """The jobs of a session that have begun or wait, the oldest first."""
        return [job for job in reversed(self._jobs) if job.session_key == key]

    def broker_of(self, key: str) -> BrokerRecord | None:
        """The broker that may have a session open, by the job that ran in it last."""
        for job in self._jobs:
            if job.session_key == key and job.endpoint is not None:
                return self._brokers.get(job.endpoint)
        return None

    async def answer(self, id: str, digest: str, result: Any) -> bool:
        """Answer a question at its broker. False if it does not wait for an answer any more.
        Raises `RemoteError` if the answer does not fit."""
        found = self._questions.get(id)
        return found is not None and await answer_question(found[0].address, id, digest, result)

    def mark_seen(self, job: str) -> None:
        """A person has seen how a job ended."""
        self._seen.add(job)
        self._tell_work()

    # -- changes

    def _tell(self, message: dict[str, Any]) -> None:
        for listener in list(self._listeners):
            listener(message)

    def _file_changed(self, folder: Path, name: str) -> None:
        if folder != self.paths.state:
            self._brokers_changed.set()
            return
        # Readers write to the file beside it, `-shm`, so that one says nothing.
        if name in (FILE_NAME, f"{FILE_NAME}-wal"):
            self._changed.set()
        elif name == SeenJobs.FILE_NAME:
            self._tell_work()
        for listener in self._file_listeners:
            listener(name)

    # -- sessions and jobs

    async def _follow_store(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._read()
            except DragomanError as error:
                log.warning("the session store cannot be read: %s", error)
            # Changes of this time are read together.
            await asyncio.sleep(READ_INTERVAL)

    async def _read(self) -> None:
        sessions, jobs = await asyncio.to_thread(self._load)
        self._sessions = {record.key: record for record in sessions}
        # What is delegated is done in its attempts, each of which is a job with a session.
        parents = {job.id.rpartition("-")[0] for job in jobs if _is_attempt(job)}
        self._jobs = [job for job in jobs if job.id not in parents]
        self._tell_work()
        for listener in list(self._store_listeners):
            listener()

    def _load(self) -> tuple[list[SessionRecord], list[JobRecord]]:
        jobs = list_jobs(limit=MAX_JOBS, paths=self.paths)
        with open_store(read_only=True, paths=self.paths) as store:
            return store.sessions(limit=MAX_SESSIONS), jobs

    def _tell_work(self) -> None:
        now = self._summaries()
        for id, item in now.items():
            if self._work.get(id) != item:
                self._tell({"type": "work", "item": item})
        for id in self._work.keys() - now.keys():
            self._tell({"type": "gone", "id": id})
        self._work = now

    def _summaries(self) -> dict[str, dict[str, Any]]:
        jobs: dict[str, list[JobRecord]] = {}
        found: dict[str, dict[str, Any]] = {}
        seen = set(self._seen.jobs)
        for job in self._jobs:
            if job.session_key:
                jobs.setdefault(job.session_key, []).append(job)
            elif not _is_attempt(job):
                item = self._summary(job.id, [job], seen, waiting=False)
                found[job.id] = item | {"session": None, "peer": job.peer, "root": job.root}
        waiting = {question.session for _, question in self._questions.values()}
        for key, record in self._sessions.items():
            item = self._summary(key, jobs.get(key, []), seen, waiting=key in waiting)
            found[key] = item | {
                "session": key,
                "peer": record.peer,
                "root": record.root,
                "cwd": record.cwd,
                "name": record.name,
                "title": record.title,
                "model": record.model,
                "mode": record.mode,
                "closedAt": record.closed_at,
                "events": record.events,
                "createdAt": record.created_at,
                "updatedAt": max(record.updated_at, item["updatedAt"]),
            }
        return found

    def _summary(
        self, id: str, jobs: list[JobRecord], seen: set[str], *, waiting: bool
    ) -> dict[str, Any]:
        item = summary_of(id, jobs, waiting=waiting)
        job = item["job"]
        if job is not None and item["state"] in ("done", "failed"):
            job["unseen"] = (job["endedAt"] or 0.0) >= self._since and job["id"] not in seen
        return item

    # -- brokers and their questions

    async def _follow_brokers(self) -> None:
        while True:
            await self._brokers_changed.wait()
            self._brokers_changed.clear()
            for record in await asyncio.to_thread(list_brokers, self.paths):
                if not record.draining and record.name not in self._brokers:
                    self._brokers[record.name] = record
                    self._tasks.start(self._follow_broker(record), f"watch {record.name}")
            # A broker writes its record several times when it starts.
            await asyncio.sleep(READ_INTERVAL)

    async def _follow_broker(self, record: BrokerRecord) -> None:
        """Watch one broker until it ends. What it does not tell any more is gone."""

        def asked(shown: ShownQuestion) -> None:
            question = open_question(shown, record)
            if question is None:
                log.warning("a question of %s cannot be read", record.name)
                return
            self._questions[question.id] = (record, question)
            self._tell({"type": "question", "question": msgspec.to_builtins(question)})
            self._tell_work()

        def settled(id: str, by: str) -> None:
            if self._questions.pop(id, None) is not None:
                self._tell({"type": "settled", "id": id, "by": by})
                self._tell_work()

        def forget() -> None:
            for id in [id for id, (each, _) in self._questions.items() if each is record]:
                settled(id, "broker")

        try:
            await watch_questions(
                record.address,
                record.name,
                answers=self._answers,
                on_question=asked,
                on_settled=lambda over: settled(over.id, over.by),
                on_connected=forget,
            )
        except (ConnectError, ConnectionLost) as error:
            log.debug("the broker %s is not watched: %s", record.name, error)
        except DragomanError as error:
            log.info("the questions of the broker %s are not shown: %s", record.name, error)
        forget()
        await asyncio.sleep(RETRY_INTERVAL)
        del self._brokers[record.name]
        # It is watched again if it is still there.
        self._brokers_changed.set()


class SeenJobs:
    """Which ends of jobs a person has seen, in a file, so that all browsers agree."""

    FILE_NAME = "console-seen.json"

    def __init__(self, paths: Paths) -> None:
        self._path = paths.state / self.FILE_NAME

    @property
    def jobs(self) -> list[str]:
        data = read_file(self._path)
        try:
            return [] if data is None else msgspec.json.decode(data, type=list[str])
        except UNDECODABLE:
            return []

    def add(self, job: str) -> None:
        with locked(self._path):
            jobs = self.jobs
            if job not in jobs:
                kept = [*jobs, job][-MAX_SEEN:]
                write_file(self._path, msgspec.json.encode(kept) + b"\n", mode=0o600)


def _is_attempt(job: JobRecord) -> bool:
    return job.id.count("-") > 1


def summary_of(id: str, jobs: list[JobRecord], *, waiting: bool) -> dict[str, Any]:
    """What is done in a session, of its jobs, the newest first."""
    running = next((job for job in reversed(jobs) if job.state == "running"), None)
    queued = [job for job in jobs if job.state == "queued"]
    ended = [job for job in jobs if job.state == "ended"]
    last = max(ended, key=lambda job: job.ended_at or 0.0, default=None)
    if running is not None:
        state = "waiting" if waiting else "working"
    elif queued:
        state = "queued"
    elif last is None or last.outcome in CALM:
        state = "idle"
    else:
        state = "done" if last.outcome in GOOD else "failed"
    shown = running or (queued[-1] if queued else last)
    times = [job.ended_at or job.started_at or job.created_at for job in jobs]
    return {
        "id": id,
        "state": state,
        "queued": len(queued),
        "job": None if shown is None else _job(shown),
        "cost": _cost(ended),
        "createdAt": min((job.created_at for job in jobs), default=0.0),
        "updatedAt": max(times, default=0.0),
    }


def _job(job: JobRecord) -> dict[str, Any]:
    failure = (job.failure or {}).get("message")
    return {
        "id": job.id,
        "state": job.state,
        "outcome": job.outcome,
        "prompt": job.prompt[:MAX_PROMPT],
        "failure": None if failure is None else str(failure)[:MAX_PROMPT],
        "createdAt": job.created_at,
        "startedAt": job.started_at,
        "endedAt": job.ended_at,
    }


def _cost(jobs: list[JobRecord]) -> dict[str, Any] | None:
    """What a session has cost, where its turns say so, in their first unit."""
    costs = [cost for job in jobs if isinstance(cost := (job.usage or {}).get("cost"), dict)]
    unit = next((cost.get("unit") for cost in costs), None)
    amounts = [
        cost["amount"]
        for cost in costs
        if cost.get("unit") == unit and isinstance(cost.get("amount"), int | float)
    ]
    return {"amount": round(sum(amounts), 6), "unit": unit} if amounts else None
