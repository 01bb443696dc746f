"""The front door: every name it promises is there, and looking at it costs nothing."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def stub() -> tuple[dict[str, str], list[str]]:
    """What `__init__.pyi` imports: the full name of each, and its `__all__`."""
    source = Path(dragoman.__file__).with_suffix(".pyi").read_text("utf-8")
    imported: dict[str, str] = {}
    public: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom):
            # Without the second name it would be for the stub alone.
            imported |= {str(each.asname): f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Assign):
            public = ast.literal_eval(node.value)
    return imported, public


@pytest.mark.parametrize("name", dragoman.__all__)
def test_a_name_is_the_one_that_the_stub_imports(name: str) -> None:
    assert getattr(dragoman, name) is pkgutil.resolve_name(stub()[0][name])


def test_the_stub_has_the_names_of_the_module_and_no_others() -> None:
    imported, public = stub()
    assert public == dragoman.__all__
    assert imported.keys() == {*public, "__version__"}
    assert set(dragoman.__all__) <= set(dir(dragoman))


@pytest.mark.parametrize("name", sorted(vars(dragoman)["_MOVED"]))
def test_a_name_that_moved_says_where_it_is(name: str) -> None:
    home = vars(dragoman)["_MOVED"][name]
    with pytest.warns(DeprecationWarning, match=f"dragoman.{name} is now {home}.{name}"):
        assert getattr(dragoman, name) is pkgutil.resolve_name(f"{home}.{name}")
    assert name not in dir(dragoman)


def test_a_name_that_does_not_exist_is_refused_by_its_name() -> None:
    careless: Any = dragoman
    with pytest.raises(AttributeError, match=r"'dragoman' has no attribute 'nonesuch'"):
        _ = careless.nonesuch
