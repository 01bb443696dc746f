"""What a broker keeps on the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.broker.server import gap_notes
from dragoman.broker.server.jobs import Job
from dragoman.broker.server.live_session import LiveSession
from dragoman.broker.server.recorder import BrokerRecorder
from dragoman.errors import StoreBusy, StoreError, StoreFull, StoreRefused
from dragoman.events.words import Outcome
from dragoman.rpc import tasks
from dragoman.store import Store, recorder, store_path, writer
from dragoman.wire.messages import Notification
from tests.aio import aio
from tests.integration.broker_stage import spec_of, stored
from tests.unit.broker.near import NearAgent, near, notice
from tests.unit.store.stores import PATIENCE, WrittenBatches

TOOL = Raw(b'{"sessionId":"s1","update":{"sessionUpdate":"tool_call","toolCallId":"t"}}')


@asynccontextmanager
async def keeping(
    tmp_path: Path, *, created: bool = True, **fields: Any
) -> AsyncIterator[tuple[BrokerRecorder, LiveSession]]:
    kept = BrokerRecorder(spec_of(tmp_path, **fields), runner={"pid": 1})
    await kept.open()
    async with near(NearAgent()) as far:
        session = LiveSession(
            kept, far, "s1", key="s-k", name="n", cwd=tmp_path, mcp_servers=Raw(b"[]")
        )
        if created:
            kept.created(session)
        try:
            yield kept, session
        finally:
            await kept.close()


def running(session: LiveSession, id: str = "j-1") -> Job:
    job = Job(id, session, {"prompt": Raw(b"[]")})
    job.begin(session.log.next)
    session.job = job
    return job


def texts(tmp_path: Path) -> list[str]:
    (kept,) = stored(tmp_path)
    return [msgspec.json.decode(line)["update"]["content"]["text"] for _, line in kept["lines"]]


@aio
async def test_events_are_stored_in_batches_and_the_rest_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = WrittenBatches(monkeypatch)
    async with keeping(tmp_path) as (kept, session):
        for number in range(1000):
            session.update(notice("s1", f"{number} "))
        await batches.until(lambda: session.log.taken == 1000)
        session.update(notice("s1", "last"))
    assert texts(tmp_path) == [f"{number} " for number in range(1000)] + ["last"]


@aio
async def test_the_end_of_a_job_is_on_disk_before_it_is_reported(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (kept, session):
        job = Job("j-1", session, {"prompt": Raw(b'[{"type":"text","text":"do it"}]')})
        kept.job_changed(job)
        job.begin(0)
        session.job = job
        kept.job_changed(job)
        for word in ("Hello", ", ", "world"):
            session.update(notice("s1", word))
        session.job = None
        job.end(Outcome.OK, next_event=3, stop="end_turn")
        over = asyncio.Event()
        job.when_ended(over.set)
        kept.job_ended(job)
        assert not over.is_set()
        async with asyncio.timeout(5):
            await over.wait()
        with Store.open(store_path(tmp_path / "state"), read_only=True) as store:
            found = store.job("j-1")
        assert found is not None
        assert (found.state, found.outcome, found.text) == ("ended", "ok", "Hello, world")
        assert (found.prompt, found.first_event, found.next_event) == ("do it", 0, 3)
        again = await kept.find_job("j-1")
        assert again == found


@aio
async def test_secrets_do_not_reach_the_disk_even_in_pieces(tmp_path: Path) -> None:
    secret = "hunter2-hunter2-hunter2"
    async with keeping(tmp_path, secret_values=(secret,)) as (kept, session):
        job = running(session)
        for letter in f"the word is {secret}, keep it":
            session.update(notice("s1", letter))
        kept.note(session, "permission", {"title": secret})
        session.job = None
        job.end(Outcome.OK, next_event=session.log.next)
        kept.job_ended(job)
    said = "".join(texts(tmp_path))
    assert said.startswith("the word is ")
    assert said.endswith(", keep it")
    assert secret not in said
    assert secret not in job.answer.text
    for file in (tmp_path / "state").iterdir():
        assert secret.encode() not in file.read_bytes()


@aio
async def test_the_end_of_a_turn_and_what_is_asked_for_do_not_wait_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that nothing but hurry can bring it to the disk.
    monkeypatch.setattr(writer, "BATCH_INTERVAL", 1000.0)
    monkeypatch.setattr(recorder, "SAVE_INTERVAL", 1000.0)
    batches = WrittenBatches(monkeypatch)

    async def stored_events(count: int) -> None:
        await batches.until(lambda: len(next(stored(tmp_path))["lines"]) == count)

    async with keeping(tmp_path) as (kept, session):
        await kept.settle(session)
        job = running(session)
        session.update(notice("s1", "may I?"))
        session.update(Notification("session/update", TOOL, bytes(TOOL)))
        kept.hasten(session)
        await stored_events(2)
        session.update(notice("s1", "done"))
        session.job = None
        job.end(Outcome.OK, next_event=3)
        kept.job_ended(job)
        await stored_events(3)


@aio
async def test_a_session_that_is_still_being_opened_is_stored_when_it_is(tmp_path: Path) -> None:
    async with keeping(tmp_path, created=False) as (kept, session):
        session.update(notice("s1", "early"))
        kept.save(session)
        assert session.log.taken == 0
        kept.created(session)
        kept.save(session)
        assert session.log.taken == 1
    assert texts(tmp_path) == ["early"]


@aio
async def test_nothing_is_left_of_a_session_that_is_closed_after_two_batches_at_once(
    tmp_path: Path,
) -> None:
    async with keeping(tmp_path) as (kept, session):
        for word in ("one", "two"):
            session.update(notice("s1", word))
            await kept.settle(session)
        kept.closed(session)
        assert not kept._marked
        kept._save_marked()
        assert not kept._marked
    assert texts(tmp_path) == ["one", "two"]


@aio
async def test_lines_are_fetched_from_the_disk_or_not_at_all(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (kept, session):
        for number in range(10):
            session.update(notice("s1", str(number)))
        kept._save(session, None, end=True)
        first, found = await kept.fetch("s-k", 3, 6)
        assert first == 3
        assert [msgspec.json.decode(each)["update"]["content"]["text"] for each in found] == [
            "3",
            "4",
            "5",
        ]
        assert await kept.fetch("s-k", 10, 12) == (12, [])
        assert await kept.fetch("s-none", 0, 1) == (1, [])
        assert await kept.first_event(session) == 0


@aio
async def test_events_that_the_store_cannot_give_are_left_out_and_that_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> int:
        raise StoreRefused("file", "it may not be read")

    async with keeping(tmp_path) as (kept, session):
        session.update(notice("s1", "said"))
        monkeypatch.setattr(Store, "first_event", refused)
        assert await kept.first_event(session) == session.log.first
    assert "older events are left out: " in caplog.text


@aio
async def test_when_the_disk_fails_the_work_goes_on_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("file", "no space left")

    async with keeping(tmp_path) as (kept, session):
        job = running(session)
        await kept.settle(session)
        monkeypatch.setattr(Store, "append", full)
        session.update(notice("s1", "said "))
        kept._save(session, job, end=True)
        await kept.settle(session)
        await asyncio.sleep(0)
        assert "no space left" in kept.trouble
        session.update(notice("s1", "anyway"))
        session.job = None
        job.end(Outcome.OK, next_event=2)
        kept.job_ended(job)
        assert (job.state, job.answer.text) == ("ended", "said anyway")
        assert session.log.stored == 2, "so that memory is not held for a disk that is gone"
        assert await kept.fetch("s-k", 0, 1) == (1, [])
        assert await kept.find("s1", None) is not None, "what is there can be read"
        monkeypatch.undo()
    assert texts(tmp_path) == ["said ", "anyway"], "it is stored when there is room"


@aio
async def test_what_a_broker_could_not_store_before_it_ended_is_noted_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("file", "no space left")

    async with keeping(tmp_path) as (kept, session):
        session.update(notice("s1", "stored"))
        kept._save(session, None, end=True)
        await kept.settle(session)
        monkeypatch.setattr(Store, "append", full)
        for word in ("lost", "too"):
            session.update(notice("s1", word))
    monkeypatch.undo()
    assert texts(tmp_path) == ["stored"]
    async with keeping(tmp_path, created=False) as (kept, session):
        found = await kept.find("s1", None)
        assert found is not None and found.next_event == 3
    with Store.open(store_path(tmp_path / "state"), read_only=True) as store:
        (gap,) = store.gaps("s-k")
    assert (gap.first, gap.next, gap.why) == (1, 3, "no space left")


@pytest.mark.parametrize("broken", ["skip", "open"])
@aio
async def test_a_note_that_cannot_be_stored_either_is_left_for_the_next_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def full(*_: object, **more: object) -> None:
        raise StoreFull("file", "no space left")

    path = store_path(tmp_path / "state")
    async with keeping(tmp_path):
        pass
    gap_notes.leave(tmp_path / "run", path, {"s-k": 2}, why="the disk was full")
    monkeypatch.setattr(Store, broken, full)
    async with keeping(tmp_path, created=False):
        pass
    monkeypatch.undo()
    async with keeping(tmp_path, created=False):
        pass
    with Store.open(path, read_only=True) as store:
        (gap,) = store.gaps("s-k")
    assert (gap.first, gap.next, gap.why) == (0, 2, "the disk was full")
    assert gap_notes.take(tmp_path / "run", path) == []


@aio
async def test_lines_are_fetched_up_to_a_gap_or_from_behind_it(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (kept, session):
        session.update(notice("s1", "before"))
        kept._save(session, None, end=True)
        assert kept._writer is not None
        kept._writer.put(lambda store: store.skip("s-k", 5, "no room"))
        kept._writer.append("s-k", 5, [b"{}"])
        first, lines = await kept.fetch("s-k", 0, 6)
        assert (first, len(lines)) == (0, 1)
        assert await kept.fetch("s-k", 2, 6) == (5, [b"{}"])
        assert await kept.fetch("s-k", 5, 6) == (5, [b"{}"])


@aio
async def test_a_store_that_can_be_opened_later_gets_what_happened_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_INTERVAL", 0.01)
    batches = WrittenBatches(monkeypatch)
    (tmp_path / "state").write_text("in the way")
    async with keeping(tmp_path) as (kept, session):
        session.update(notice("s1", "early"))
        kept._save(session, None, end=True)
        assert kept.trouble
        (tmp_path / "state").unlink()
        assert kept._writer is not None
        await batches.until(lambda: not kept.trouble)
        assert await kept._writer.flush()
    assert texts(tmp_path) == ["early"]


@aio
async def test_a_broker_serves_without_its_store_while_the_disk_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    whole = Store.open

    def slow(*args: Any, **options: Any) -> Store:
        answered.wait(PATIENCE)
        return whole(*args, **options)

    monkeypatch.setattr(Store, "open", slow)
    monkeypatch.setattr(tasks, "ANSWER_TIMEOUT", 0.01)
    kept = BrokerRecorder(spec_of(tmp_path), runner={"pid": 1})
    await kept.open()
    assert "did not answer" in kept.trouble
    answered.set()
    monkeypatch.undo()
    await kept.close()


@aio
async def test_a_broker_serves_although_its_store_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    async with keeping(tmp_path) as (kept, session):
        assert kept.trouble
        kept.note(session, "x", {})
        kept.moved(session)
        session.update(notice("s1", "x"))
        await kept.settle(session)
        assert session.log.stored == 1
        assert await kept.first_event(session) == 0
        # Whether there was such a job is not known, so it is not reported as unknown.
        with pytest.raises(StoreRefused):
            await kept.find_job("j")


@aio
async def test_a_job_is_not_unknown_before_the_store_is_open(tmp_path: Path) -> None:
    kept = BrokerRecorder(spec_of(tmp_path))
    with pytest.raises(StoreBusy, match="not opened it yet"):
        await kept.find_job("j-1")


@aio
async def test_a_session_is_not_unknown_before_the_store_is_open(tmp_path: Path) -> None:
    kept = BrokerRecorder(spec_of(tmp_path))
    with pytest.raises(StoreBusy, match="not opened it yet"):
        await kept.find("s1", None)


@pytest.mark.parametrize(
    "error", [StoreBusy("file", "it is held"), StoreRefused("file", "it may not be read")]
)
@aio
async def test_a_session_is_unknown_only_if_the_store_will_not_be_readable_later(
    error: StoreError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    async with keeping(tmp_path) as (kept, _):
        monkeypatch.setattr(Store, "find_by_peer_id", fail)
        if isinstance(error, StoreBusy):
            with pytest.raises(StoreBusy, match="it is held"):
                await kept.find("s1", None)
        else:
            assert await kept.find("s1", None) is None


@aio
async def test_a_session_is_found_by_its_key_or_by_the_peers_name(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (kept, session):
        by_name = await kept.find("s1", None)
        assert by_name is not None
        assert by_name == await kept.find("other", "s-k")
        assert (by_name.key, by_name.name, by_name.peer) == ("s-k", "n", "agent")
        session.id = "s2"
        kept.moved(session)
        assert await kept.find("s2", None) is not None
        kept.closed(session)
        closed = await kept.find("s2", None)
        assert closed is None or closed.closed_at is not None
