"""Editing one field of front matter changes only that field.

Files are drawn line by line with the field in a known shape, so that the expected file can be
stated byte for byte, independently of the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dragoman.catalogue.front_matter import drop, put, read
from dragoman.errors import FrontMatterInvalid

KEY = "delegate_to"
EXAMPLES = 500
"""Every example parses YAML about ten times in Python, at a millisecond each."""


@dataclass(frozen=True)
class Line:
    text: str
    end: str


@dataclass(frozen=True)
class Shape:
    """The field as lines: before the value, the value as written, after it."""

    head: str
    value: str
    tail: str
    quote: str = ""

    def lines(self) -> list[str]:
        return (self.head + self.value + self.tail).split("\n")

    def changed(self, value: str) -> list[str]:
        # A value that was alone on its line is replaced there; a missing one gets a space.
        gap = "" if self.value else " "
        return f"{self.head}{gap}{self.quote}{value}{self.quote}{self.tail}".split("\n")


@dataclass(frozen=True)
class Document:
    bom: str
    fence: Line
    above: list[Line]
    shape: Shape | None
    shape_end: str
    below: list[Line]
    closing: Line
    body: str

    def with_field(self, field: list[str] | None) -> bytes:
        lines = [] if field is None else [Line(text, self.shape_end) for text in field]
        inner = [self.fence, *self.above, *lines, *self.below, self.closing]
        return (self.bom + "".join(line.text + line.end for line in inner) + self.body).encode()

    @property
    def written(self) -> bytes:
        return self.with_field(None if self.shape is None else self.shape.lines())


ENDS = st.sampled_from(["\n", "\r\n"])
WORDS = st.sampled_from(["codex-execute", "none", "gemini-research", "a b", "x", "ünïcödé 🦊"])

FIELDS = [
    ["name: explorer"],
    ["description: a plain text", "  that goes on # and has a comment"],
    ["# delegate_to: a comment"],
    # Without the comment above it, the white space below would belong to a block value before it.
    ["# before an empty line", "", "   ", "# after it"],
    ["quoted: \"delegate_to: 'inside'\"   # why"],
    ["other: 'it''s delegate_to: x'"],
    ["text: |", "  delegate_to: not a field", "  # nor a comment", "", "  the end"],
    ["folded: >-", "    delegate_to: codex-execute", "    more"],
    ["kept: |+", "  last", "", ""],
    ["nested:", "  delegate_to: codex-execute", "  deep: {delegate_to: x, b: [1, 2]}"],
    ["list:", "- delegate_to: one", "-   delegate_to: two", "- 3"],
    ["flow: {delegate_to: inside, 'delegate_to ': 1}"],
    ["base: &base {a: 1}", "again: *base"],
    ["delegate_to_: no", "xdelegate_to: no", "Delegate_to: no"],
    ["empty:"],
    ["tabbed:\tvalue\t# comment"],
    ["date: 2024-01-02", "yes: no", "number: 012"],
    ["? complex", ": value"],
    ["dashes: ----", "dots: '...'"],
    ["separators: a\u2028b\x85c\u2029d"],
    ["tagged: !thing x"],
]

SHAPES = [
    Shape("delegate_to: ", "qwen-write", ""),
    Shape("delegate_to:    ", "qwen-write", "   # why not"),
    Shape("delegate_to : ", "none", ""),
    Shape("delegate_to: ", '"qwen-write"', "", '"'),
    Shape("'delegate_to': ", "'qwen-write'", " # it's quoted", "'"),
    Shape('"delegate_to":\t', '"a # b"', "\t# tab", '"'),
    Shape("delegate_to:", "", ""),
    Shape("delegate_to:", "", "  # nothing yet"),
    Shape("delegate_to:\n  ", "qwen-write", ""),
    Shape("delegate_to:\n  # because\n  ", "qwen-write", "  # below"),
    Shape("delegate_to: ", "&peer qwen-write", ""),
    Shape("delegate_to: ", "!!str qwen-write", " "),
    Shape("delegate_to: ", '"over two\n  lines"', "", '"'),
    Shape("delegate_to: ", "over two\n  plain lines", " # c"),
    Shape("? delegate_to\n: ", "qwen-write", ""),
    Shape("delegate_to: ", "~", ""),
    Shape("delegate_to: ", "12", ""),
]


@st.composite
def documents(draw: st.DrawFn) -> Document:
    # Every field occurs at most once: a repeated name is a separate error.
    fields = draw(st.lists(st.sampled_from(FIELDS), unique_by=lambda lines: lines[0], max_size=7))
    cut = draw(st.integers(0, len(fields)))
    indent = draw(st.sampled_from(["", "", "  "]))

    def lines(chosen: list[list[str]]) -> list[Line]:
        return [
            Line(indent + text if text.strip() else text, draw(ENDS))
            for field in chosen
            for text in field
        ]

    shape = draw(st.none() | st.sampled_from(SHAPES))
    if shape is not None:
        shape = replace(
            shape,
            head=indent + shape.head.replace("\n", f"\n{indent}"),
            value=shape.value.replace("\n", f"\n{indent}"),
        )
    return Document(
        bom=draw(st.sampled_from(["", "\ufeff"])),
        fence=Line("---" + draw(st.sampled_from(["", " ", "\t "])), draw(ENDS)),
        above=lines(fields[:cut]),
        shape=shape,
        shape_end=draw(ENDS),
        below=lines(fields[cut:]),
        closing=Line(draw(st.sampled_from(["---", "--- ", "..."])), draw(ENDS)),
        body=draw(
            st.lists(
                st.sampled_from(
                    [
                        "text",
                        "",
                        "---",
                        "delegate_to: x",
                        "# title",
                        "\t",
                        "a\rb",
                        "\x00",
                        "...",
                        "é",
                    ]
                )
                | st.text(max_size=8),
                max_size=5,
            ).map("\n".join)
        ),
    )


def inner_of(data: bytes) -> dict[Any, Any]:
    """The front matter as a plain YAML 1.2 parser reads it, found without the code under test."""
    lines = data.decode().lstrip("\ufeff").split("\n")
    inner: list[str] = []
    for line in lines[1:]:
        if line.rstrip() in ("---", "..."):
            break
        inner.append(line)
    yaml = YAML(typ="rt", pure=True)
    # Values that this parser reads only as YAML 1.1 do are not compared.
    text = "\n".join(inner).replace(":\t", ": ").replace("\t#", " #").replace("\r", "")
    for mark in "\x85\u2028\u2029":
        text = text.replace(mark, "?")
    loaded = yaml.load(StringIO(text + "\n"))
    return {} if loaded is None else {key: repr(value) for key, value in loaded.items()}


@settings(max_examples=EXAMPLES)
@given(documents(), WORDS)
def test_setting_the_field_changes_its_value_and_no_other_byte(doc: Document, value: str) -> None:
    simple = value.replace("-", "").isascii() and " " not in value
    edited = put(doc.written, KEY, value)
    if doc.shape is None:
        plain = f"'{value}'" if not simple else value
        first = next((line.text for line in [*doc.above, *doc.below] if _is_field(line.text)), "")
        indent = " " * (len(first) - len(first.lstrip(" ")))
        end = [doc.fence, *doc.above, *doc.below][-1].end
        added = [*doc.below, Line(f"{indent}{KEY}: {plain}", end)]
        assert edited == replace(doc, below=added).with_field(None)
    else:
        shape = doc.shape if simple or doc.shape.quote else replace(doc.shape, quote="'")
        assert edited == doc.with_field(shape.changed(value))
    found = read(edited, KEY)
    assert found is not None and found.value == value
    assert put(edited, KEY, value) == edited


def _is_field(text: str) -> bool:
    return bool(text.strip()) and not text.lstrip().startswith("#")


@settings(max_examples=EXAMPLES)
@given(documents())
def test_taking_the_field_out_removes_its_lines_and_no_other_byte(doc: Document) -> None:
    removed = drop(doc.written, KEY)
    assert removed == doc.with_field(None)
    assert read(removed, KEY) is None
    assert drop(removed, KEY) == removed


@settings(max_examples=EXAMPLES)
@given(documents(), st.sampled_from(["codex-execute", "none"]))
def test_a_reader_of_yaml_sees_that_one_field_differ_and_nothing_else(
    doc: Document, value: str
) -> None:
    before = inner_of(doc.written)
    after = inner_of(put(doc.written, KEY, value))
    assert after.pop(KEY) == repr(value) or doc.shape is not None and doc.shape.quote
    before.pop(KEY, None)
    assert after == before
    assert inner_of(drop(doc.written, KEY)) == before


@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from(["\n", "\r\n", "\r", ""]),
    st.lists(
        st.sampled_from(["# title", "text", "name: x", "é 🦊", "a --- b", "----"]), max_size=4
    ),
    st.sampled_from(["", "\ufeff"]),
)
def test_a_file_without_front_matter_gets_one_and_keeps_every_byte(
    end: str, lines: list[str], bom: str
) -> None:
    body = (end or " ").join(lines) + (end if lines else "")
    used = end if end and body else "\n"
    edited = put((bom + body).encode(), KEY, "codex-execute")
    block = f"---{used}{KEY}: codex-execute{used}---{used}"
    assert edited == (bom + block + body).encode()
    assert drop(edited, KEY) == (bom + f"---{used}---{used}" + body).encode()


PIECES = [
    *("delegate_to", "name", ": ", ":", "\n", "\n", "  ", "- ", "|", ">", "|+", "|-2", "'", '"'),
    *("# c", "&x ", "*x", "!t ", "{", "}", "[", "]", ", ", "? ", "\t", "\r\n", "\r", "---\n"),
    *("...\n", "%YAML 1.1\n", "<<", "\u2028", "\ufeff", "\\U99999999", "\\", "\x00", "--- ", "~"),
    *("delegate_to: x\n", "b: y\n", "a: &x 1\n", "c: *x\n"),
]


@settings(max_examples=EXAMPLES)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=30))
def test_whatever_a_file_holds_it_is_edited_rightly_or_refused(inner: str) -> None:
    data = f"---\n{inner}\n---\nbody\n".encode()
    try:
        before = read(data, KEY)
        edited = put(data, KEY, "qwen-write")
    except FrontMatterInvalid:
        return
    found = read(edited, KEY)
    assert found is not None and found.value == "qwen-write"
    try:
        removed = drop(edited, KEY)
    except FrontMatterInvalid:
        return
    assert read(removed, KEY) is None
    if before is None:
        assert removed == data


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=40))
def test_bytes_of_any_kind_are_edited_or_refused_and_never_damaged(data: bytes) -> None:
    try:
        edited = put(data, KEY, "none")
    except FrontMatterInvalid:
        return
    assert edited.endswith(data.removeprefix(b"\xef\xbb\xbf")) or data.startswith(b"---")
