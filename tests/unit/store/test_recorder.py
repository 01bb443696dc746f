"""Lines, jobs, settings and notes of sessions are stored by one recorder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.errors import DragomanError
from dragoman.store import Redactor, Store, StoreRecorder, recorder, writer
from dragoman.store.jobs import TEXT_SIZE
from dragoman.store.recorder import JobAnswer, SessionLines, permission_note, said_in
from tests.aio import aio
from tests.unit.store.stores import (
    SECRET,
    WrittenBatches,
    chunk,
    job,
    open_store,
    session,
    update,
)


@asynccontextmanager
async def recording(store: Store, **hooks: Any) -> AsyncIterator[StoreRecorder]:
    def beat() -> None:
        pass

    def trouble(error: DragomanError) -> None:
        raise AssertionError(error)

    one = StoreRecorder(store.redact, on_beat=hooks.get("on_beat", beat))
    one.start(store, on_trouble=trouble, on_recovery=lambda _: None)
    yield one
    await one.close()


# -- the answer of a job


def test_texts_are_found_among_lines_that_are_none() -> None:
    answer = JobAnswer("j")
    image = b'{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image"}}}'
    good = chunk("good")
    answer.add([image, good, b'"agent_message_chunk" no JSON', good])
    assert (answer.text, answer.acted) == ("goodgood", True)
    other = JobAnswer("j")
    other.add([b'{"update":{"sessionUpdate":"tool_call"}}'])
    assert (other.text, other.acted) == ("", True)
    assert said_in([image, good, update("tool_call"), good]) == "goodgood"


def test_a_long_answer_is_kept_with_its_beginning_and_its_end() -> None:
    answer = JobAnswer("j")
    pieces = [f"{number:07} " for number in range(5 * TEXT_SIZE // 8)]
    for start in range(0, len(pieces), 1000):
        answer.add([chunk("".join(pieces[start : start + 1000]))])
    whole = "".join(pieces)
    text = answer.text
    head, _, rest = text.partition("\n[… ")
    left_out, _, end = rest.partition(" characters …]\n")
    assert len(text) <= TEXT_SIZE < 2 * len(head) + 200
    assert whole.startswith(head) and whole.endswith(end)
    assert len(head) + int(left_out) + len(end) == len(whole)


# -- the lines of a session


def test_lines_are_numbered_when_they_may_be_stored() -> None:
    lines = SessionLines(5, Redactor())
    line = chunk("x")
    first, safe = lines.prepare([line, line], None, end=False)
    later, rest = lines.prepare([line], None, end=True)
    assert first == 5
    assert later == 5 + len(safe)
    assert [*safe, *rest] == [line] * 3
    assert lines.next == 8


def test_messages_that_are_alike_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(lines: bytes) -> Any:
        decoded.append(lines)
        return decode_chunks(lines)

    decode_chunks = recorder._decode_chunks
    monkeypatch.setattr(recorder, "_decode_chunks", decode)
    answer = JobAnswer("j")
    lines = SessionLines(0, Redactor())
    texts = ["plain ", 'with "quotes" ', "back\\slash\n", "ümlaut \U0001f600 ", ""] * 20
    lines.prepare([chunk(text) for text in texts], answer, end=True)
    assert answer.text == "".join(texts)
    # Once, to see what stands around the text.
    assert len(decoded) == 1


def test_other_messages_between_those_that_are_alike_are_found() -> None:
    answer = JobAnswer("j")
    lines = SessionLines(0, Redactor())
    line = chunk("alike ")
    other = line.replace(b'"type"', b'"annotations":null,"type"')
    thought = line.replace(b"agent_message_chunk", b"agent_thought_chunk")
    lines.prepare([line, thought, other, line], answer, end=True)
    lines.prepare([thought], answer, end=True)
    lines.prepare([line], answer, end=True)
    assert answer.text == "alike " * 4
    answer.add([line.replace(b"alike ", b'x","y":"')], lines._form)
    assert answer.text == "alike " * 4 + "x"


# -- the store


@aio
async def test_lines_jobs_settings_and_notes_are_stored(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        async with recording(store) as kept:
            kept.create(one)
            kept.settings(one.key, title="A title", mode="plan")
            kept.settings(one.key, title="A title", model="big")
            queued = job(one.key)
            kept.job_changed(queued)
            running = msgspec.structs.replace(queued, state="running", started_at=101.0)
            kept.job_changed(running)
            answer = JobAnswer(queued.id)
            assert kept.add(one.key, 0, [chunk("a "), chunk("b")], answer, end=True)
            assert kept.next_line(one.key) == 2
            kept.note(one.key, 2, "permission", permission_note("caller", SECRET, "t", "yes"))
            kept.job_ended(
                msgspec.structs.replace(
                    running, state="ended", outcome="ok", text=answer.text, next_event=2
                )
            )
            assert kept.numbers() == {one.key: range(2)}
            assert (kept.leave(one.key), kept.leave(one.key)) == (range(2), None)
        found, done = store.session(one.key), store.job(queued.id)
        assert found is not None and done is not None
        assert (found.title, found.mode, found.model) == ("A title", "plan", "big")
        assert [line for _, line in store.lines(one.key)] == [chunk("a "), chunk("b")]
        assert (done.state, done.outcome, done.text) == ("ended", "ok", "a b")
        (note,) = store.notes(one.key)
        assert note.data == {
            "by": "caller", "title": "[redacted]", "toolCallId": "t", "optionId": "yes",
        }  # fmt: skip


@aio
async def test_a_secret_in_pieces_is_not_stored(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        async with recording(store) as kept:
            kept.create(one)
            answer = JobAnswer("j")
            kept.add(one.key, 0, [chunk(SECRET[:7])], answer)
            kept.add(one.key, 0, [chunk(SECRET[7:])], answer)
            kept.add(one.key, 0, [], answer, end=True)
        assert answer.text == "[redacted]"
        assert SECRET[7:].encode() not in b"".join(line for _, line in store.lines(one.key))
        assert [number for number, _ in store.lines(one.key)] == [0, 1]


@aio
async def test_a_name_that_is_taken_does_not_keep_a_session_from_being_stored(
    tmp_path: Path,
) -> None:
    first, second = session(name="talk"), session(name="talk")
    with open_store(tmp_path) as store:
        async with recording(store) as kept:
            kept.create(first)
            kept.create(second)
            kept.change(first.key, closed_at=1.0)
            kept.create(third := session(name="talk"))
            kept.take_up(first.key, 10)
        keys = {record.key: record for record in store.sessions(include_closed=True)}
        assert keys[second.key].name is None
        assert (keys[third.key].name, keys[third.key].closed_at) == ("talk", None)
        assert keys[first.key].next_event == 10
        assert keys[first.key].closed_at == 1.0, "its name belongs to another one by now"


@aio
async def test_marked_events_are_stored_without_a_waiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that nothing but hurry can bring it to the disk.
    monkeypatch.setattr(writer, "BATCH_INTERVAL", 1000.0)
    batches = WrittenBatches(monkeypatch)
    one = session()
    with open_store(tmp_path) as store:
        waiting = [chunk("soon"), update("tool_call", toolCallId="t")]

        def beat() -> None:
            kept.add(one.key, 0, waiting, None)

        async with recording(store, on_beat=beat) as kept:
            kept.create(one)
            kept.mark()
            await batches.until(lambda: store.session(one.key) and list(store.lines(one.key)))
        assert [line for _, line in store.lines(one.key)] == waiting
