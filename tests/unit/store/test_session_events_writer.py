"""A run is written down whatever its peer speaks."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec

from dragoman.dialects.acp.v1 import translate, updates
from dragoman.dialects.acp.v1.codec import decode
from dragoman.events import model, parts
from dragoman.events.model import EventEnvelope
from dragoman.events.words import ErrorKind, Outcome, Role
from dragoman.store import JobRecord, SessionEventsWriter, SessionRecord, Store, StoreWriter
from tests.aio import aio
from tests.unit.store.stores import SECRET, chunk, job, open_store, session, update


def place(dialect: str) -> EventEnvelope:
    return EventEnvelope(model.Source(dialect, "c1"), itertools.count(), "theirs")


def of_acp(line: bytes, where: EventEnvelope) -> list[model.Event]:
    raw = b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % line
    heard = decode(line, updates.SessionNotification)
    return list(translate.of_update(heard.update, where, raw))


def ended(where: EventEnvelope, **fields: object) -> model.TurnEnded:
    told = {"outcome": Outcome.OK, "stop": "end_turn", **fields}
    return model.TurnEnded(*where.base("session/prompt", None), **told)  # type: ignore[arg-type]


async def record(
    store: Store, events: list[model.Event], *, close: bool = True
) -> tuple[SessionRecord, JobRecord]:
    one = session()
    store.create_session(one)
    async with StoreWriter(store) as writer:
        recorder = SessionEventsWriter(writer, one)
        made = recorder.begin(job())
        for event in events:
            recorder.record(event)
        if close:
            assert await recorder.close()
    found, kept = store.session(one.key), store.job(made.id)
    assert found is not None and kept is not None
    return found, kept


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
    with open_store(tmp_path) as store:
        one, made = await record(store, [*events, ended(where)])
        assert list(store.lines(one.key)) == list(enumerate(lines))
        assert (made.state, made.outcome, made.stop) == ("ended", "ok", "end_turn")
        assert (made.text, made.first_event, made.next_event) == ("hello", 0, 4)


@aio
async def test_other_dialects_are_said_in_the_words_of_acp(tmp_path: Path) -> None:
    where = place("codex")
    events: list[model.Event] = [
        model.TurnStarted(*where.base("turn/started", b"{}")),
        model.MessageDelta(*where.base("x", b"{}"), Role.AGENT, "hello", None, "m1"),
        model.ToolChanged(*where.base("x", b"{}"), "t1", title="ls"),
        ended(where, usage=parts.Usage(input_tokens=3)),
    ]
    with open_store(tmp_path) as store:
        one, made = await record(store, events)
        told = [msgspec.json.decode(line) for _, line in store.lines(one.key)]
    assert [params["update"]["sessionUpdate"] for params in told] == [
        "agent_message_chunk",
        "tool_call",
    ]
    assert {params["sessionId"] for params in told} == {"theirs"}
    assert made.usage == {"input_tokens": 3}


@aio
async def test_replays_are_not_stored(tmp_path: Path) -> None:
    where = place("acp")
    where.replay = True
    with open_store(tmp_path) as store:
        one, _ = await record(store, of_acp(chunk("old"), where))
        assert one.next_event == 0


@aio
async def test_a_turn_that_never_ended_leaves_what_was_said(tmp_path: Path) -> None:
    where = place("acp")
    with open_store(tmp_path) as store:
        _, made = await record(store, of_acp(chunk("half an ans"), where))
        assert (made.state, made.outcome, made.text) == ("ended", "unknown", "half an ans")


@aio
async def test_titles_modes_and_answers_to_questions_are_kept(tmp_path: Path) -> None:
    where = place("acp")
    events: list[model.Event] = [
        model.SessionChanged(*where.base("x", None), title="A title"),
        model.SettingsChanged(*where.base("x", None), mode="plan", model="big"),
        model.SettingsChanged(*where.base("x", None)),
        model.PermissionAnswered(*where.base("x", None), "r1", True, "yes", "caller"),
        ended(
            where,
            outcome=Outcome.FAILED,
            failure=parts.Failure(f"bad {SECRET}", ErrorKind.INTERNAL, 7),
        ),
    ]
    with open_store(tmp_path) as store:
        one, made = await record(store, events)
        assert (one.title, one.mode, one.model) == ("A title", "plan", "big")
        (note,) = store.notes(one.key)
        assert note.data == {
            "requestId": "r1",
            "allowed": True,
            "optionId": "yes",
            "by": "caller",
        }
        assert made.failure is not None and made.failure["message"] == "bad [redacted]"


@aio
async def test_a_secret_in_pieces_is_not_written_down(tmp_path: Path) -> None:
    where = place("acp")
    pieces = [chunk(SECRET[:7]), chunk(SECRET[7:])]
    with open_store(tmp_path) as store:
        one, made = await record(store, [event for line in pieces for event in of_acp(line, where)])
        assert one.next_event == 2 and made.text == "[redacted]"
        assert SECRET[7:].encode() not in b"".join(line for _, line in store.lines(one.key))


@aio
async def test_a_second_job_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    where = place("acp")
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        async with StoreWriter(store) as writer:
            recorder = SessionEventsWriter(writer, one)
            for _ in range(2):
                recorder.begin(job())
                for event in (*of_acp(chunk("a"), where), ended(where, text="whole")):
                    recorder.record(event)
            await recorder.close()
        second, first = store.jobs()
        assert (first.first_event, first.next_event) == (0, 1)
        assert (second.first_event, second.next_event) == (1, 2)
        assert first.text == second.text == "whole"
