"""Read, set or remove one field of a file's YAML front matter, leaving all other bytes unchanged.

Works on bytes; `catalogue.agent_files` finds the files and interprets the value. The YAML parser
only locates the field and checks the result: a YAML library would reformat the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from dragoman.errors import FrontMatterInvalid

BOM = "\ufeff"
SIMPLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
WORDS_WITH_MEANING = frozenset(("false", "n", "no", "null", "off", "on", "true", "y", "yes"))
"""Plain words that some YAML version does not parse as text."""

PARSER_ERRORS = (ValueError, OverflowError, IndexError, AssertionError, RecursionError)
"""Exceptions that the parser raises for some broken YAML instead of its own: an escape for a
character that does not exist, or a thousand brackets."""

# YAML 1.1 ends a line at these three, YAML 1.2 does not, and neither do tools that read front
# matter line by line. The parser gets another character in their place.
NO_BREAKS = str.maketrans(dict.fromkeys("\x85\u2028\u2029", "\ufffd"))


@dataclass(frozen=True, slots=True)
class FrontMatterField:
    """A field as written in a file. `line` counts from 1, at the top of the file."""

    value: str
    line: int


def read(data: bytes, key: str) -> FrontMatterField | None:
    """Return the value of a top-level field, or None if there is no such field.

    An empty value is an empty text. Raises `FrontMatterInvalid` if the front matter is invalid or
    the field is ambiguous.
    """
    parts = _split(data)
    found = _find(_Yaml(parts), key)
    if found is None:
        return None
    return FrontMatterField(found.text_of_value(), found.line)


def put(data: bytes, key: str, value: str) -> bytes:
    """Return the same file with the field set to `value`: added, or changed in place. Raises
    `FrontMatterInvalid` if that is not possible."""
    if not value.isprintable() or not value:
        raise FrontMatterInvalid(
            f"{value!r} cannot be the value of a field: use one line of printable text"
        )
    parts = _split(data)
    yaml = _Yaml(parts)
    found = _find(yaml, key)
    if found is None:
        edited = _added(parts, yaml, f"{key}: {_written(value, None)}")
    else:
        edited = _with_inner(parts, found.replaced(_written(value, found.style)))
    return _checked(parts, yaml, edited, key, value)


def drop(data: bytes, key: str) -> bytes:
    """Return the same file without the field, or exactly the same bytes if there is none. Raises
    `FrontMatterInvalid` if that is not possible."""
    parts = _split(data)
    yaml = _Yaml(parts)
    found = _find(yaml, key)
    if found is None:
        return data
    return _checked(parts, yaml, _with_inner(parts, found.removed()), key, None)


# -- where front matter is


@dataclass(frozen=True, slots=True)
class _Parts:
    """A file split into three parts. Without front matter, `before` has at most a BOM, and `inner`
    is empty."""

    before: str
    """The BOM if there is one, and the opening fence."""
    inner: str
    """The text between the fences, with its last line end."""
    after: str
    """The closing fence and the body."""
    present: bool
    newline: str
    """The line end before the position of a new field."""


def _split(data: bytes) -> _Parts:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FrontMatterInvalid(
            f"the file is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}"
        ) from error
    bom = BOM if text.startswith(BOM) else ""
    # An old Macintosh file has no other line ends. If there are others, a lone \r does not end a
    # line.
    end = "\r" if "\n" not in text and "\r" in text else "\n"
    lines = list(_lines(text[len(bom) :], end))
    first = lines[0] if lines else ""
    if not _is_fence(first, "---"):
        _refuse_lookalikes(lines, first)
        return _Parts(bom, "", text[len(bom) :], present=False, newline=_ending(first) or "\n")
    for number, line in enumerate(lines[1:], 1):
        if _is_fence(line, "---", "..."):
            inner = "".join(lines[1:number])
            if end == "\n" and re.search(r"\r(?!\n)", inner):
                raise FrontMatterInvalid(
                    "the front matter has a carriage return within a line; remove it"
                )
            return _Parts(
                bom + first, inner, "".join(lines[number:]), True, _ending(lines[number - 1])
            )
    raise FrontMatterInvalid(
        "line 1: the front matter begins with '---' and never ends; put '---' on a line of its own"
        " after it"
    )


def _lines(text: str, end: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        found = text.find(end, start)
        stop = len(text) if found < 0 else found + 1
        yield text[start:stop]
        start = stop


def _ending(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _is_fence(line: str, *fences: str) -> bool:
    return line.rstrip("\r\n").rstrip(" \t") in fences


def _refuse_lookalikes(lines: list[str], first: str) -> None:
    """Reject files to which a second front matter would be added by mistake."""
    if re.match(r"---[ \t\r]", first):
        raise FrontMatterInvalid(
            "line 1: the '---' that opens front matter must be on a line of its own"
        )
    if _is_fence(first, "+++"):
        raise FrontMatterInvalid("line 1: the front matter is TOML ('+++'), and must be YAML")
    for number, line in enumerate(lines, 1):
        if _is_fence(line, "---") and number > 1:
            raise FrontMatterInvalid(
                f"line {number}: '---' opens front matter only on the first line of a file; remove"
                " the empty lines before it"
            )
        if line.strip():
            return


# -- what it contains


class _Yaml:
    """The parsed front matter: the events, and the top-level pairs."""

    def __init__(self, parts: _Parts) -> None:
        self.text = parts.inner
        # After the first word of a line YAML allows a tab like a space, but the parser rejects it.
        shown = parts.inner.translate(NO_BREAKS)
        shown = re.sub(r"(?<=\S)[ \t]+", lambda gap: gap[0].replace("\t", " "), shown)
        try:
            self.events: list[Event] = list(YAML(typ="safe", pure=True).parse(shown))
        except (YAMLError, *PARSER_ERRORS) as error:
            raise FrontMatterInvalid(_told(error)) from error
        self._refuse_dangling_aliases()
        self.flow = False
        self.indent = ""
        self.pairs: list[_Pair] = []
        self._read_pairs()

    def _refuse_dangling_aliases(self) -> None:
        anchors: set[object] = set()
        for event in self.events:
            if isinstance(event, AliasEvent) and event.anchor not in anchors:
                raise FrontMatterInvalid(
                    f"line {event.start_mark.line + 2}: the alias '*{event.anchor}' has no anchor"
                )
            anchors.add(getattr(event, "anchor", None))

    def _read_pairs(self) -> None:
        if sum(isinstance(event, DocumentStartEvent) for event in self.events) > 1:
            raise FrontMatterInvalid("the front matter contains more than one YAML document")
        nodes = [
            (place, event)
            for place, event in enumerate(self.events)
            if isinstance(event, NodeEvent | MappingEndEvent | SequenceEndEvent)
        ]
        if not nodes:
            return
        top = nodes[0][1]
        if not isinstance(top, MappingStartEvent):
            raise FrontMatterInvalid("the front matter is not a mapping of names to values")
        self.flow = bool(top.flow_style)
        depth = 0
        starts: list[tuple[int, NodeEvent]] = []
        for place, event in nodes[1:-1]:
            if depth == 0:
                assert isinstance(event, NodeEvent)
                starts.append((place, event))
            if isinstance(event, MappingStartEvent | SequenceStartEvent):
                depth += 1
            elif isinstance(event, MappingEndEvent | SequenceEndEvent):
                depth -= 1
        if not starts:
            return
        ends = [place for place, _ in starts[2::2]] + [nodes[-1][0]]
        for (place, key), (_, value), end in zip(starts[::2], starts[1::2], ends, strict=True):
            self.pairs.append(_Pair(self, key, value, slice(place, end)))
        if self.pairs:
            start = self.pairs[0].line_start
            self.indent = " " * (len(self.text[start:]) - len(self.text[start:].lstrip(" ")))

    def shape(self, without: str | None = None) -> list[tuple[object, ...]]:
        """Return the parsed top level for a comparison: all fields except `without`, and no
        positions."""
        return [
            (
                type(event),
                getattr(event, "anchor", None),
                str(getattr(event, "tag", None)),
                getattr(event, "value", None),
                getattr(event, "style", None),
            )
            for pair in self.pairs
            if pair.name != without
            for event in self.events[pair.events]
        ]


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """One top-level field: its events, and its position in the text."""

    yaml: _Yaml
    key: NodeEvent
    value: NodeEvent
    events: slice

    @property
    def name(self) -> str | None:
        return str(self.key.value) if isinstance(self.key, ScalarEvent) else None

    @property
    def line(self) -> int:
        # The fence is the first line of the file.
        return int(self.key.start_mark.line) + 2

    @property
    def style(self) -> str | None:
        return self.value.style if isinstance(self.value, ScalarEvent) else None

    @property
    def line_start(self) -> int:
        text = self.yaml.text
        start = int(self.key.start_mark.index)
        return max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1

    def text_of_value(self) -> str:
        if not isinstance(self.value, ScalarEvent):
            raise FrontMatterInvalid(f"line {self.line}: {self.name} is not a single value")
        return str(self.value.value)

    def replaced(self, written: str) -> str:
        """Return the front matter with `written` in the place of the value."""
        text = self.yaml.text
        start, end = self._span()
        if start == end:
            written = f" {written}"
        if self.style in ("|", ">"):
            # The indicator becomes the value, the lines below it are removed, and a comment is
            # kept.
            head = re.compile(r"[|>][0-9+-]*").search(text, start)
            assert head is not None
            line_end = _line_end(text, start)
            return text[:start] + written + text[head.end() : line_end] + text[end:]
        return text[:start] + written + text[end:]

    def removed(self) -> str:
        """Return the front matter without the field's lines."""
        text = self.yaml.text
        start, end = self.line_start, self._span()[1]
        before = text[start : int(self.key.start_mark.index)]
        if self.yaml.flow or not re.fullmatch(r" *(?:\? *)?", before):
            raise FrontMatterInvalid(
                f"line {self.line}: {self.name} is not on lines of its own; remove it by hand"
            )
        return text[:start] + text[end if text[end - 1 : end] in "\r\n" else _line_end(text, end) :]

    def _span(self) -> tuple[int, int]:
        """Return the span of the value as written, including its quotes and an anchor or tag before
        it."""
        text = self.yaml.text
        start, end = int(self.value.start_mark.index), int(self.value.end_mark.index)
        if isinstance(self.value, AliasEvent):
            return start, end
        self.text_of_value()
        if start == end:
            # The parser places an empty value where the next token begins.
            colon = re.compile(r"[ \t]*:").match(text, int(self.key.end_mark.index))
            if colon is None:
                raise FrontMatterInvalid(
                    f"line {self.line}: {self.name} has no value and no colon on its line; edit it"
                    " by hand"
                )
            return colon.end(), colon.end()
        if self.style in ("|", ">"):
            return start, self._end_of_block(start)
        return start, end

    def _end_of_block(self, start: int) -> int:
        """Return the end of the last line of a block value; empty lines and comments below it are
        not part of it."""
        text = self.yaml.text
        first = re.compile(r" *([^ \r\n])?")
        end = place = _line_end(text, start)
        while place < int(self.value.end_mark.index):
            after = _line_end(text, place)
            found = first.match(text, place)
            if found is not None and found[1]:
                if found.start(1) >= int(self.value.end_mark.index):
                    break
                end = after
            place = after
        return end


def _told(error: Exception) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        where = f"line {error.problem_mark.line + 2}: "
        return f"{where}the front matter is not valid YAML: {error.problem}"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"the front matter is not valid YAML: {reason}"


def _find(yaml: _Yaml, key: str) -> _Pair | None:
    seen: dict[str, int] = {}
    found = None
    for pair in yaml.pairs:
        if pair.name is None:
            continue
        if pair.name in seen:
            raise FrontMatterInvalid(
                f"line {pair.line}: {pair.name} is in the front matter twice, first on line"
                f" {seen[pair.name]}"
            )
        seen[pair.name] = pair.line
        if pair.name == key:
            found = pair
    return found


# -- how it is changed


def _written(value: str, style: str | None) -> str:
    """Return the value in the quotes that the old one had, or in those that it needs."""
    if style == '"':
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if style == "'" or not SIMPLE.fullmatch(value) or value.lower() in WORDS_WITH_MEANING:
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return value


def _added(parts: _Parts, yaml: _Yaml, line: str) -> str:
    end = parts.newline
    if not parts.present:
        return f"{parts.before}---{end}{line}{end}---{end}{parts.after}"
    if yaml.flow:
        raise FrontMatterInvalid(f"the front matter is written in braces; add '{line}' by hand")
    return _with_inner(parts, f"{parts.inner}{yaml.indent}{line}{end}")


def _with_inner(parts: _Parts, inner: str) -> str:
    return parts.before + inner + parts.after


def _line_end(text: str, start: int) -> int:
    found = re.compile(r"\r\n|\n|\r").search(text, start)
    return len(text) if found is None else found.end()


def _checked(before: _Parts, old: _Yaml, edited: str, key: str, value: str | None) -> bytes:
    """Return the edited file, parsed again to verify that neither another field nor the body has
    changed."""
    try:
        data = edited.encode("utf-8")
        parts = _split(data)
        new = _Yaml(parts)
        found = _find(new, key)
        right = (None if found is None else found.text_of_value()) == value
    except FrontMatterInvalid as error:
        raise FrontMatterInvalid(
            f"{key} cannot be edited without breaking the rest of the front matter: {error}"
        ) from error
    body = before.after if before.present else f"---{before.newline}{before.after}"
    if not (right and parts.after == body and old.shape(key) == new.shape(key)):
        raise FrontMatterInvalid(
            f"{key} cannot be edited without changing the rest of the front matter; edit it by hand"
        )
    return data
