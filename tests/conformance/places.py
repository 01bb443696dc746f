"""Paths and environment of the programs that these tests start, and the names of the tests."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src")}

PATIENCE = 40.0
"""Seconds to wait for one response of a program on a machine that is busy with other tests."""


def full_agent(store: Path) -> list[str]:
    """The command line of the agent with every handler, which stores its sessions in `store`."""
    return [sys.executable, str(ROOT / "tests" / "conformance" / "full_agent.py"), str(store)]


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests in a file of the test suite."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = (node.name for node in tree.body if isinstance(node, functions))
    return frozenset(name for name in names if name.startswith("test_"))


def is_test(test: str) -> bool:
    """Whether a test, given as ``tests/file.py::test_name``, exists."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and name in names_in(path)
