"""Sessions and jobs, followed where no broker has them: from the store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.broker import protocol
from dragoman.errors import Overflow, UsageError
from dragoman.events.model import Event, MessageDelta
from dragoman.paths import Paths
from dragoman.rpc import Connection, End, Lane
from dragoman.rpc.responder import Ignore
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import job_events as job_events_module
from dragoman.runs.job_events import (
    EventCursor,
    attempts_of,
    events_after,
    follow_job,
    follow_session,
    job_events,
    session_events,
)
from dragoman.store import JobRecord, SessionRecord
from dragoman.store.store import store_path
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Request
from tests.aio import aio
from tests.unit.runs.stored import job, paths_in, said, session, store_in
from tests.unit.runs.test_jobs import GONE

LINES = [said(text) for text in ("zero", "one", "two")]


@pytest.mark.parametrize(
    ("after", "left"),
    [
        (None, ["s:7.1", "s:7.2", "s:7"]),
        (EventCursor("s", 7, 2), ["s:7"]),
        (EventCursor("s", 6, 2), ["s:7.1", "s:7.2", "s:7"]),
        (EventCursor("other", 7, 2), ["s:7.1", "s:7.2", "s:7"]),
    ],
)
def test_a_line_continues_after_the_part_that_was_seen(
    after: EventCursor | None, left: list[str]
) -> None:
    events: Any = ("a", "b", "c")
    found = list(events_after(after, session="s", line=7, events=events))
    assert [str(cursor) for cursor, _ in found] == left
    assert tuple(event for _, event in found) == events[-len(left) :]


@aio
async def test_a_session_that_is_not_open_is_read_from_the_store(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES)
    paths = paths_in(tmp_path)
    found = [each async for each in follow_session(session(), None, start=1, paths=paths)]
    assert found == [(1, LINES[1]), (2, LINES[2])]
    assert [each async for each in follow_session(session(), None, start=None, paths=paths)] == []


@aio
async def test_the_loop_runs_on_while_another_process_holds_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events_module, "READ_SIZE", 1)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES)
        store.create_job(job(first_event=0, next_event=3))
    paths = paths_in(tmp_path)

    async def follow() -> tuple[list[int], list[str]]:
        lines = [
            number async for number, _ in follow_session(session(), None, start=0, paths=paths)
        ]
        attempts = attempts_of(job(), after=None, paths=paths)
        return lines, [attempt.id async for _, attempt in attempts]

    with closing(sqlite3.connect(store_path(paths.state), isolation_level=None)) as held:
        # As while it repairs the log of a process that was killed.
        held.execute("PRAGMA locking_mode = EXCLUSIVE")
        held.execute("BEGIN IMMEDIATE")
        following = TaskOwner("test").start(follow(), "follow")
        await asyncio.sleep(0)
        assert not following.done()
    assert await following == ([0, 1, 2], ["j-0000000001"])


@aio
async def test_a_job_that_has_ended_is_its_own_lines_and_no_others(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES)
        store.create_job(ended := job(first_event=1, next_event=2))
    found = [each async for each in follow_job(session(), ended, paths=paths_in(tmp_path))]
    assert found == [(1, LINES[1])]


@aio
async def test_a_job_whose_broker_was_killed_ends_with_what_is_stored(tmp_path: Path) -> None:
    running = job(state="running", outcome=None, ended_at=None, endpoint="scout-1", runner=GONE)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES[:2], running.id)
        store.create_job(running)
    found = [each async for each in follow_job(session(), running, paths=paths_in(tmp_path))]
    assert [number for number, _ in found] == [0, 1]


@aio
async def test_what_follows_the_end_of_a_job_is_not_taken_for_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = job(state="running", outcome=None, ended_at=None)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES[:1], running.id)
        store.create_job(running)

    async def find(id: str, **how: Any) -> JobRecord:
        """Find the job running, which ends before the caller reads on; more is said after it."""
        with store_in(tmp_path) as store:
            found = store.job(id)
            assert found is not None
            if found.state == "running":
                store.append("s-0000000001", 1, LINES[1:2], id)
                store.update_job(id, state="ended", outcome="ok", next_event=2)
                store.append("s-0000000001", 2, LINES[2:])
        return found

    monkeypatch.setattr(job_events_module, "find_job", find)
    monkeypatch.setattr(job_events_module, "LOOK_INTERVAL", 0)
    found = [each async for each in follow_job(session(), running, paths=paths_in(tmp_path))]
    assert found == [(0, LINES[0]), (1, LINES[1])]


def two_parts(id: str) -> bytes:
    """A stored line with two events: a tool call, and the files that it changes."""
    diff = {"type": "diff", "path": "/a", "oldText": "a", "newText": "b"}
    update = {"sessionUpdate": "tool_call_update", "toolCallId": id, "content": [diff]}
    return json.dumps({"sessionId": "peer-s-0000000001", "update": update}).encode()


def told(event: Event) -> str:
    return event.text if isinstance(event, MessageDelta) else type(event).__name__


async def seen_of(job: JobRecord, paths: Paths, after: str | None = None) -> list[tuple[str, str]]:
    cursor = None if after is None else EventCursor.parse(after)
    found = job_events(job, after=cursor, paths=paths)
    return [(str(cursor), told(event)) async for cursor, event in found]


@aio
async def test_a_reader_goes_on_behind_any_cursor_and_misses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    paths = paths_in(tmp_path)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, [LINES[0], two_parts("t"), LINES[1], LINES[2]])
        store.create_job(ended := job(first_event=1, next_event=3))
    whole = [
        ("s-0000000001:1.1", "ToolChanged"),
        ("s-0000000001:1", "FilesChanged"),
        ("s-0000000001:2", "one"),
    ]
    assert await seen_of(ended, paths) == whole
    for index, (cursor, _) in enumerate(whole, 1):
        assert await seen_of(ended, paths, cursor) == whole[index:]
    with pytest.raises(UsageError, match="not a cursor of the job"):
        await seen_of(ended, paths, "s-0000000002:1")


@aio
async def test_the_attempts_of_delegated_work_are_followed_one_after_another(
    tmp_path: Path,
) -> None:
    paths = paths_in(tmp_path)
    first, second = session(), session(key="s-0000000002", peer_session_id="other")
    delegated = job(state="running", outcome=None, ended_at=None, runner={}, session_key="")
    seen = []
    with store_in(tmp_path) as store:
        store.create_job(delegated)

        def attempt(record: SessionRecord, id: str, line: bytes) -> None:
            store.create_session(record)
            store.append(record.key, 0, [line])
            store.create_job(job(id, session_key=record.key, next_event=1))
            store.update_job(delegated.id, session_key=record.key, next_event=1)

        attempt(first, "j-0000000001-1", LINES[0])
        async for cursor, event in job_events(delegated, paths=paths):
            seen.append((str(cursor), told(event)))
            if len(seen) == 1:
                # The peer has failed, and the next one has a session of its own.
                attempt(second, "j-0000000001-3", LINES[1])
                store.update_job(delegated.id, state="ended")
        ended = store.job(delegated.id)
    assert seen == [("s-0000000001:0", "zero"), ("s-0000000002:0", "one")]
    assert ended is not None
    assert await seen_of(ended, paths) == seen
    assert await seen_of(ended, paths, "s-0000000001:0") == seen[1:]
    assert await seen_of(ended, paths, "s-0000000002:0") == []


@aio
async def test_a_cursor_of_another_session_or_of_no_event_is_refused(
    tmp_path: Path,
) -> None:
    paths = paths_in(tmp_path)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES)

    async def seen_behind(cursor: str) -> list[str]:
        found = session_events(session(), None, after=EventCursor.parse(cursor), paths=paths)
        return [told(event) async for _, event in found]

    assert await seen_behind("s-0000000001:0") == ["one", "two"]
    assert await seen_behind("s-0000000001:2") == []
    assert await seen_behind("s-0000000001:7") == [], "a killed broker may have shown it"
    with pytest.raises(UsageError, match="has no event 2000000001: the next is 3"):
        await seen_behind("s-0000000001:2000000000")
    with pytest.raises(UsageError, match="another session"):
        await seen_behind("s-0000000002:0")


@pytest.mark.parametrize("text", ["", "7", "s-1", "s-1:", "s-1:-1", "s-1:1.", "s-1:1.x", "s-1:1:2"])
def test_what_is_not_a_cursor_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not an event cursor"):
        EventCursor.parse(text)


@pytest.mark.parametrize("text", ["s-01h9x2k7ab:0", "s-01h9x2k7ab:41", "s-01h9x2k7ab:41.1"])
def test_a_cursor_is_the_same_after_writing_and_reading(text: str) -> None:
    assert str(EventCursor.parse(text)) == text


@pytest.mark.parametrize("outcome", ["ok", "crashed"])
@aio
async def test_a_cursor_behind_the_end_of_a_job_is_refused_unless_its_broker_was_killed(
    outcome: str, tmp_path: Path
) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES)
        store.create_job(ended := job(outcome=outcome, first_event=0, next_event=2))
    paths = paths_in(tmp_path)

    async def behind(text: str) -> list[str]:
        after = EventCursor.parse(text)
        return [told(event) async for _, event in job_events(ended, after=after, paths=paths)]

    assert await behind("s-0000000001:1") == []
    if outcome == "crashed":
        assert await behind("s-0000000001:2") == []
        return
    with pytest.raises(UsageError, match="s-0000000001:2 is not a cursor of the job"):
        await behind("s-0000000001:2")


@aio
async def test_a_job_that_ended_without_a_session_has_nothing_to_follow(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_job(ended := job(session_key=""))
    assert await seen_of(ended, paths_in(tmp_path)) == []


class Broker(Ignore):
    """A broker that serves one session, with the given responses."""

    def __init__(self, attached: Any, result: Any, position: Any) -> None:
        self._attached, self._result, self._position = attached, result, position

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    async def request(self, request: Request) -> Any:
        match request.method:
            case "initialize":
                return {"protocolVersion": 1}
            case protocol.ATTACH:
                return self._attached
            case _:
                assert request.method == protocol.RESULT
                update = json.loads(said("from the broker"))
                self._connection.post("session/update", update)
                if self._position is not None:
                    self._connection.post(protocol.POSITION, self._position)
                return self._result


POSITIONED = {"sessionId": "peer-s-0000000001", "next": 1}


@pytest.mark.parametrize(
    ("attached", "result", "position", "found"),
    [
        ({"next": 0}, {"nextEvent": 1}, POSITIONED, [(0, "from the broker")]),
        ({"later": 0}, {"nextEvent": 1}, None, []),
        ({"next": 0}, "ended", None, [(0, "from the broker")]),
        ({"next": 0}, {"nextEvent": 9}, {"next": []}, [(0, "from the broker")]),
    ],
)
@aio
async def test_a_broker_that_cannot_be_understood_ends_the_lines_and_the_store_has_the_rest(
    attached: Any,
    result: Any,
    position: Any,
    found: list[tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    near, far = memory_pair()

    async def open_stream(address: str) -> Stream:
        return near

    monkeypatch.setattr(job_events_module, "open_stream", open_stream)
    running = job(state="running", outcome=None, ended_at=None, endpoint="scout-1", runner=GONE)
    with store_in(tmp_path) as store:
        store.create_session(session())
        store.append("s-0000000001", 0, LINES, running.id)
        store.create_job(running)
    async with (
        asyncio.timeout(20),
        Connection(far, End.AGENT, Broker(attached, result, position), trace=False),
    ):
        lines = follow_job(session(), running, paths=paths_in(tmp_path))
        texts = [(number, text_in(line)) async for number, line in lines]
    rest = [(number, text_in(line)) for number, line in enumerate(LINES)][len(found) :]
    assert texts == found + rest


def text_in(line: bytes) -> str:
    text: str = json.loads(line)["update"]["content"]["text"]
    return text


class Sender(Ignore):
    """A broker that has the lines of a session open."""

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    async def request(self, request: Request) -> Any:
        if request.method == "initialize":
            return {"protocolVersion": 1}
        assert request.method == protocol.ATTACH
        start = json.loads(bytes(request.params))["start"]
        for line in LINES[start:]:
            self._connection.post("session/update", json.loads(line))
        return {"next": len(LINES), "first": 0}


@aio
async def test_a_slow_reader_whose_lines_were_dropped_gets_them_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lanes: list[Lane[Any]] = []

    class Cut(Lane[Any]):
        """A lane of which the first is cut after a line, as after a minute without a reader."""

        def put(self, item: Any, size: int) -> None:
            super().put(item, size)
            if self is lanes[0]:
                self.end(Overflow("it was not read"))

        def __init__(self, flow: Any) -> None:
            super().__init__(flow)
            lanes.append(self)

    monkeypatch.setattr(job_events_module, "Lane", Cut)
    with store_in(tmp_path) as store:
        store.create_session(session())
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(20):

        async def open_stream(address: str) -> Stream:
            near, far = memory_pair()
            await stack.enter_async_context(Connection(far, End.AGENT, Sender(), trace=False))
            return near

        monkeypatch.setattr(job_events_module, "open_stream", open_stream)
        broker: Any = SimpleNamespace(address="", name="scout-1")
        lines = follow_session(session(), broker, start=0, paths=paths_in(tmp_path))
        found = [await anext(lines) for _ in LINES]
        await lines.aclose()
    assert [(number, text_in(line)) for number, line in found] == [
        (0, "zero"),
        (1, "one"),
        (2, "two"),
    ]
    assert len(lanes) == 2
