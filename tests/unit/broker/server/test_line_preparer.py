"""Lines are numbered, cleaned and listened to before they are stored."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dragoman.broker.server import line_preparer
from dragoman.broker.server.jobs import Job
from dragoman.broker.server.line_preparer import LinePreparer, collect
from dragoman.store import Redactor
from tests.unit.broker.near import notice


def test_texts_are_found_among_lines_that_are_none() -> None:
    job = Job("j", cast(Any, None), {})
    image = b'{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image"}}}'
    good = bytes(notice("s1", "good").params)
    collect(job, [image, good, b'"agent_message_chunk" no JSON', good])
    assert (job.text, job.acted) == ("goodgood", True)
    other = Job("j", cast(Any, None), {})
    collect(other, [b'{"update":{"sessionUpdate":"tool_call"}}'])
    assert (other.text, other.acted) == ("", True)


def test_a_scribe_numbers_what_may_be_stored() -> None:
    scribe = LinePreparer("s-k", 5, Redactor())
    line = bytes(notice("s1", "x").params)
    first, safe = scribe.prepare([line, line], None, end=False)
    later, rest = scribe.prepare([line], None, end=True)
    assert first == 5
    assert later == 5 + len(safe)
    assert [*safe, *rest] == [line] * 3
    assert scribe.next == 8


def test_messages_that_are_alike_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(lines: bytes) -> Any:
        decoded.append(lines)
        return decode_chunks(lines)

    decode_chunks = line_preparer._decode_chunks
    monkeypatch.setattr(line_preparer, "_decode_chunks", decode)
    job = Job("j", cast(Any, None), {})
    preparer = LinePreparer("s-k", 0, Redactor())
    texts = ["plain ", 'with "quotes" ', "back\\slash\n", "ümlaut \U0001f600 ", ""] * 20
    preparer.prepare([bytes(notice("s1", text).params) for text in texts], job, end=True)
    assert job.text == "".join(texts)
    # Once, to see what stands around the text.
    assert len(decoded) == 1


def test_other_messages_between_those_that_are_alike_are_found() -> None:
    job = Job("j", cast(Any, None), {})
    preparer = LinePreparer("s-k", 0, Redactor())
    line = bytes(notice("s1", "alike ").params)
    other = line.replace(b'"type"', b'"annotations":null,"type"')
    thought = line.replace(b"agent_message_chunk", b"agent_thought_chunk")
    preparer.prepare([line, thought, other, line], job, end=True)
    preparer.prepare([thought], job, end=True)
    preparer.prepare([line], job, end=True)
    assert job.text == "alike " * 4
    collect(job, [line.replace(b"alike ", b'x","y":"')], preparer._form)
    assert job.text == "alike " * 4 + "x"
