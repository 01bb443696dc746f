"""The earlier name of the gateway."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest


def test_the_earlier_import_works_with_a_warning() -> None:
    code = "from dragoman.bridge import Bridge, serve; print(Bridge.__name__, serve.__name__)"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=50
    )
    assert done.stdout.split() == ["Gateway", "serve"]
    assert "dragoman.bridge is now dragoman.gateway" in done.stderr


def test_a_star_import_takes_the_earlier_name() -> None:
    taken: dict[str, object] = {}
    sys.modules.pop("dragoman.bridge", None)
    with pytest.warns(DeprecationWarning, match="is now dragoman.gateway"):
        exec("from dragoman.bridge import *", taken)
    assert {"RAW_KEY", "Bridge", "serve"} <= taken.keys()


def test_modules_of_the_gateway_are_not_loaded_twice() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("dragoman.bridge.relay")


@pytest.mark.parametrize("module", ["dragoman.bridge", "dragoman.gateway"])
def test_both_names_are_programs(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0
    assert "usage:" in done.stdout
    # The one who starts it by the earlier name sees that, without an option of Python.
    assert ("is now dragoman.gateway" in done.stderr) == (module == "dragoman.bridge")
