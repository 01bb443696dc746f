"""Lines are numbered, cleaned and listened to before they are stored."""

from __future__ import annotations

from typing import Any, cast

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
