"""The interface itself. What it promises is held against every stream in tests/contract."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman import transports
from dragoman.transports.base import HIGH_WATER_SIZE, READ_SIZE, Stream

MMAP_THRESHOLD = 128 * 1024
"""Of the C library: from this size on a buffer is mapped when made and unmapped when freed."""

PROMISED = {
    "start": False,
    "write": False,
    "drain": True,
    "pause_reading": False,
    "resume_reading": False,
    "aclose": True,
}
"""The methods, and whether they are waited for: one that must not block may not become one."""


def streams(kind: type[Any] = Stream) -> Iterator[type[Stream]]:
    """Every stream of the package."""
    for found in kind.__subclasses__():
        if found.__module__.startswith(transports.__name__):
            yield found
        yield from streams(found)


def test_a_read_stays_below_the_size_from_which_every_buffer_is_mapped() -> None:
    assert READ_SIZE < MMAP_THRESHOLD
    assert READ_SIZE < HIGH_WATER_SIZE


@pytest.mark.parametrize("missing", [*PROMISED, "unsent_size"])
def test_a_stream_that_leaves_something_out_cannot_be_made(missing: str) -> None:
    whole = {name: lambda *_: None for name in [*PROMISED, "unsent_size"]}
    type("Whole", (Stream,), dict(whole))()
    del whole[missing]
    with pytest.raises(TypeError, match=missing):
        type("Partial", (Stream,), dict(whole))()


def test_every_stream_is_called_as_the_interface_says() -> None:
    for module in pkgutil.iter_modules(transports.__path__, f"{transports.__name__}."):
        importlib.import_module(module.name)
    found = list(streams())
    assert len(found) >= 5
    for kind in found:
        for name, waits in PROMISED.items():
            method = getattr(kind, name)
            assert inspect.iscoroutinefunction(method) == waits, f"{kind.__name__}.{name}"
            wanted = list(inspect.signature(getattr(Stream, name)).parameters)
            assert list(inspect.signature(method).parameters) == wanted, f"{kind.__name__}.{name}"
        assert isinstance(inspect.getattr_static(kind, "unsent_size"), property), kind.__name__
