"""The front door: every name it promises is there, and looking at it costs nothing."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import dragoman

IMPORT_TIMEOUT = 30.0
"""Starting an interpreter takes a fraction of a second on a machine that is not overloaded."""

FOREIGN = ("asyncio", "msgspec", "websockets", "logging", "socket", "subprocess", "typing")


def loaded_by(statement: str) -> set[str]:
    """The modules that a statement loads into a fresh interpreter."""
    code = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=IMPORT_TIMEOUT,
    )
    return set(done.stdout.split())


def test_importing_dragoman_loads_nothing_but_itself() -> None:
    assert loaded_by("import dragoman") == {"dragoman", "dragoman.version"}


def test_an_error_is_reached_without_loading_an_event_loop_or_a_decoder() -> None:
    loaded = loaded_by("from dragoman import DragomanError")
    assert "dragoman.errors" in loaded
    assert loaded.isdisjoint(FOREIGN[:-1])


@pytest.mark.parametrize("name", dragoman.__all__)
def test_every_promised_name_is_the_one_of_its_room(name: str) -> None:
    (home,) = [home for home, names in dragoman._HOMES.items() if name in names]
    assert getattr(dragoman, name) is getattr(importlib.import_module(home), name)


def test_the_promised_names_are_exactly_those_that_have_a_home() -> None:
    homed = [name for names in dragoman._HOMES.values() for name in names]
    assert sorted(homed) == sorted(dragoman.__all__)
    assert set(dragoman.__all__) <= set(dir(dragoman))


def test_a_name_that_does_not_exist_is_refused_by_its_name() -> None:
    with pytest.raises(AttributeError, match=r"'dragoman' has no attribute 'nonesuch'"):
        _ = dragoman.nonesuch
