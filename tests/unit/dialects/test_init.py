"""Types that are analysed early. `tests/faults/test_typed_decoding.py` then uses them in several
threads."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from msgspec import Struct

from dragoman.dialects import analyse


class Broken(Struct):
    """To analyse it is an error, which shows whether it was analysed."""

    part: Missing  # type: ignore[name-defined]  # noqa: F821


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = ModuleType("made_for_a_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_the_types_of_a_module_are_analysed(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module.Broken = Broken
    monkeypatch.setattr(Broken, "__module__", module.__name__)
    with pytest.raises(NameError, match="Missing"):
        analyse(module.__name__)


def test_types_from_other_modules_and_other_values_are_left_alone(module: Any) -> None:
    module.Broken, module.Struct, module.number, module.kind = Broken, Struct, 1, int
    analyse(module.__name__)
