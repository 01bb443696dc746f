"""Parser for JSON with comments and trailing commas that keeps the position of each value.

Rejects duplicate keys, because programs disagree about which one counts. `json_edit` changes texts
at these positions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

MAX_DEPTH: Final = 200
"""Maximum nesting depth. Real settings have fewer than ten levels; more could exhaust the stack."""

_TRIVIA: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_SCALAR: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)


class InvalidJsonc(ValueError):
    """The text is not JSON with comments, repeats a key or is nested too deeply. `line` and
    `column` count from 1."""

    def __init__(self, text: str, at: int, problem: str) -> None:
        self.line = text.count("\n", 0, at) + 1
        self.column = at - text.rfind("\n", 0, at)
        self.problem = problem
        super().__init__(f"line {self.line}, column {self.column}: {problem}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its position: ``text[start:end]``."""

    start: int
    end: int
    value: Any
    """The value as a Python object."""
    members: tuple[Member, ...] = ()
    """The members of an object; empty for any other value."""
    trailing_comma: bool = False

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    def member(self, key: str) -> Member | None:
        return next((each for each in self.members if each.key == key), None)


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object. `start` is where its key begins."""

    key: str
    start: int
    node: Node


def read(text: str) -> Node | None:
    """Parse a text. Returns None if it has only whitespace and comments. Raises `InvalidJsonc`."""
    reader = _Reader(text)
    at = reader.skip(0)
    if at == len(text):
        return None
    node = reader.value(at, 0)
    end = reader.skip(node.end)
    if end != len(text):
        raise InvalidJsonc(text, end, "there is more text after the end of the value")
    return node


def comments_end(text: str, start: int, end: int) -> int:
    """Return the end of the last comment between `start` and `end`; `start` if there is none."""
    last = start
    for found in _COMMENT.finditer(text, start, end):
        last = found.end()
    return last


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def skip(self, at: int) -> int:
        found = _TRIVIA.match(self.text, at)
        return at if found is None else found.end()

    def value(self, at: int, depth: int) -> Node:
        head = self.text[at : at + 1]
        if head == "{":
            return self._object(at, depth + 1)
        if head == "[":
            return self._array(at, depth + 1)
        if head == '"':
            return self._string(at)
        found = _SCALAR.match(self.text, at)
        if found is None:
            raise InvalidJsonc(
                self.text,
                at,
                "a value is missing or invalid" if head else "the text ends too early",
            )
        return Node(at, found.end(), json.loads(found.group()))

    def _string(self, at: int) -> Node:
        found = _STRING.match(self.text, at)
        if found is None:
            raise InvalidJsonc(
                self.text, at, "a string does not end on its line, or has a control character in it"
            )
        try:
            return Node(at, found.end(), json.loads(found.group()))
        except ValueError:
            raise InvalidJsonc(self.text, at, "a string has an invalid escape sequence") from None

    def _object(self, start: int, depth: int) -> Node:
        self._deeper(start, depth)
        members: list[Member] = []
        value: dict[str, Any] = {}
        at, comma = self.skip(start + 1), False
        while self.text[at : at + 1] != "}":
            if members and not comma:
                raise InvalidJsonc(self.text, at, "a comma or a closing brace is missing")
            if self.text[at : at + 1] != '"':
                raise InvalidJsonc(self.text, at, "a key in double quotes is missing")
            key = self._string(at)
            colon = self.skip(key.end)
            if self.text[colon : colon + 1] != ":":
                raise InvalidJsonc(self.text, colon, "a colon is missing")
            if key.value in value:
                raise InvalidJsonc(self.text, at, f"the key {json.dumps(key.value)} occurs twice")
            node = self.value(self.skip(colon + 1), depth)
            members.append(Member(key.value, at, node))
            value[key.value] = node.value
            at, comma = self._comma(node.end)
        return Node(start, at + 1, value, tuple(members), comma)

    def _array(self, start: int, depth: int) -> Node:
        self._deeper(start, depth)
        items: list[Any] = []
        at, comma = self.skip(start + 1), False
        while self.text[at : at + 1] != "]":
            if items and not comma:
                raise InvalidJsonc(self.text, at, "a comma or a closing bracket is missing")
            node = self.value(at, depth)
            items.append(node.value)
            at, comma = self._comma(node.end)
        return Node(start, at + 1, items, (), comma)

    def _comma(self, at: int) -> tuple[int, bool]:
        """Skip to the next token after a value and an optional comma. Returns its position, and
        whether there was a comma."""
        at = self.skip(at)
        if self.text[at : at + 1] == ",":
            return self.skip(at + 1), True
        return at, False

    def _deeper(self, at: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidJsonc(self.text, at, f"it is nested more than {MAX_DEPTH} levels deep")
