"""The live state of all work: open questions, sessions and jobs.

Brokers, and runs without a broker, report questions. When the files of the store change, sessions
and jobs are read again, and only the differences are passed on. `session_feed` follows the events
of one session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.broker import question_sockets
from dragoman.broker.client.brokers import list_brokers
from dragoman.broker.client.question_watch import Watched, answer_question, watch_questions
from dragoman.broker.endpoint import brokers_folder
from dragoman.broker.endpoint import make_private as make_runtime
from dragoman.broker.lock import mark_console
from dragoman.client.folders import make_state
from dragoman.config.safe_files import locked, read_file, write_file
from dragoman.console.questions import OpenForm, OpenPermission, open_question
from dragoman.console.retry import changed_or_due
from dragoman.console.work_items import is_attempt, summary_of, with_delegations
from dragoman.errors import CallTimeout, ConnectError, ConnectionLost, DragomanError
from dragoman.rpc.tasks import TaskOwner, in_thread
from dragoman.runs.jobs import list_jobs
from dragoman.store.open import open_store
from dragoman.store.records import EDITOR_PEER
from dragoman.store.store import FILE_NAME
from dragoman.transports.file_watch import FileWatch
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.lock import HeldLock
    from dragoman.broker.protocol import ShownQuestion
    from dragoman.broker.records import BrokerRecord
    from dragoman.console.session_feed import Send
    from dragoman.paths import Paths
    from dragoman.store.records import JobRecord, SessionRecord
    from dragoman.store.values import Park

log: Final = logging.getLogger("dragoman.console")

READ_INTERVAL: Final = 0.2
"""Seconds between two reads of the store while it keeps changing."""

LATE_INTERVAL: Final = 1.0
"""Seconds after the last change until the store is read once more. SQLite first writes a change to
its log, which we notice, and then makes it visible, which we do not notice. On a busy machine the
store may be read between the two."""

RETRY_INTERVAL: Final = 0.5
"""Seconds before the store is read again after an error, and before reconnecting to a broker."""

REFUSED_INTERVAL: Final = 5.0
"""Additional seconds before reconnecting to a broker that refuses to be watched."""

MAX_REFUSED: Final = 3
"""Number of consecutive failed connections after which the socket of a run is removed."""

MAX_SESSIONS: Final = 300
MAX_JOBS: Final = 600
"""Maximum number of listed sessions and jobs. Older ones are read on request."""

MAX_TITLE: Final = 300
"""Maximum length of a session's title, model or mode, in characters. They come from an agent and
are sent with every change."""

MAX_SEEN: Final = 5 * MAX_JOBS
"""Maximum number of jobs remembered as seen. Higher than the number of jobs shown."""


class LiveState:
    """Follows all brokers and the store of one user. Call `start`, and always `aclose`."""

    def __init__(self, paths: Paths, *, answers: bool, since: float = 0.0) -> None:
        self.paths = paths
        self._answers = answers
        self._since = since
        """Work that ended before this time counts as seen."""
        self._seen = SeenJobs(paths)
        self._tasks = TaskOwner("console")
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._store_listeners: list[Callable[[], None]] = []
        self._file_listeners: list[Callable[[str], None]] = []
        self._watch: FileWatch | None = None
        self._brokers: dict[str, BrokerRecord] = {}
        """The watched brokers, by name."""
        self._runs: set[str] = set()
        """The addresses of the watched runs that have no broker."""
        self._mark: HeldLock | None = None
        self._questions: dict[str, tuple[str, OpenPermission | OpenForm]] = {}
        """The open questions by id, each with the address to which its answer is sent."""
        self._sessions: dict[str, SessionRecord] = {}
        self._jobs: list[JobRecord] = []
        self._shown: list[JobRecord] = []
        """The listed jobs as the work screen shows them: see `with_delegations`."""
        self._work: dict[str, dict[str, Any]] = {}
        self.parked: dict[str, Park] = {}
        """The parked peers, which delegation skips."""
        self._further: dict[str, Callable[[], Any]] = {}
        self._feeds: dict[str, Callable[[str, Send], Awaitable[None]]] = {}
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        """Held while the store is read: an earlier read must not replace a later one."""
        self._brokers_changed = asyncio.Event()

    async def start(self) -> None:
        folder = brokers_folder(self.paths.runtime)
        # Only existing directories can be watched.
        make_state(self.paths.state)
        make_runtime(folder)
        runs = question_sockets.questions_folder(self.paths)
        make_runtime(runs)
        self._watch = FileWatch([self.paths.state, folder, runs], self._file_changed)
        await self._read()
        self._tasks.start(self._follow_store(), "follow the store")
        self._tasks.start(self._follow_brokers(), "follow the brokers")
        self._brokers_changed.set()
        if self._answers:
            self._mark = mark_console(self.paths)

    async def aclose(self) -> None:
        if self._mark is not None:
            self._mark.release()
        if self._watch is not None:
            self._watch.close()
        await self._tasks.aclose()

    # -- reading the state

    def subscribe(self, listener: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Pass every message for browsers to `listener`. Returns a function that unsubscribes
        it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_store(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` each time sessions and jobs were read again. Returns a function that
        unsubscribes it."""
        self._store_listeners.append(listener)
        return lambda: self._store_listeners.remove(listener)

    def on_state_file(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each file that changes in the state directory."""
        self._file_listeners.append(listener)

    def add_to_snapshot(self, name: str, read: Callable[[], Any]) -> None:
        """Add a field to the snapshot, the first message that each browser gets. `read` returns its
        value at that time."""
        self._further[name] = read

    def add_feed(self, prefix: str, follow: Callable[[str, Send], Awaitable[None]]) -> None:
        """Let browsers follow something other than a session under keys with this prefix. `follow`
        is called with a key, and sends its events until they end or it is cancelled."""
        self._feeds[prefix] = follow

    def feed_of(self, key: str) -> Callable[[str, Send], Awaitable[None]] | None:
        """Return the function that `add_feed` registered for a key's prefix; None for the key of a
        session."""
        return next((feed for prefix, feed in self._feeds.items() if key.startswith(prefix)), None)

    def snapshot(self) -> dict[str, Any]:
        """Return the current values of the fields added with `add_to_snapshot`, by name."""
        return {name: read() for name, read in self._further.items()}

    def set_parked(self, parked: dict[str, Park]) -> None:
        """Store which peers are parked now, and send browsers the items of the work screen that
        change."""
        if parked != self.parked:
            self.parked = parked
            self._tell_work()

    @property
    def questions(self) -> list[OpenPermission | OpenForm]:
        """The open questions, oldest first."""
        found = [question for _, question in self._questions.values()]
        return sorted(found, key=lambda question: question.asked_at)

    @property
    def work(self) -> list[dict[str, Any]]:
        """The items of the work screen, most recently used first."""
        return sorted(self._work.values(), key=lambda item: item["updatedAt"], reverse=True)

    def question(self, id: str) -> OpenPermission | OpenForm | None:
        found = self._questions.get(id)
        return None if found is None else found[1]

    def session(self, key: str) -> SessionRecord | None:
        return self._sessions.get(key)

    async def find_session(self, key: str) -> SessionRecord | None:
        """Return a session, even if it is brand new or too old for the list; None if it does not
        exist."""
        if key not in self._sessions:
            await self._read()
        if key in self._sessions:
            return self._sessions[key]
        return await in_thread(key, lambda _: self._stored_session(key))

    async def find_item(self, key: str) -> dict[str, Any] | None:
        """Return a session's item for the work screen, even if the session is too old for the list;
        None if the session does not exist."""
        record = await self.find_session(key)
        if record is None or key in self._work:
            return self._work.get(key)
        jobs = with_delegations(await self.stored_jobs(key))
        return self._session_item(record, jobs, set(self._seen.jobs), waiting=False)

    async def stored_jobs(self, key: str) -> list[JobRecord]:
        """Return all stored jobs of a session, newest first, without their answers. Delegations
        that have attempts are left out."""
        return await in_thread(key, lambda _: self._stored_jobs(key))

    def jobs_of(self, key: str) -> list[JobRecord]:
        """Return the listed jobs of a session (running, queued and ended), oldest first."""
        return [job for job in reversed(self._jobs) if job.session_key == key]

    def broker_of(self, key: str) -> BrokerRecord | None:
        """Return the broker that may have the session open: that of the session's last listed job.
        None if that job has no broker, or its broker is not watched."""
        last = next((job for job in self._jobs if job.session_key == key), None)
        if last is None or last.endpoint is None:
            return None
        return self._brokers.get(last.endpoint)

    async def answer(self, id: str, digest: str, result: Any) -> bool:
        """Send an answer to the process that asked the question with this id. `digest` is that of
        the question as the user saw it. Returns False if the question is no longer open. Raises
        `RemoteError` if the answer is invalid."""
        found = self._questions.get(id)
        return found is not None and await answer_question(found[0], id, digest, result)

    async def mark_seen(self, job: str) -> None:
        """Record that the user has seen that a job ended."""
        await in_thread(str(self.paths.state), lambda _: self._seen.add(job), changes_disk=True)
        self._tell_work()

    # -- changes

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message to every browser."""
        for listener in list(self._listeners):
            listener(message)

    def _file_changed(self, folder: Path, name: str) -> None:
        if folder != self.paths.state:
            self._brokers_changed.set()
            return
        # Readers write to the `-shm` file too, so ignore its changes.
        if name in (FILE_NAME, f"{FILE_NAME}-wal"):
            self._changed.set()
        elif name == SeenJobs.FILE_NAME:
            self._tell_work()
        for listener in self._file_listeners:
            listener(name)

    # -- sessions and jobs

    async def _follow_store(self) -> None:
        failed, late = False, False
        while True:
            try:
                async with asyncio.timeout(LATE_INTERVAL if late else None):
                    await self._changed.wait()
                late = True
            except TimeoutError:
                late = False
            self._changed.clear()
            try:
                await self._read()
                failed = False
            except DragomanError as error:
                if not failed:
                    log.warning("cannot read the session store: %s", error)
                # Try again: the next change may not come for a long time.
                failed = True
                self._changed.set()
            # Changes during the sleep are read together.
            await asyncio.sleep(RETRY_INTERVAL if failed else READ_INTERVAL)

    async def _read(self) -> None:
        async with self._reading:
            await self._read_now()

    async def _read_now(self) -> None:
        sessions, jobs = await in_thread(str(self.paths.state), lambda _: self._load())
        self._sessions = {record.key: record for record in sessions}
        self._jobs = _without_parents(jobs)
        self._shown = with_delegations(jobs)
        self._tell_work()
        for listener in list(self._store_listeners):
            listener()

    def _load(self) -> tuple[list[SessionRecord], list[JobRecord]]:
        jobs = list_jobs(limit=MAX_JOBS, paths=self.paths)
        with open_store(read_only=True, paths=self.paths) as store:
            # The work in an editor's session is in the sessions of its peers.
            sessions = [
                each for each in store.sessions(limit=MAX_SESSIONS) if each.peer != EDITOR_PEER
            ]
        return sessions, jobs

    def _stored_session(self, key: str) -> SessionRecord | None:
        with open_store(read_only=True, paths=self.paths) as store:
            return store.session(key)

    def _stored_jobs(self, key: str) -> list[JobRecord]:
        with open_store(read_only=True, paths=self.paths) as store:
            return _without_parents(store.jobs(session_key=key, limit=-1, texts=False))

    def _tell_work(self) -> None:
        now = self._summaries()
        for id, item in now.items():
            if self._work.get(id) != item:
                self.tell({"type": "work", "item": item})
        for id in self._work.keys() - now.keys():
            self.tell({"type": "gone", "id": id})
        self._work = now

    def _summaries(self) -> dict[str, dict[str, Any]]:
        jobs: dict[str, list[JobRecord]] = {}
        found: dict[str, dict[str, Any]] = {}
        seen = set(self._seen.jobs)
        for job in self._shown:
            if job.session_key:
                jobs.setdefault(job.session_key, []).append(job)
            elif not is_attempt(job):
                item = self._summary(job.id, job.peer, [job], seen, waiting=False)
                found[job.id] = item | {"session": None, "peer": job.peer, "root": job.root}
        waiting = {question.session for _, question in self._questions.values()}
        for key, record in self._sessions.items():
            own = jobs.get(key, [])
            found[key] = self._session_item(record, own, seen, waiting=key in waiting)
        return found

    def _session_item(
        self, record: SessionRecord, jobs: list[JobRecord], seen: set[str], *, waiting: bool
    ) -> dict[str, Any]:
        item = self._summary(record.key, record.peer, jobs, seen, waiting=waiting)
        return item | {
            "session": record.key,
            "peer": record.peer,
            "root": record.root,
            "cwd": record.cwd,
            "name": record.name,
            "title": _cut(record.title),
            "model": _cut(record.model),
            "mode": _cut(record.mode),
            "closedAt": record.closed_at,
            "events": record.events,
            "createdAt": record.created_at,
            "updatedAt": max(record.updated_at, item["updatedAt"]),
        }

    def _summary(
        self, id: str, peer: str, jobs: list[JobRecord], seen: set[str], *, waiting: bool
    ) -> dict[str, Any]:
        item = summary_of(id, jobs, waiting=waiting, parked=self.parked.get(peer))
        job = item["job"]
        if job is not None and item["state"] in ("done", "failed", "parked"):
            job["unseen"] = (job["endedAt"] or 0.0) >= self._since and job["id"] not in seen
        return item

    # -- brokers and their questions

    async def _find_brokers(self) -> None:
        paths = self.paths
        brokers, addresses = await in_thread(
            str(paths.runtime), lambda _: (list_brokers(paths), question_sockets.addresses(paths))
        )
        for record in brokers:
            if not record.draining and record.name not in self._brokers:
                self._brokers[record.name] = record
                self._tasks.start(self._follow_broker(record), f"watch {record.name}")
        for address in addresses:
            if address not in self._runs:
                self._runs.add(address)
                self._tasks.start(self._follow_run(address), f"watch {address}")

    async def _follow_brokers(self) -> None:
        failed = 0
        while True:
            await changed_or_due(self._brokers_changed, failed)
            self._brokers_changed.clear()
            try:
                await self._find_brokers()
                failed = 0
            except DragomanError as error:
                if not failed:
                    log.warning("cannot list the brokers: %s", error)
                failed += 1
            # A starting broker writes its record several times.
            await asyncio.sleep(READ_INTERVAL)

    async def _follow_broker(self, record: BrokerRecord) -> None:
        """Watch one broker until its connection ends, then look for running brokers again."""
        try:
            await self._follow(
                record.address, record.name, peer=record.peer, workspace=record.workspace
            )
        except (ConnectError, ConnectionLost) as error:
            log.debug("cannot watch broker %s: %s", record.name, error)
        except DragomanError as error:
            # The broker is alive, for example one of an older version, and would answer the same.
            log.info("cannot follow the questions of broker %s: %s", record.name, error)
            await asyncio.sleep(REFUSED_INTERVAL)
        await asyncio.sleep(RETRY_INTERVAL)
        del self._brokers[record.name]
        # This starts watching it again if it is still running.
        self._brokers_changed.set()

    async def _follow_run(self, address: str) -> None:
        """Watch a run without a broker until it ends or refuses to be watched."""
        failed = 0

        def reached() -> None:
            nonlocal failed
            failed = 0

        while failed < MAX_REFUSED:
            failed += 1
            try:
                await self._follow(address, "of a run", on_reached=reached)
            except (ConnectError, ConnectionLost) as error:
                # The run has ended, was killed, or does not listen yet.
                log.debug("cannot watch the run at %s: %s", address, error)
            except CallTimeout as error:
                # The run hangs, or the user has suspended it and may continue it.
                log.debug("the run at %s does not answer: %s", address, error)
                failed = 0
            except DragomanError as error:
                # The run is alive and would answer the same again.
                log.info("cannot follow the questions of the run at %s: %s", address, error)
                return
            await asyncio.sleep(READ_INTERVAL)
        question_sockets.forget_address(self.paths, address)
        self._runs.discard(address)

    async def _follow(
        self,
        address: str,
        name: str,
        *,
        peer: str = "",
        workspace: str = "",
        on_reached: Callable[[], None] = lambda: None,
    ) -> None:
        """Follow the questions at an address until its connection ends. Each connection starts
        without the questions of the previous one."""
        about = Watched(peer=peer, workspace=workspace)

        def asked(shown: ShownQuestion) -> None:
            question = open_question(shown, peer=about.peer, workspace=about.workspace)
            if question is None:
                log.warning("invalid question from %s", about.peer)
                return
            self._questions[question.id] = (address, question)
            self.tell({"type": "question", "question": msgspec.to_builtins(question)})
            self._tell_work()

        def settled(id: str, by: str) -> None:
            if self._questions.pop(id, None) is not None:
                self.tell({"type": "settled", "id": id, "by": by})
                self._tell_work()

        def forget() -> None:
            for id in [id for id, (each, _) in self._questions.items() if each == address]:
                settled(id, "broker")

        def connected(found: Watched) -> None:
            forget()
            about.peer = peer or found.peer
            about.workspace = workspace or found.workspace
            on_reached()

        try:
            await watch_questions(
                address,
                name,
                answers=self._answers,
                on_question=asked,
                on_settled=lambda over: settled(over.id, over.by),
                on_connected=connected,
            )
        finally:
            forget()


def _without_parents(jobs: list[JobRecord]) -> list[JobRecord]:
    """Return the jobs without the delegations that have attempts. Each attempt is a job with a
    session."""
    parents = {job.id.rpartition("-")[0] for job in jobs if is_attempt(job)}
    return [job for job in jobs if job.id not in parents]


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:MAX_TITLE]


class SeenJobs:
    """The ended jobs that the user has seen, stored in a file so that all browsers agree."""

    FILE_NAME = "console-seen.json"

    def __init__(self, paths: Paths) -> None:
        self._path = paths.state / self.FILE_NAME
        self._problem = ""
        """Why the file could not be read the last time, so that the same problem is logged only
        once."""

    @property
    def jobs(self) -> list[str]:
        try:
            data = read_file(self._path)
            found = [] if data is None else msgspec.json.decode(data, type=list[str])
        except (*UNDECODABLE, DragomanError) as error:
            # Without this file, ended work is only shown as new, so the error is not raised.
            if str(error) != self._problem:
                log.warning("cannot read which work was seen: %s", error)
                self._problem = str(error)
            return []
        self._problem = ""
        return found

    def add(self, job: str) -> None:
        with locked(self._path):
            jobs = self.jobs
            if job not in jobs:
                kept = [*jobs, job][-MAX_SEEN:]
                write_file(self._path, msgspec.json.encode(kept) + b"\n", mode=0o600)
