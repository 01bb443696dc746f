"""Insert, update or remove one entry in JSON with comments, and keep the rest of the text.

Follows the indentation, line endings and trailing commas of the file. An existing entry is updated
key by key; other keys stay. `jsonc` parses the text, `entries` handles files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from dragoman.setup.install.jsonc import InvalidJsonc, Member, Node, comments_end, read

Update = Callable[[Mapping[str, Any] | None], Mapping[str, Any]]
"""Callback that gets an entry, or None if there is none yet, and returns the members to set."""

DEFAULT_UNIT: Final = "  "

_UP_TO_COMMA: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*,", re.DOTALL)


class Unfit(ValueError):
    """The text can be parsed, but the entry cannot be inserted, updated or removed in it."""


def put(text: str, path: Sequence[str], update: Update) -> str:
    """Insert or update the entry at `path`, a list of keys from the root, and return the new text.

    Raises `InvalidJsonc` if the text cannot be parsed, and `Unfit` if the entry or a value around
    it is not an object, or if more than the entry would change.
    """
    root = read(text)
    style = _Style.of(text, root)
    if root is None:
        value = _nested(path, dict(update(None)))
        gap = "" if not text or text.endswith("\n") else style.eol
        return text + gap + _render(value, style, "", wide=True) + style.eol
    done = _apply(text, _edits(text, root, path, update, style))
    _check(done, root, path, update)
    return done


def remove(text: str, path: Sequence[str], require_ours: Callable[[Any], None]) -> str:
    """Return the text without the entry at `path`, and without objects around it that would become
    empty; unchanged if there is no such entry.

    `require_ours` raises for an entry that must not be removed. Raises `InvalidJsonc` if the text
    cannot be parsed, and `Unfit` if more than the entry would change.
    """
    root = read(text)
    around: list[tuple[Node, Member]] = []
    node = root
    for key in path:
        member = None if node is None else node.member(key)
        if node is None or member is None:
            return text
        around.append((node, member))
        node = member.node
    require_ours(around[-1][1].node.value)
    meant: Any = None if root is None else deepcopy(root.value)
    depth = len(around) - 1
    while depth > 0 and _holds_only(text, *around[depth]):
        depth -= 1
    holder, member = around[depth]
    done = _apply(text, [_cut(text, holder, member)])
    inner: Any = meant
    for key in path[:depth]:
        inner = inner[key]
    del inner[path[depth]]
    _require_meant(done, meant)
    return done


def _holds_only(text: str, node: Node, member: Member) -> bool:
    """Return whether an object has no other member than this one, and no comment."""
    rest = text[node.start + 1 : member.start] + text[member.node.end : node.end - 1]
    return len(node.members) == 1 and not rest.strip(" \t\r\n,")


def _cut(text: str, node: Node, member: Member) -> _Edit:
    """Return the edit that removes a member from an object, together with the comma and whitespace
    that `_insert` would add."""
    at = node.members.index(member)
    own_comma = _UP_TO_COMMA.match(text, member.node.end)
    if at + 1 < len(node.members):
        assert own_comma is not None
        end = own_comma.end()
        while text[end] in " \t\r\n":
            end += 1
        return _Edit(member.start, end, "")
    end = member.node.end if own_comma is None or not node.trailing_comma else own_comma.end()
    if at == 0:
        if not text[node.start + 1 : member.start].strip() and not text[end : node.end - 1].strip():
            return _Edit(node.start + 1, node.end - 1, "")
        return _Edit(comments_end(text, node.start + 1, member.start), end, "")
    before = node.members[at - 1].node.end
    comma = _UP_TO_COMMA.match(text, before)
    assert comma is not None
    begin = comments_end(text, comma.end(), member.start)
    # The comma before it is removed too, unless the object ends with one anyway.
    kept = text[before:begin] if node.trailing_comma else _without(text, before, comma, begin)
    return _Edit(before, end, kept)


def _without(text: str, start: int, comma: re.Match[str], end: int) -> str:
    return text[start : comma.end() - 1] + text[comma.end() : end]


def _edits(
    text: str, root: Node, path: Sequence[str], update: Update, style: _Style
) -> list[_Edit]:
    node = root
    for depth, key in enumerate(path):
        _need_object(node, path[:depth])
        member = node.member(key)
        if member is None:
            value = _nested(path[depth + 1 :], dict(update(None)))
            return _insert(text, node, {key: value}, style)
        node = member.node
    _need_object(node, path)
    wanted = update(node.value)
    missing = {key: value for key, value in wanted.items() if key not in node.value}
    edits = _insert(text, node, missing, style) if missing else []
    for member in node.members:
        if member.key in wanted and not _same(member.node.value, wanted[member.key]):
            base = _indent_of_line(text, member.start)
            shown = _render(wanted[member.key], style, base, wide=style.wide)
            edits.append(_Edit(member.node.start, member.node.end, shown))
    return edits


def _need_object(node: Node, path: Sequence[str]) -> None:
    if not node.is_object:
        where = f"`{'.'.join(path)}`" if path else "the whole file"
        raise Unfit(f"{where} is not a JSON object")


def _insert(text: str, node: Node, members: Mapping[str, Any], style: _Style) -> list[_Edit]:
    """Return the edits that insert members at the end of an object."""
    if node.members:
        first, last = node.members[0], node.members[-1].node.end
        lines = "\n" in text[node.start : first.start]
        indent = _indent_of_line(text, first.start)
    else:
        last, lines = node.start + 1, style.wide
        indent = _indent_of_line(text, node.start) + style.unit
    close = node.end - 1
    comma = _UP_TO_COMMA.match(text, last) if node.trailing_comma else None
    at = comments_end(text, last if comma is None else comma.end(), close)
    # A comment that runs to the end of its line would swallow anything added to that line.
    lines = lines or "//" in text[last:at]
    between = style.eol + indent if lines else " "
    shown = [
        f"{_key(key)}: {_render(value, style, indent, wide=lines)}"
        for key, value in members.items()
    ]
    new = ("" if not node.members and not lines else between) + f",{between}".join(shown)
    if node.trailing_comma:
        new += ","
    if lines and "\n" not in text[at:close]:
        new += style.eol + _indent_of_line(text, node.start)
    edits = [_Edit(at, at, new)]
    if node.members and not node.trailing_comma:
        # Directly after the value: a comment at the end of its line refers to it and stays there.
        edits.insert(0, _Edit(last, last, ","))
    return edits


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    new: str


def _apply(text: str, edits: list[_Edit]) -> str:
    # Two insertions at one position keep their order.
    for edit in reversed(sorted(edits, key=lambda each: each.start)):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


@dataclass(frozen=True, slots=True)
class _Style:
    eol: str
    unit: str
    wide: bool
    """Whether values are spread over lines."""

    @classmethod
    def of(cls, text: str, root: Node | None) -> _Style:
        end = text.find("\n")
        eol = "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"
        unit, wide = DEFAULT_UNIT, True
        if root is not None and root.members:
            first = root.members[0].start
            wide = "\n" in text[root.start : first]
            if wide:
                own = len(_indent_of_line(text, root.start))
                unit = _indent_of_line(text, first)[own:] or DEFAULT_UNIT
        return cls(eol, unit, wide)


def _indent_of_line(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    line = text[begin:at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _render(value: Any, style: _Style, base: str, *, wide: bool) -> str:
    """Format a value. If `wide`, each member of an object is on its own line. Lists are always on
    one line."""
    if isinstance(value, Mapping) and value and wide:
        inner = base + style.unit
        lines = [
            f"{inner}{_key(key)}: {_render(each, style, inner, wide=True)}"
            for key, each in value.items()
        ]
        return "{" + style.eol + f",{style.eol}".join(lines) + style.eol + base + "}"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON, where true is not 1."""
    return json.dumps(one) == json.dumps(other)


def _check(text: str, root: Node, path: Sequence[str], update: Update) -> None:
    """Raise `Unfit` if the edited text does not differ from `root` by exactly the intended
    change."""
    meant = deepcopy(root.value)
    holder = meant
    for key in path[:-1]:
        holder = holder.setdefault(key, {})
    old = holder.get(path[-1])
    holder[path[-1]] = {**(old or {}), **update(old)}
    _require_meant(text, meant)


def _require_meant(text: str, meant: Any) -> None:
    try:
        now = read(text)
    except InvalidJsonc as error:
        raise Unfit(f"editing the entry would make the file invalid ({error})") from error
    if now is None or not _same(now.value, meant):
        raise Unfit("editing the entry would change other parts of the file")
