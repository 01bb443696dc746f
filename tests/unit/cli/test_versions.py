"""The versions that a bug report needs."""

from __future__ import annotations

import dragoman
from dragoman.cli.versions import LIBRARIES, report


def test_dragoman_comes_first_and_every_library_has_its_line() -> None:
    first, second, *rest = report().splitlines()
    assert first == f"dragoman {dragoman.__version__}"
    assert " on " in second
    assert [line.split()[0] for line in rest] == [*LIBRARIES]
