"""Describe classes and functions for those who call them: signature, types, defaults, meaning.

A signature is shown the way it is used: with ``await``, ``async with``, ``async for`` or ``@``.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final

import msgspec

from scripts.reference.members import (
    Function,
    Member,
    alias,
    function,
    members,
    paragraphs,
)

_OPTION: Final = re.compile(r"^(\w+) \(default .*?\): (.*?)(?=^\w|\Z)", re.DOTALL | re.MULTILINE)
"""An option in a docstring."""

ENTERED: Final = {"Turn", "ToolCall", "ConversationTurn"}
"""Classes whose values are used with ``async with``."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """A class as a page describes it."""

    cls: type
    variable: str = ""
    """The name of a value in the signatures; empty for the values that a caller creates."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The members by heading, in the order of the page; empty for the order of the source."""
    hidden: Sequence[str] = ()
    """Public members that are not for callers."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of members that have no docstring, because their names say it in the source."""

    def members(self) -> list[tuple[str, list[Member]]]:
        """Return the members on the page, by heading. Raises `ValueError` if the groups and the
        class have different members."""
        found = {
            member.name: replace(member, docs=member.docs or self.notes.get(member.name, ""))
            for member in members(self.cls)
            if member.name not in self.hidden
        }
        if not self.groups:
            return [("", list(found.values()))]
        named = [name for names in self.groups.values() for name in names]
        if wrong := set(named) ^ set(found):
            raise ValueError(f"{self.cls.__name__}: {sorted(wrong)}")
        return [(title, [found[name] for name in names]) for title, names in self.groups.items()]


def chapters(described: Sequence[Chapter]) -> Iterator[str]:
    """Yield the lines about some classes."""
    for chapter in described:
        yield from ("", f"## {chapter.cls.__name__}")
        yield from text(chapter.cls.__doc__)
        for title, group in chapter.members():
            if title:
                yield from ("", f"### {title}")
            for member in group:
                yield from item(signature(chapter, member), member.docs)


def functions(described: Sequence[Any], variable: str = "") -> Iterator[str]:
    """Yield the lines about some functions."""
    for thing in described:
        node = function(thing)
        yield from item(_call(node, node.name, variable), inspect.getdoc(thing))


def types(aliases: Sequence[tuple[ModuleType, str]], classes: Sequence[type]) -> Iterator[str]:
    """Yield the lines about the types that signatures name and that have no chapter."""
    yield from ("", "## Types in the signatures")
    for module, name in aliases:
        found = alias(module, name)
        yield from item(f"{module.__name__}.{name} = {found.kind}", found.docs)
    for cls in classes:
        yield from item(f"{cls.__module__}.{cls.__name__}", cls.__doc__)


def with_options(thing: Any, variable: str = "") -> Iterator[str]:
    """Yield the lines about a function whose docstring describes its options one by one."""
    node = function(thing)
    about, _, options = (inspect.getdoc(thing) or "").partition("Options:\n")
    named = {
        each.arg: default
        for each, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    }
    kinds = {each.arg: each for each in node.args.kwonlyargs}
    node.args.kwonlyargs, node.args.kw_defaults = [], []
    node.args.kwarg = ast.arg("options")
    yield from ("", f"## {node.name}", "", f"`{_call(node, node.name, variable)}`")
    yield from text(about)
    for name, what in _OPTION.findall(options):
        yield from item(_parameter(kinds.pop(name), named[name]), what[0].upper() + what[1:])
    if kinds:
        raise ValueError(f"{node.name}: {sorted(kinds)} are not described")


def text(docstring: str | None) -> Iterator[str]:
    for paragraph in paragraphs(docstring):
        yield from ("", paragraph)


def item(code: str, docstring: str | None) -> Iterator[str]:
    """Yield an entry of a list: code, and below it what it means."""
    # The name of a module here is that of a public one there.
    shown = re.sub(r"\bmodel[.]", "events.", code)
    yield from ("", f"- `{shown}`")
    for paragraph in paragraphs(docstring):
        yield from ("", f"    {paragraph}")


def signature(chapter: Chapter, member: Member) -> str:
    """Return a member as a caller writes it, with types and defaults."""
    if issubclass(chapter.cls, enum.Enum) and member.call is None and member.default is not None:
        return f"{chapter.cls.__name__}.{member.name}"
    name = f"{chapter.variable}.{member.name}" if chapter.variable else member.name
    if member.call is None:
        shown = f"{name}: {member.kind}" if member.kind else name
        return shown if member.default is None else f"{shown} = {default(member.default)}"
    return _call(member.call, name)


def _call(node: Function, name: str, variable: str = "") -> str:
    returned = node.returns
    parameters = _parameters(node)
    kind = "" if returned is None else ast.unparse(returned).replace("'", '"')
    if kind == "F":
        return f"@{name}"
    if kind == "Callable[[F], F]":
        return f"@{name}({parameters})"
    call = f"{name}({parameters})"
    inner = _argument(returned)
    if kind.startswith("Entering["):
        return f"async with {call} as {_variable(inner, variable)}"
    if kind.startswith("EnteringSync["):
        return f"with {call} as {_variable(inner, variable)}"
    if kind.startswith("AsyncIterator["):
        if any("asynccontextmanager" in ast.unparse(each) for each in node.decorator_list):
            return f"async with {call} as {_variable(inner, variable)}"
        return f"async for {_variable(inner)} in {call}"
    if kind in ENTERED:
        return f"async with {call} as {_variable(kind, variable)}"
    if kind == "Terminal" and isinstance(node, ast.AsyncFunctionDef):
        return f"async with await {call} as terminal"
    # A plain function may return the coroutine of another one.
    if kind.startswith("Coroutine["):
        assert isinstance(returned, ast.Subscript) and isinstance(returned.slice, ast.Tuple)
        call, kind = f"await {call}", ast.unparse(returned.slice.elts[-1]).replace("'", '"')
    elif isinstance(node, ast.AsyncFunctionDef):
        call = f"await {call}"
    return call if kind in ("", "None") else f"{call} -> {kind}"


def _argument(node: ast.expr | None) -> str:
    return ast.unparse(node.slice) if isinstance(node, ast.Subscript) else ""


def _variable(kind: str, name: str = "") -> str:
    """Return a name for a value of a type, such as `client` for an `AcpClient`."""
    names = {
        "acp.SessionInfo": "info",
        "SessionSummary": "summary",
        "AcpClient": "client",
        "ToolCall": "tool",
        "ConversationTurn": "turn",
        "Conversation": "session",
        "BlockingPeer": "peer",
    }
    return name or names.get(kind, kind.lower())


def _parameters(node: Function) -> str:
    """Return the parameters of a function, without `self`."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [
        *[None] * (len(positional) - len(arguments.defaults)),
        *arguments.defaults,
    ]
    shown = [
        _parameter(each, value)
        for each, value in zip(positional, defaults, strict=True)
        if each.arg != "self"
    ]
    if arguments.vararg is not None:
        shown.append(f"*{_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        shown.append("*")
    shown += map(_parameter, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg is not None:
        shown.append(f"**{arguments.kwarg.arg}")
    return ", ".join(shown)


def _parameter(each: ast.arg, value: ast.expr | None) -> str:
    kind = "" if each.annotation is None else ast.unparse(each.annotation).replace("'", '"')
    shown = f"{each.arg}: {kind}" if kind else each.arg
    if value is None:
        return shown
    return f"{shown} = {default(ast.unparse(value).replace(chr(39), chr(34)))}"


def default(source: str) -> str:
    """Return a default as a reader can understand it."""
    if source.startswith("field(default_factory="):
        return {"dict": "{}", "list": "[]"}[source.partition("=")[2].rstrip(")")]
    return {
        "DEFAULT_OPTIONS": "(allow, always allow, reject)",
        "AUTO": '"auto"',
        "__version__": "dragoman.__version__",
    }.get(source, source)


def undocumented(chapter: Chapter) -> list[str]:
    """Return the members on a page that have no docstring."""
    return [member.name for _, group in chapter.members() for member in group if not member.what]


def constructor(cls: type) -> str:
    """Return the call that creates a value of a class."""
    if issubclass(cls, msgspec.Struct):
        return f"{cls.__name__}(…)"
    return f"{cls.__name__}({_parameters(function(cls.__init__))})"
