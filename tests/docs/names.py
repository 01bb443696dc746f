"""The public names as the reference pages show them, read from the source.

Decides which classes and functions a page describes and what a row looks like. A member is shown
with the first sentence of its docstring; one after a comment such as ``# -- for the server`` or ``#
-- inside`` is not for callers. `test_names_reference` compares.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_INSIDE = re.compile(r"\s*# -- (for the (?!consumer)|for a|inside|services|questions of|called by)")
_SECTION = re.compile(r"\s*# -- ")


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    what: str

    def __str__(self) -> str:
        return f"| `{self.name}` | {self.what} |"


def first_sentence(docstring: str | None) -> str:
    paragraph = " ".join((docstring or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0].replace("|", "\\|")


def describe(thing: Any) -> str:
    return first_sentence(inspect.getdoc(thing))


def members(cls: type) -> list[Row]:
    """Return what a caller may use of a class: its own members first, then inherited ones."""
    rows: dict[str, Row] = {}
    for origin in cls.__mro__:
        if origin.__module__.startswith("dragoman."):
            for name, row in _own(origin):
                rows.setdefault(name, row)
    return list(rows.values())


def _own(cls: type) -> Iterator[tuple[str, Row]]:
    lines, _ = inspect.getsourcelines(cls)
    source = "".join(lines)
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    text = source.splitlines()
    before: ast.stmt | None = None
    for node in body.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == "__init__":
                yield from _attributes(node)
            elif not node.name.startswith("_") and not _is_inside(text, node.lineno):
                yield node.name, Row(_signature(node), first_sentence(ast.get_docstring(node)))
        elif isinstance(before, ast.AnnAssign) and _is_text(node):
            yield from _attribute(before.target, node)
        before = node


def _attributes(init: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, Row]]:
    """Return the attributes that are documented where they are assigned."""
    before: ast.stmt | None = None
    for node in init.body:
        if _is_text(node):
            if isinstance(before, ast.Assign):
                yield from _attribute(before.targets[0], node)
            elif isinstance(before, ast.AnnAssign):
                yield from _attribute(before.target, node)
        before = node


def _attribute(target: ast.expr, text: ast.stmt) -> Iterator[tuple[str, Row]]:
    assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "_")
    if not name.startswith("_"):
        yield name, Row(name, first_sentence(str(text.value.value)))


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_inside(text: list[str], line: int) -> bool:
    sections = [each for each in text[:line] if _SECTION.match(each)]
    return bool(sections) and _INSIDE.match(sections[-1]) is not None


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    decorators = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
    if "property" in decorators:
        return node.name
    arguments = node.args
    names = [each.arg for each in arguments.args[1:]]
    if arguments.vararg is not None:
        names.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        names.append("*")
    names += [each.arg for each in arguments.kwonlyargs]
    if arguments.kwarg is not None:
        names.append(f"**{arguments.kwarg.arg}")
    call = f"{node.name}({', '.join(names)})"
    # A plain function may return the coroutine of another one.
    awaited = isinstance(node, ast.AsyncFunctionDef) or (
        isinstance(node.returns, ast.Subscript)
        and isinstance(node.returns.value, ast.Name)
        and node.returns.value.id == "Coroutine"
    )
    return f"await {call}" if awaited else call


def chapter(module: ModuleType, names: list[str]) -> Iterator[str]:
    """Return the part of a page about some names of a module: functions in a table, each class with
    its own."""
    things = [(name, getattr(module, name)) for name in names]
    functions = [(name, thing) for name, thing in things if not isinstance(thing, type)]
    if functions:
        yield from ("", "| function | what |", "|---|---|")
        yield from (str(Row(f"{name}(…)", describe(thing))) for name, thing in functions)
    for name, thing in things:
        if isinstance(thing, type):
            yield from ("", f"### {name}", "", describe(thing))
            rows = members(thing)
            if rows:
                yield from ("", "| name | what |", "|---|---|", *map(str, rows))
