"""Every dialect of the documents has the methods that the interface asks for."""

from __future__ import annotations

import inspect

import msgspec
import pytest
from msgspec import Raw

from dragoman.client.legacy import DIALECTS, DocumentOptions
from dragoman.dialects.legacy import base, chained, keyed, oneshot, tagged, threads
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.parts import FileChange, Text
from dragoman.events.words import ChangeStage, ErrorKind, Outcome, Role, ToolStatus, TurnPhase
from tests.unit.dialects.document_reading import Places, opening, tell_raw
from tests.unit.dialects.document_reading import base as fields


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_has_everything_that_the_interface_names(dialect: str) -> None:
    end = DIALECTS[dialect](DocumentOptions())
    names = [name for name in vars(base.ClientEnd) if not name.startswith("_")]
    assert len(names) > 15
    assert [name for name in names if not hasattr(end, name)] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_methods_take_what_the_interface_says(dialect: str) -> None:
    end = DIALECTS[dialect](DocumentOptions())
    for name in ("opening", "opened", "listing", "prompting", "answered", "notified"):
        wanted = list(inspect.signature(getattr(base.ClientEnd, name)).parameters)[1:]
        assert list(inspect.signature(getattr(end, name)).parameters) == wanted


@pytest.mark.parametrize("dialect", [oneshot, threads, tagged, keyed, chained])
def test_every_dialect_lists_what_it_cannot_say(dialect: object) -> None:
    losses = dialect.LOSSES  # type: ignore[attr-defined]
    assert len(losses) >= 5
    assert len(set(losses)) == len(losses)


def test_a_bare_end_has_everything_and_can_do_nothing() -> None:
    end: base.ClientEnd = base.ClientEnd()
    assert end.hello() is None
    assert opening(end) == []
    assert end.opened(None, None, "new", Places("bare")) == (None, [])
    assert (end.listing(None), end.cancelling("s"), end.setting_mode("s", "m")) == ((), None, None)
    assert not any(able for able in msgspec.to_builtins(end.capabilities).values())
    for ask in (lambda: end.prompting("s", []), lambda: end.answered(Raw(b"{}"), Places("b")("s"))):
        with pytest.raises(NotImplementedError):
            ask()


def test_a_bare_end_keeps_what_it_does_not_understand() -> None:
    (event,) = tell_raw(base.ClientEnd(), "word", {"a": 1})
    assert isinstance(event, model.Unknown)
    assert event.native == "word" and event.raw is not None


class Word(msgspec.Struct):
    session_id: str
    word: str


class WordsEnd(base.ClientEnd):
    name = "words"

    def _word(
        self, message: Word, place: EventEnvelope, native: str, line: bytes
    ) -> list[model.Event]:
        return [model.MessageDelta(*place.base(native, line), Role.AGENT, message.word)]

    notifications = base.meanings({"word": (Word, _word)})


def test_a_table_of_notifications_is_enough_to_read_them() -> None:
    (event,) = tell_raw(WordsEnd(), "word", {"session_id": "s", "word": "yes"})
    assert (event.session, event.native, event.text) == ("s", "word", "yes")
    (odd,) = tell_raw(WordsEnd(), "word", {"session_id": "s"})
    assert isinstance(odd, model.Unknown) and "word" in odd.reason
    (other,) = tell_raw(WordsEnd(), "wort", {"session_id": "s", "word": "ja"})
    assert isinstance(other, model.Unknown) and other.reason == "an unknown notification"


@pytest.mark.parametrize(
    ("kind", "message", "outcome", "found", "retryable"),
    [
        (ErrorKind.PEER, "no", Outcome.FAILED, ErrorKind.PEER, False),
        (ErrorKind.INTERNAL, "Rate limit hit", Outcome.QUOTA, ErrorKind.RATE_LIMITED, True),
        (ErrorKind.NETWORK, "rate limit", Outcome.FAILED, ErrorKind.NETWORK, True),
    ],
)
def test_an_error_ends_a_turn_with_its_report_before_it(
    kind: ErrorKind, message: str, outcome: Outcome, found: ErrorKind, retryable: bool
) -> None:
    place = Places("bare")("s")
    report, end = base.failed(place, "x", b"{}", "error", kind=kind, code=7, message=message)
    assert isinstance(report, model.ErrorReported) and isinstance(end, model.TurnEnded)
    assert report.seq < end.seq
    assert report.failure == end.failure
    assert end.failure is not None
    assert (end.failure.kind, end.failure.retryable, end.failure.code) == (found, retryable, 7)
    assert end.outcome is outcome


def test_an_agents_end_tells_nothing_that_the_dialect_has_no_word_for() -> None:
    end = base.AgentEnd()
    assert end.tell(model.MessageDelta(*fields(), Role.THOUGHT, "hm")) == []
    assert end.tell(model.MessageDelta(*fields(), Role.AGENT, "")) == []
    assert end.tell(model.ToolChanged(*fields(), "t")) == []
    assert end.tell(model.FilesChanged(*fields(), (FileChange("a"),), ChangeStage.APPLIED)) == []
    assert end.tell(model.PlanSet(*fields())) == []
    assert end.tell(model.SettingsChanged(*fields(), mode="m")) == []
    assert end.tell(model.TurnState(*fields(), TurnPhase.RUNNING)) == []
    with pytest.raises(NotImplementedError):
        end.tell(model.MessageDelta(*fields(), Role.AGENT, "yes"))


def test_a_tool_call_has_one_name_and_begins_once() -> None:
    end = base.AgentEnd()
    assert end.begins("t") and not end.begins("t")
    call = model.ToolChanged(
        *fields(), "t", title="Read", status=ToolStatus.FAILED, content=(Text("a"), Text("b"))
    )
    assert base.tool_name(call) == "Read" and base.is_over(call)
    assert base.content_text(call) == "a\nb"
    bare = model.ToolChanged(*fields(), "t")
    assert (base.tool_name(bare), base.tool_name(bare, "Read")) == ("t", "Read")
    assert not base.is_over(bare) and base.content_text(bare) == ""
