"""Sessions of clients in the store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from dragoman.acp_server.session_store import SessionStore, instant, title_of
from dragoman.errors import StoreBusy, UnknownSession
from dragoman.runs.context import RunContext
from dragoman.store.open import open_store
from dragoman.store.records import JobRecord, SessionRecord, root_of
from dragoman.store.store import store_path
from tests.aio import aio
from tests.unit.runs.contexts import place_in

LINE = (
    b'{"sessionId":"p","update":{"sessionUpdate":"agent_message_chunk",'
    b'"content":{"type":"text","text":"%b"}}}'
)


@pytest.fixture
def place(tmp_path: Path) -> RunContext:
    return place_in(tmp_path)


@asynccontextmanager
async def shelf_in(place: RunContext) -> AsyncIterator[SessionStore]:
    troubles: list[str] = []
    shelf = SessionStore(place.paths, on_trouble=troubles.append)
    try:
        yield shelf
    finally:
        await shelf.aclose()
    assert troubles == []


def put(
    place: RunContext, key: str, peer: str, *, job: str, text: bytes, closed: bool = False
) -> None:
    """Store a session of a peer with one turn, as a broker does."""
    now = time.time()
    with open_store(paths=place.paths) as store:
        store.create_session(
            SessionRecord(
                key=key,
                peer=peer,
                root=str(root_of(place.cwd)),
                peer_session_id="p",
                cwd=str(place.cwd),
                created_at=now,
                updated_at=now,
                closed_at=now if closed else None,
            )
        )
        begun = JobRecord(
            id=job, session_key=key, peer=peer, root="", prompt="asked", created_at=now,
            started_at=now, next_event=1, state="ended",
        )  # fmt: skip
        store.create_job(begun)
        store.append(key, 0, [LINE % text], job)


@aio
async def test_a_session_is_found_before_anything_happened_in_it(place: RunContext) -> None:
    async with shelf_in(place) as shelf, shelf_in(place) as other:
        shelf.create("s-1", cwd=place.cwd)
        await shelf.flush()
        kept = await other.take("s-1")
        assert (kept.peer, kept.role, kept.turns, kept.threads) == (None, None, [], {})
        assert [record.key for record in await other.sessions(place.cwd)] == ["s-1"]


@aio
async def test_choices_threads_and_turns_are_kept_in_their_order(place: RunContext) -> None:
    async with shelf_in(place) as shelf:
        shelf.create("s-1", cwd=place.cwd)
        put(place, "s-left", "left", job="j-1", text=b"good day")
        shelf.choose("s-1", peer="left", role="review")
        shelf.thread("s-1", peer="left", key="s-left")
        shelf.turn("s-1", job="j-1", peer="left", prompt="hello", title="hello")
        shelf.turn("s-1", job="j-2", peer="a delegate", prompt="judge")
        shelf.answer("s-1", job="j-2", said="it is good")
        kept = await shelf.take("s-1")
        assert (kept.peer, kept.role, kept.threads) == ("left", "review", {"left": "s-left"})
        assert await shelf.threads("s-1") == kept.threads and await shelf.threads("s-none") == {}
        assert [(turn.prompt, turn.said, turn.lines) for turn in kept.turns] == [
            ("hello", "", (LINE % b"good day",)),
            ("judge", "it is good", ()),
        ]
        # What only goes on in it is not listed beside it.
        (listed,) = await shelf.sessions(place.cwd)
        assert (listed.key, listed.title) == ("s-1", "hello")


@aio
async def test_a_session_that_a_peer_began_can_be_taken_up_and_goes_on(place: RunContext) -> None:
    put(place, "s-left", "left", job="j-1", text=b"good day")
    put(place, "s-over", "left", job="j-0", text=b"over", closed=True)
    async with shelf_in(place) as shelf:
        assert [record.key for record in await shelf.sessions(None)] == ["s-left"]
        kept = await shelf.take("s-left")
        assert (kept.peer, kept.threads) == ("left", {"left": "s-left"})
        assert [(turn.prompt, turn.lines) for turn in kept.turns] == [
            ("asked", (LINE % b"good day",))
        ]
        shelf.choose("s-left", peer="right", role="review")
        shelf.turn("s-left", job="j-9", peer="right", prompt="go on")
        kept = await shelf.take("s-left")
        assert kept.peer == "right"
        assert [turn.prompt for turn in kept.turns] == ["asked", "go on"]


@aio
async def test_a_deleted_session_is_gone_with_what_was_said_in_it(place: RunContext) -> None:
    async with shelf_in(place) as shelf:
        shelf.create("s-1", cwd=place.cwd)
        put(place, "s-left", "left", job="j-1", text=b"good day")
        shelf.thread("s-1", peer="left", key="s-left")
        await shelf.delete("s-1")
        await shelf.delete("s-1")
        assert await shelf.sessions(None) == [] and await shelf.thread_record("s-left") is None
        with pytest.raises(UnknownSession):
            await shelf.take("s-1")
        # Whoever still has it open is not disturbed.
        shelf.turn("s-1", job="j-2", peer="left", prompt="hello")


@aio
async def test_a_closed_session_is_open_again_when_something_happens(place: RunContext) -> None:
    async with shelf_in(place) as shelf:
        shelf.create("s-1", cwd=place.cwd)
        shelf.close("s-1")
        assert (await shelf.sessions(None))[0].closed_at is not None
        shelf.turn("s-1", job="j-1", peer="left", prompt="hello")
        shelf.title("s-1", "a title")
        (record,) = await shelf.sessions(None)
        assert (record.closed_at, record.title) == (None, "a title")


@aio
async def test_a_store_that_is_set_aside_or_cannot_be_used_is_reported_once(
    place: RunContext,
) -> None:
    path = place.paths.state / "sessions.db"
    place.paths.state.mkdir(parents=True)
    path.write_bytes(b"not a database, and long enough" * 40)
    told: list[str] = []
    shelf = SessionStore(place.paths, on_trouble=told.append)
    shelf.create("s-1", cwd=place.cwd)
    shelf.choose("s-1", peer="left", role="review")
    await shelf.aclose()
    assert len(told) == 1 and "it was damaged and is now" in told[0]
    path.unlink()
    path.mkdir()
    shelf.create("s-2", cwd=place.cwd)
    shelf.choose("s-2", peer="left", role="review")
    await shelf.aclose()
    assert len(told) == 2 and told[1].startswith("sessions are not stored:")


@aio
async def test_a_locked_store_does_not_stop_the_loop_and_nothing_is_lost(place: RunContext) -> None:
    async with shelf_in(place) as shelf:
        shelf.create("s-1", cwd=place.cwd)
        await shelf.flush()
        with closing(sqlite3.connect(store_path(place.paths.state), isolation_level=None)) as held:
            held.execute("BEGIN EXCLUSIVE")
            shelf.choose("s-1", peer="left", role="review")
            shelf.turn("s-1", job="j-1", peer="left", prompt="hello")
            shelf.answer("s-1", job="j-1", said="it is good")
        kept = await shelf.take("s-1")
        assert kept.peer == "left" and [turn.said for turn in kept.turns] == ["it is good"]
        shelf.title("s-1", "a title")
    async with shelf_in(place) as other:
        assert [record.title for record in await other.sessions(None)] == ["a title"]


@aio
async def test_a_session_that_cannot_be_deleted_is_an_error_and_can_be_read(
    place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.store.database.BUSY_TIMEOUT", 0.01)
    async with shelf_in(place) as shelf:
        shelf.create("s-1", cwd=place.cwd)
        await shelf.flush()
        with closing(sqlite3.connect(store_path(place.paths.state), isolation_level=None)) as held:
            held.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreBusy):
                await shelf.delete("s-1")
            assert (await shelf.take("s-1")).record.key == "s-1"


def test_a_title_is_one_short_line() -> None:
    assert title_of("  do\n this ") == "do this"
    assert len(title_of("x" * 200)) == 80
    assert instant(0.0) == "1970-01-01T00:00:00+00:00"
