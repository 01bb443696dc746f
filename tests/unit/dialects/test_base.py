"""Every dialect of the documents has the methods that the interface asks for."""

from __future__ import annotations

import inspect

import pytest

from dragoman.client.documents import DIALECTS, DocumentOptions
from dragoman.dialects import base, chained, keyed, oneshot, tagged, threads


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
