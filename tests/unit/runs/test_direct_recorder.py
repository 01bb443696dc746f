"""What is stored of a command that has an agent of its own."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dragoman.client.results import Result
from dragoman.dialects.acp.v1 import translate, updates
from dragoman.dialects.acp.v1.codec import decode
from dragoman.errors import StoreFull
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.parts import Failure, Image, Text, Usage
from dragoman.events.words import ErrorKind, Outcome, Role
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import direct_recorder
from dragoman.runs.direct_recorder import MAX_EARLY, DirectRecorder, recorder_for
from dragoman.runs.sessions import OpenedSession
from dragoman.store import Store, writer
from dragoman.store.records import JobRecord, SessionRecord
from dragoman.store.store import store_path
from tests.aio import aio
from tests.unit.runs.stored import held, paths_in, said, session, store_in
from tests.unit.store.stores import SECRET, WrittenBatches, chunk, update

NUMBERS = itertools.count(1)


def opened(key: str = "s-0000000001", context: str = "new") -> OpenedSession:
    conversation: Any = SimpleNamespace(id=f"peer-{key}")
    return OpenedSession(conversation=conversation, key=key, context=context)


def spoken(text: str) -> model.MessageDelta:
    raw = b'{"method":"session/update","params":%b}' % said(text)
    base = (model.Source("acp", "c"), next(NUMBERS), "s", "t", "session/update:x", raw, False)
    return model.MessageDelta(*base, Role.AGENT, text)


def recorder_in(folder: Path, troubles: list[str] | None = None) -> DirectRecorder:
    told = [] if troubles is None else troubles
    return recorder_for("scout", workspace=folder, on_trouble=told.append, paths=paths_in(folder))


@aio
async def test_a_run_is_stored_with_its_session_job_and_events(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path)
    recorder.opened(opened(), None, name=None)
    recorder.event(spoken("early "))
    await recorder.begin()
    recorder.began("j-1", [Text("do"), Image("", "image/png")])
    recorder.event(spoken("done"))
    failure = Failure("too much", ErrorKind.PEER, None, False, None)
    recorder.ended(Result(Outcome.DENIED, "done", failure=failure, usage=Usage(input_tokens=3)))
    await recorder.aclose()
    with store_in(tmp_path) as store:
        record, job = store.session("s-0000000001"), store.job("j-1")
        lines = [line for _, line in store.lines("s-0000000001")]
    assert record is not None and job is not None
    assert (record.peer_session_id, record.next_event) == ("peer-s-0000000001", 2)
    assert record.closed_at is not None, "nobody can come back to it"
    assert (job.state, job.outcome, job.text) == ("ended", "denied", "done")
    assert (job.prompt, job.first_event, job.next_event) == ("do\n[image]", 1, 2)
    assert job.failure is not None and job.failure["message"] == "too much"
    assert job.usage is not None and job.usage["input_tokens"] == 3
    assert job.runner["pid"] > 0
    assert lines == [said("early "), said("done")]


@aio
async def test_a_busy_store_is_reported_once_and_not_by_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(direct_recorder, "STORED_TIMEOUT", 0.05)
    monkeypatch.setattr(writer, "SLOW_TIME", 0.01)
    troubles: list[str] = []
    with store_in(tmp_path) as store:
        store.create_session(record := session())
    recorder = recorder_in(tmp_path, troubles)
    recorder.opened(opened(context="restored"), record, name=None)
    await recorder.begin()
    with held(store_path(paths_in(tmp_path).state)):
        recorder.began("j-1", [Text("do")])
        recorder.event(spoken("done"))
        for _ in range(2):
            await recorder.flush()
    assert troubles == [direct_recorder.NOT_YET]
    assert caplog.messages == []
    recorder.ended(Result(Outcome.OK, "done"))
    await recorder.aclose()
    with store_in(tmp_path) as store:
        job = store.job("j-1")
    assert job is not None and (job.outcome, job.text) == ("ok", "done")


@aio
async def test_too_many_events_before_the_prompt_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_in(tmp_path)
    recorder.opened(opened(), None, name=None)
    for number in range(MAX_EARLY):
        recorder.event(replace(spoken("history"), replay=True))
        recorder.event(spoken(str(number)))
    assert not caplog.messages
    for _ in range(3):
        recorder.event(spoken("more"))
    assert len(caplog.messages) == 1
    assert f"more than {MAX_EARLY} events before the first prompt" in caplog.text
    await recorder.begin()
    recorder.began("j-1", [Text("do")])
    recorder.event(spoken("done"))
    recorder.ended(Result(Outcome.OK, "done"))
    await recorder.aclose()
    with store_in(tmp_path) as store:
        lines = [line for _, line in store.lines("s-0000000001")]
    assert lines == [*(said(str(number)) for number in range(MAX_EARLY)), said("done")]


@aio
async def test_the_loop_runs_on_while_the_store_is_held_and_everything_is_stored(
    tmp_path: Path,
) -> None:
    troubles: list[str] = []
    with store_in(tmp_path) as store:
        store.create_session(record := session())
    with held(store_path(paths_in(tmp_path).state)):
        recorder = recorder_in(tmp_path, troubles)
        recorder.opened(opened(context="restored"), record, name=None)
        recorder.event(spoken("early "))
        beginning = TaskOwner("test").start(recorder.begin(), "begin")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not beginning.done()
    await beginning
    recorder.began("j-1", [Text("do")])
    recorder.event(spoken("done"))
    recorder.ended(Result(Outcome.OK, "done"))
    await recorder.flush()
    with closing(sqlite3.connect(store_path(paths_in(tmp_path).state))) as writer:
        writer.execute("BEGIN IMMEDIATE")
        closed = TaskOwner("test").start(recorder.aclose(), "close")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closed.done()
    await closed
    with store_in(tmp_path) as store:
        job, lines = store.job("j-1"), [line for _, line in store.lines("s-0000000001")]
    assert job is not None and job.text == "done" and troubles == []
    assert lines == [said("early "), said("done")]


@aio
async def test_a_recorder_opens_its_store_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    monkeypatch.setattr(Store, "close", noting(Store.close, threads))
    monkeypatch.setattr(Store, "open", noting(Store.open, threads))
    recorder = recorder_in(tmp_path)
    recorder.opened(opened(), None, name=None)
    recorder.began("j-1", [Text("do")])
    await recorder.aclose()
    assert threads and threading.current_thread().name not in threads


def noting(call: Any, threads: list[str]) -> Any:
    """Notes the thread of each call."""

    def noted(*args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return call(*args, **options)

    return noted


@aio
async def test_a_named_session_stays_open_and_goes_on(tmp_path: Path) -> None:
    first = recorder_in(tmp_path)
    first.opened(opened(), None, name="a", keep_open=True)
    await first.begin()
    first.began("j-1", [Text("one")])
    first.event(spoken("1"))
    first.ended(Result(Outcome.OK, "1"))
    await first.aclose()
    with store_in(tmp_path) as store:
        record = store.find_session("scout", str(tmp_path), "a")
    assert record is not None
    second = recorder_in(tmp_path)
    second.opened(opened(context="restored"), record, name="a", keep_open=True)
    await second.begin()
    second.began("j-2", [Text("two")])
    second.event(spoken("2"))
    second.ended(Result(Outcome.OK, "2"))
    await second.aclose()
    with store_in(tmp_path) as store:
        assert [line for _, line in store.lines(record.key)] == [said("1"), said("2")]
        assert [job.id for job in store.jobs(session_key=record.key)] == ["j-2", "j-1"]


@aio
async def test_a_session_that_was_only_the_peers_is_stored_when_it_goes_on(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path)
    recorder.opened(opened(context="restored"), session(), name="mine", keep_open=True)
    await recorder.begin()
    await recorder.aclose()
    with store_in(tmp_path) as store:
        found = store.find_session("scout", str(tmp_path), "mine")
    assert found is not None and found.closed_at is None


@aio
async def test_a_session_without_a_prompt_is_not_stored(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path)
    recorder.opened(opened(), None, name=None)
    recorder.event(spoken("hello"))
    await recorder.aclose()
    with store_in(tmp_path) as store:
        assert store.sessions() == []


@aio
async def test_an_unusable_store_is_reported_once_and_stops_nothing(tmp_path: Path) -> None:
    paths_in(tmp_path).state.write_text("no folder")
    troubles: list[str] = []
    recorder = recorder_in(tmp_path, troubles)
    recorder.opened(opened(), None, name=None)
    await recorder.begin()
    recorder.began("j-1", [Text("do")])
    recorder.event(spoken("x"))
    recorder.ended(Result(Outcome.OK, "x"))
    await recorder.aclose()
    (told,) = troubles
    assert told.startswith("this conversation is not stored: ")


@aio
async def test_a_disk_that_works_again_is_reported_and_nothing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("the store", "no space is left")

    monkeypatch.setattr(writer, "RETRY_INTERVAL", 0.01)
    batches = WrittenBatches(monkeypatch)
    troubles: list[str] = []
    recorder = recorder_in(tmp_path, troubles)
    recorder.opened(opened(), None, name=None)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "append", full)
        await recorder.begin()
        recorder.began("j-1", [Text("do")])
        recorder.event(spoken("x"))
        recorder.ended(Result(Outcome.OK, "x"))
        await batches.until(lambda: len(troubles) == 1)
    await batches.until(lambda: len(troubles) == 2)
    await recorder.aclose()
    assert "no space is left" in troubles[0]
    assert troubles[1:] == ["this conversation is stored again"]
    with store_in(tmp_path) as store:
        (job,) = store.jobs()
        assert (job.outcome, job.text, job.missing_events) == ("ok", "x", 0)


# -- events as lines


def place(dialect: str) -> EventEnvelope:
    return EventEnvelope(model.Source(dialect, "c1"), itertools.count(), "theirs")


def of_acp(line: bytes, where: EventEnvelope) -> list[model.Event]:
    raw = b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % line
    heard = decode(line, updates.SessionNotification)
    return list(translate.of_update(heard.update, where, raw))


def ended(where: EventEnvelope) -> model.TurnEnded:
    return model.TurnEnded(*where.base("session/prompt", None), Outcome.OK, "end_turn")


async def stored_of(
    folder: Path, events: list[model.Event], result: Result | None
) -> tuple[SessionRecord, JobRecord, list[bytes]]:
    """What is stored of a run with these events in its turn."""
    recorder = recorder_in(folder)
    recorder.opened(opened(), None, name=None)
    await recorder.begin()
    recorder.began("j-1", [Text("do")])
    for event in events:
        recorder.event(event)
    if result is not None:
        recorder.ended(result)
    await recorder.aclose()
    with store_in(folder) as store:
        record, job = store.session("s-0000000001"), store.job("j-1")
        lines = [line for _, line in store.lines("s-0000000001")]
    assert record is not None and job is not None
    return record, job, lines


@aio
async def test_lines_of_acp_are_kept_as_they_came_and_once(tmp_path: Path) -> None:
    where = place("acp")
    lines = [
        chunk("hel"),
        chunk("lo"),
        # A message that makes two events.
        update(
            "tool_call",
            toolCallId="t",
            title="edit",
            content=[{"type": "diff", "path": "/a", "newText": "x"}],
        ),
        update("from_the_future", x=[1]),
    ]
    events = [event for line in lines for event in of_acp(line, where)]
    assert len(events) == 5
    result = Result(Outcome.OK, "hello", stop="end_turn")
    _, job, kept = await stored_of(tmp_path, [*events, ended(where)], result)
    assert kept == lines
    assert (job.state, job.outcome, job.stop) == ("ended", "ok", "end_turn")
    assert (job.text, job.first_event, job.next_event) == ("hello", 0, 4)


@aio
async def test_other_dialects_are_said_in_the_words_of_acp(tmp_path: Path) -> None:
    where = place("codex")
    events: list[model.Event] = [
        model.TurnStarted(*where.base("turn/started", b"{}")),
        model.MessageDelta(*where.base("x", b"{}"), Role.AGENT, "hello", None, "m1"),
        model.ToolChanged(*where.base("x", b"{}"), "t1", title="ls"),
        ended(where),
    ]
    _, _, lines = await stored_of(tmp_path, events, Result(Outcome.OK, "hello"))
    told = [msgspec.json.decode(line) for line in lines]
    kinds = [params["update"]["sessionUpdate"] for params in told]
    assert kinds == ["agent_message_chunk", "tool_call"]
    assert {params["sessionId"] for params in told} == {"peer-s-0000000001"}


@aio
async def test_replays_are_not_stored(tmp_path: Path) -> None:
    where = place("acp")
    where.replay = True
    record, _, lines = await stored_of(tmp_path, of_acp(chunk("old"), where), None)
    assert (record.next_event, lines) == (0, [])


@aio
async def test_a_turn_that_never_ended_leaves_what_was_said(tmp_path: Path) -> None:
    _, job, _ = await stored_of(tmp_path, of_acp(chunk("half an ans"), place("acp")), None)
    assert (job.state, job.outcome, job.text) == ("ended", "unknown", "half an ans")


@aio
async def test_what_the_peer_says_behind_the_turn_is_not_part_of_its_job(tmp_path: Path) -> None:
    where = place("acp")
    events = [*of_acp(chunk("in"), where), ended(where), *of_acp(chunk("behind"), where)]
    _, job, lines = await stored_of(tmp_path, events, Result(Outcome.OK, "in"))
    assert lines == [chunk("in"), chunk("behind")]
    assert (job.text, job.first_event, job.next_event) == ("in", 0, 1)


@aio
async def test_titles_modes_and_answers_to_questions_are_kept(tmp_path: Path) -> None:
    where = place("acp")
    events: list[model.Event] = [
        model.SessionChanged(*where.base("x", None), title="A title"),
        model.SettingsChanged(*where.base("x", None), mode="plan", model="big"),
        model.SettingsChanged(*where.base("x", None)),
        model.PermissionAsked(*where.base("x", None), "r1", (), "edit it", tool_id="t1"),
        model.PermissionAnswered(*where.base("x", None), "r1", True, "yes", "caller"),
    ]
    failure = Failure(f"bad {SECRET}", ErrorKind.INTERNAL, 7)
    result = Result(Outcome.FAILED, "", failure=failure)
    record, job, _ = await stored_of(tmp_path, events, result)
    assert (record.title, record.mode, record.model) == ("A title", "plan", "big")
    with store_in(tmp_path) as store:
        (note,) = store.notes("s-0000000001")
    assert note.data == {
        "by": "caller", "title": "edit it", "toolCallId": "t1", "optionId": "yes",
    }  # fmt: skip
    assert job.failure is not None and job.failure["message"] == "bad [redacted]"


@aio
async def test_a_second_job_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    where = place("acp")
    recorder = recorder_in(tmp_path)
    recorder.opened(opened(), None, name=None)
    for number in (1, 2):
        await recorder.begin()
        recorder.began(f"j-{number}", [Text("do")])
        for event in (*of_acp(chunk("a"), where), ended(where)):
            recorder.event(event)
        recorder.ended(Result(Outcome.OK, "a"))
    await recorder.aclose()
    with store_in(tmp_path) as store:
        second, first = store.jobs()
    assert (first.first_event, first.next_event) == (0, 1)
    assert (second.first_event, second.next_event) == (1, 2)
    assert first.text == second.text == "a"
