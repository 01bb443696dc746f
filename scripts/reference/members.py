"""Read the documented members of a class from its source: signatures, types, defaults, docstrings.

The generators of the reference pages decide which members a page shows, and how.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef

_INSIDE = re.compile(r"\s*# -- (for the (?!consumer)|for a|inside|services|questions of|called by)")
_SECTION = re.compile(r"\s*# -- ")


@dataclass(frozen=True, slots=True)
class Member:
    """One attribute, property or method of a class, or a field of a struct."""

    name: str
    docs: str
    """The whole docstring; empty if there is none."""
    kind: str = ""
    """The type of an attribute, as in the source; empty if the source does not say."""
    default: str | None = None
    call: Function | None = None
    """The definition, if it is a method."""

    @property
    def what(self) -> str:
        return one_line(self.docs)


def paragraphs(docstring: str | None) -> list[str]:
    """Return the paragraphs of a docstring, each in one line, with Markdown for code."""
    parts = inspect.cleandoc(docstring or "").split("\n\n")
    return [" ".join(part.split()).replace("``", "`") for part in parts if part.strip()]


def one_line(docstring: str | None) -> str:
    """Return a docstring as one line, with Markdown for code."""
    return " ".join(paragraphs(docstring))


def first_sentence(docstring: str | None) -> str:
    return re.split(r"(?<=\.) (?=[A-Z`])", (paragraphs(docstring) or [""])[0])[0]


def members(cls: type) -> list[Member]:
    """Return what a caller may use of a class: its own members first, then inherited ones. A member
    after a comment such as ``# -- for the server`` or ``# -- inside`` is not for callers."""
    found: dict[str, Member] = {}
    for origin in cls.__mro__:
        if origin.__module__.startswith("dragoman."):
            for member in _own(origin):
                earlier = found.setdefault(member.name, member)
                if not earlier.docs:
                    # A method without a docstring does what the method that it overrides says.
                    found[member.name] = Member(
                        member.name, member.docs, earlier.kind, earlier.default, earlier.call
                    )
    return list(found.values())


def alias(module: ModuleType, name: str) -> Member:
    """Return a type alias of a module, with the type that it stands for and its docstring."""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return Member(name, _text(after), _source(node.value))
    raise ValueError(f"{module.__name__} has no type alias {name}")


def function(thing: Any) -> Function:
    """Return the definition of a function."""
    node = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    assert isinstance(node, Function)
    return node


def _own(cls: type) -> Iterator[Member]:
    source = "".join(inspect.getsourcelines(cls)[0])
    body = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    text = source.splitlines()
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, Function):
            if node.name == "__init__":
                yield from _attributes(node)
            elif not node.name.startswith("_") and not _is_inside(text, node.lineno):
                docs = ast.get_docstring(node) or ""
                if _is_property(node):
                    yield Member(node.name, docs, _source(node.returns))
                elif not any(_is_setter(each) for each in node.decorator_list):
                    yield Member(node.name, docs, call=node)
        elif isinstance(node, ast.AnnAssign):
            yield from _attribute(node.target, node.annotation, node.value, after)
        elif isinstance(node, ast.Assign) and (docs := _text(after)):
            # A member of an enumeration.
            yield from _attribute(node.targets[0], None, node.value, after)


def _attributes(init: Function) -> Iterator[Member]:
    """Return the public attributes that a constructor sets, with the docstrings after them."""
    kinds = {each.arg: each.annotation for each in [*init.args.args, *init.args.kwonlyargs]}
    for node, after in zip(init.body, [*init.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            yield from _attribute(node.target, node.annotation, None, after)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            value = node.value
            kind = kinds.get(value.id) if isinstance(value, ast.Name) else _made(value)
            yield from _attribute(node.targets[0], kind, None, after)


def _made(value: ast.expr) -> ast.expr | None:
    """Return the type of a value that the source creates, as far as it shows."""
    match value:
        case ast.Constant(value=bool()):
            return ast.Name("bool")
        case ast.Constant(value=int()):
            return ast.Name("int")
        case ast.Call(func=ast.Name() | ast.Attribute() as func) if (
            ast.unparse(func).rpartition(".")[2][:1].isupper()
        ):
            return func
    return None


def _attribute(
    target: ast.expr, kind: ast.expr | None, default: ast.expr | None, after: ast.stmt | None
) -> Iterator[Member]:
    if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self":
        return
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "_")
    if not name.startswith("_"):
        shown = None if default is None else _source(default)
        yield Member(name, _text(after), _source(kind), shown)


def _source(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node).replace("'", '"')


def _text(node: ast.stmt | None) -> str:
    """Return the text of a docstring, or an empty string for any other statement."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(node.value.value) if isinstance(node.value.value, str) else ""
    return ""


def _is_property(node: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def _is_setter(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr == "setter"


def _is_inside(text: list[str], line: int) -> bool:
    sections = [each for each in text[:line] if _SECTION.match(each)]
    return bool(sections) and _INSIDE.match(sections[-1]) is not None
