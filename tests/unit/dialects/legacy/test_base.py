"""Every dialect of the documents has the methods that the interface asks for."""

from __future__ import annotations

import inspect

import msgspec
import pytest
from msgspec import Raw

from dragoman.client.legacy import DIALECTS, DocumentOptions
from dragoman.dialects.legacy import base, chained, keyed, oneshot, tagged, threads
from dragoman.events import model
from tests.unit.dialects.document_reading import Places, opening, tell_raw


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
    end: base.ClientEnd = base.BareEnd()
    assert end.hello() is None
    assert opening(end) == []
    assert end.opened(None, None, "new", Places("bare")) == ("default", [])
    assert (end.listing(None), end.cancelling("s"), end.setting_mode("s", "m")) == ((), None, None)
    assert not any(able for able in msgspec.to_builtins(end.capabilities).values())
    for ask in (lambda: end.prompting("s", []), lambda: end.answered(Raw(b"{}"), Places("b")("s"))):
        with pytest.raises(NotImplementedError):
            ask()


def test_a_bare_end_keeps_what_it_does_not_understand() -> None:
    (event,) = tell_raw(base.BareEnd(), "word", {"a": 1})
    assert isinstance(event, model.Unknown)
    assert event.native == "word" and event.raw is not None
