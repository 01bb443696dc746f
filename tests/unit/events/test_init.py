"""The names of the package: every event, part and word, loaded on first use."""

from __future__ import annotations

import enum
import pydoc
from typing import Any, get_args

import msgspec
import pytest

from dragoman import events
from dragoman.events import model, parts, words
from tests.unit.test_init import loaded_by

package: Any = events


def test_every_event_part_and_word_is_a_name_of_the_package() -> None:
    for home in (model, parts, words):
        kinds = (msgspec.Struct, enum.Enum)
        own = {
            name
            for name, value in vars(home).items()
            if isinstance(value, type) and issubclass(value, kinds)
            if value.__module__ == home.__name__ and not name.startswith("_")
        }
        assert own <= set(home.__all__)
        for name in home.__all__:
            assert getattr(events, name) is getattr(home, name)
    assert set(get_args(events.Event)) == set(get_args(model.Event))
    assert set(package.__all__) == {*model.__all__, *parts.__all__, *words.__all__}
    assert set(package.__all__) <= set(dir(events))


def test_a_name_that_does_not_exist_is_refused_by_its_name() -> None:
    for name in ("Nonesuch", "nonesuch"):
        with pytest.raises(AttributeError, match=f"'dragoman.events' has no attribute '{name}'"):
            getattr(events, name)


def test_a_module_of_the_package_loads_no_other() -> None:
    assert "dragoman.events.model" not in loaded_by("from dragoman.events import words")


def test_help_lists_the_events() -> None:
    assert "class MessageDelta(" in pydoc.plain(pydoc.render_doc(events))
