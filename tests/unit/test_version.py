from __future__ import annotations

from importlib import metadata

import dragoman
from dragoman import version


def test_the_front_door_and_the_package_tell_the_same_version() -> None:
    assert dragoman.__version__ == version.__version__ == metadata.version("dragoman")
