"""The package's front door: every name is there, and none costs anything before it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dragoman
from dragoman import transports

PROGRAM = """
import sys
import dragoman.transports
loaded = {name for name in sys.modules if name.startswith("dragoman.transports.")}
assert not loaded, loaded
assert not {"asyncio", "websockets", "ssl", "subprocess"} & set(sys.modules)
dragoman.transports.memory_pair
assert "websockets" not in sys.modules
assert "dragoman.transports.process.stream" not in sys.modules
"""


def test_importing_the_package_imports_none_of_the_carriers() -> None:
    source = str(Path(dragoman.__path__[0]).parent)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": source},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("name", transports.__all__)
def test_every_public_name_is_found_and_listed(name: str) -> None:
    value = getattr(transports, name)
    assert value.__name__ == name
    assert name in dir(transports)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        transports.nonsense  # noqa: B018


def test_the_table_of_homes_is_the_list_of_public_names() -> None:
    assert sorted(transports._HOMES) == sorted(transports.__all__)
