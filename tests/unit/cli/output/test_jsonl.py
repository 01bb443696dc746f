"""Lines of JSON: every event, then one result or one error."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from dragoman.cli.output.jsonl import JsonLines, of_event, write_json
from dragoman.client.permissions import Denial
from dragoman.errors import CallTimeout, UsageError
from dragoman.events import model
from dragoman.events.parts import Failure, Usage
from dragoman.events.words import Outcome, Role, ToolStatus
from tests.unit.cli.output.happening import happened, report


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_event_is_reported_with_its_place_and_without_its_raw_message() -> None:
    told = of_event(happened(model.MessageDelta, Role.AGENT, "hi"))
    assert told["type"] == "MessageDelta"
    assert told["source"] == {"dialect": "acp", "connection": "client-1"}
    assert (told["session"], told["turn"], told["role"], told["text"]) == (
        "s1",
        "t1",
        "agent",
        "hi",
    )
    assert "raw" not in told


def test_what_an_event_leaves_as_it_was_is_left_out_and_what_it_clears_is_null() -> None:
    told = of_event(happened(model.ToolChanged, "c1", title=None, status=ToolStatus.RUNNING))
    assert told["title"] is None and told["status"] == "running"
    assert "kind" not in told


def test_values_that_json_does_not_know_become_words() -> None:
    told = of_event(happened(model.ToolChanged, "c1", input={"at": 1 + 2j}))
    assert told["input"] == {"at": "(1+2j)"}


def test_a_turn_ends_with_its_result() -> None:
    out, err = io.StringIO(), io.StringIO()
    show = JsonLines(out, err)
    show.event(happened(model.MessageDelta, Role.AGENT, "hi"))
    failure = Failure("too slow")
    show.ended(
        report(
            Outcome.TIMED_OUT,
            "hi",
            failure=failure,
            error=CallTimeout("x", 1.0),
            usage=Usage(input_tokens=3),
            denials=(Denial("c1", "Write", "edit"),),
            exit_code=3,
        )
    )
    event, result = lines(out)
    assert (event["type"], result["type"], result["outcome"]) == (
        "MessageDelta",
        "Result",
        "timed_out",
    )
    assert result["denials"] == [{"tool_call_id": "c1", "title": "Write", "kind": "edit"}]
    assert result["usage"]["input_tokens"] == 3 and result["usage"]["output_tokens"] is None
    assert result["error"]["error"] == "timeout" and result["exit_code"] == 3
    assert "what next" in err.getvalue()


def test_an_error_is_one_line_and_strict_says_nothing_beside_it() -> None:
    for strict in (True, False):
        out, err = io.StringIO(), io.StringIO()
        show = JsonLines(out, err, strict=strict)
        show.notice("by the way")
        show.failed(UsageError("not like this"))
        show.ended(report(Outcome.FAILED))
        error, result = lines(out)
        assert (error["type"], error["error"], error["exit_code"]) == ("Error", "usage", 2)
        assert (err.getvalue() == "") is strict


def test_text_with_newlines_and_escapes_stays_on_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_json({"text": "a\nb\x1b"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "\x1b" not in out
    assert json.loads(out) == {"text": "a\nb\x1b"}


def test_no_line_holds_what_a_terminal_obeys() -> None:
    out = io.StringIO()
    text = "\x1b[2J\x9b31m\x7f\u202e\u2066 h\u00e4llo"
    write_json({"text": text}, stream=out)
    assert not set("\x1b\x9b\x7f\u202e\u2066") & set(out.getvalue())
    assert json.loads(out.getvalue()) == {"text": text}


def test_a_stream_that_lacks_characters_still_gets_json() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    write_json({"text": "h\u00e4llo \U0001f600"}, stream=out)
    assert json.loads(raw.getvalue()) == {"text": "h\u00e4llo \U0001f600"}
