"""Putting one entry into another program's settings leaves every other byte as it was.

Texts are drawn token by token, with comments that look like code between them. What an edit may do
is stated independently of the code under test: a new entry is one inserted stretch, plus one comma
if its neighbour had none; a changed value is one word replaced by another.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.setup.install import json_edit, toml_edit
from dragoman.setup.install.json_edit import Unfit
from dragoman.setup.install.jsonc import read

EXAMPLES = 250
"""Each example is parsed about five times, in a tenth of a millisecond each."""

ENTRY = {"command": "/new/dragoman", "args": ["serve", "mcp"]}
OLD = '"OLD"'

TRIVIA = st.sampled_from(
    [
        *("", "", "", " ", "\t", "  "),
        *("\n", "\r\n", "\n  ", "\r\n\t\t", "\n\n    "),
        *(" // a, } ] {\n", ' // "x": 1,\r\n', "/**/", "/* , // } */ ", "/* two\nlines */\n  "),
    ]
)
FLIPS = st.booleans()
NAMES = st.sampled_from(["a", "b", "", "ü", "//", "/*", "\\", '"', "}", "s", "d", "x y"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from([0.5, -1e30]), NAMES
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
SECTIONS = st.dictionaries(NAMES, VALUES, max_size=3)


def wanted(old: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return ENTRY


def render(draw: st.DrawFn, value: Any) -> str:
    """A value as a person may have typed it."""
    ascii_only, comma_last = draw(FLIPS), draw(FLIPS)

    def gap() -> str:
        return draw(TRIVIA)

    if isinstance(value, dict):
        parts = [
            f"{gap()}{json.dumps(key, ensure_ascii=ascii_only)}{gap()}:"
            f"{gap()}{render(draw, each)}{gap()}"
            for key, each in value.items()
        ]
        opening, closing = "{", "}"
    elif isinstance(value, list):
        parts = [f"{gap()}{render(draw, each)}{gap()}" for each in value]
        opening, closing = "[", "]"
    else:
        return json.dumps(value)
    last = "," + gap() if parts and comma_last else gap()
    return opening + ",".join(parts) + last + closing


@st.composite
def documents(draw: st.DrawFn, section: st.SearchStrategy[Any], *, always: bool = False) -> str:
    """A settings file, perhaps with a section `s`."""
    value = draw(SECTIONS)
    value.pop("s", None)
    if always or draw(st.booleans()):
        value["s"] = draw(section)
    if draw(st.booleans()):
        value["t"] = draw(VALUES)
    return draw(TRIVIA) + render(draw, value) + draw(TRIVIA)


def without_entry(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "d"}


def put_in(original: str, done: str) -> bool:
    """Return whether `done` is `original` with one stretch inserted, and perhaps one comma before
    it."""
    head = len(os.path.commonprefix([original, done]))
    if done[head : head + 1] == "," and original[head : head + 1] != ",":
        done = done[:head] + done[head + 1 :]
        head = len(os.path.commonprefix([original, done]))
    tail = len(os.path.commonprefix([original[::-1], done[::-1]]))
    return head + tail >= len(original)


@settings(max_examples=EXAMPLES)
@given(documents(SECTIONS.map(without_entry)))
def test_a_new_entry_in_json_is_put_in_and_nothing_else_changes(text: str) -> None:
    done = json_edit.put(text, ("s", "d"), wanted)
    before, after = read(text), read(done)
    assert before is not None and after is not None
    meant = {**before.value, "s": {**before.value.get("s", {}), "d": ENTRY}}
    assert json.dumps(after.value) == json.dumps(meant)
    assert put_in(text, done)
    assert json_edit.put(done, ("s", "d"), wanted) == done


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """A section with an entry of ours that starts another program."""
    entry = {"x": draw(VALUES), "command": "OLD", "args": ["serve", "mcp"], "y": draw(VALUES)}
    names = draw(st.permutations([*entry]))
    return {"q": draw(VALUES), "d": {name: entry[name] for name in names}, "r": draw(VALUES)}


@settings(max_examples=EXAMPLES)
@given(documents(entries(), always=True))
def test_a_changed_value_in_json_is_replaced_and_nothing_else_changes(text: str) -> None:
    assert text.count(OLD) == 1
    done = json_edit.put(text, ("s", "d"), wanted)
    assert done == text.replace(OLD, '"/new/dragoman"')
    assert json_edit.put(done, ("s", "d"), wanted) == done


@settings(max_examples=EXAMPLES)
@given(st.text(alphabet='{}[]",:/*\\ \n\r\tas1.-eu0', max_size=40))
def test_any_text_is_edited_or_refused_with_a_reason(text: str) -> None:
    try:
        done = json_edit.put(text, ("s", "d"), wanted)
    except ValueError as refused:
        assert str(refused)
    else:
        assert put_in(text, done)


LINES = st.sampled_from(
    [
        *("", "# a = 1", "  # [s.d]", "\t", '"k y" = "v" # c', "l = [ 1, # one\n  2,\n]"),
        *("m = '''\n[s.d]\n'''", "n = 1979-05-27", "o.p = { q = 1 }"),
    ]
)
HEADERS = st.sampled_from(["[s.q]", "[ s . r ] # r", '[projects."/a b"]', "[[list]]", "[u.v.w]"])


@st.composite
def tables(draw: st.DrawFn, ours: str) -> str:
    """A TOML file that contains some given lines."""
    found: list[str] = draw(st.lists(LINES, max_size=3, unique=True))
    headers = draw(st.lists(HEADERS, max_size=4, unique=True))
    for header in headers:
        found += [header, *draw(st.lists(LINES, max_size=3, unique=True))]
    at = draw(st.integers(0, len(headers)))
    if ours:
        starts = [i for i, line in enumerate(found) if line in headers] + [len(found)]
        found.insert(starts[at], ours)
    text = "\n".join(found) + draw(st.sampled_from(["", "\n", "\n\n"]))
    return draw(st.sampled_from([text, text.replace("\n", "\r\n")]))


@settings(max_examples=EXAMPLES)
@given(tables(""))
def test_a_new_table_in_toml_stands_at_the_end_and_nothing_else_changes(text: str) -> None:
    done = toml_edit.put(text, ("s", "d"), wanted)
    assert done.startswith(text)
    before = tomllib.loads(text)
    assert tomllib.loads(done) == {**before, "s": {**before.get("s", {}), "d": ENTRY}}
    assert "\r\n" not in text or done.count("\n") == done.count("\r\n")
    assert toml_edit.put(done, ("s", "d"), wanted) == done


OURS = '[s.d] # ours\n# here\ncommand = "OLD" # moved\nargs = ["serve","mcp"]\nenabled = false\n'


@settings(max_examples=EXAMPLES)
@given(tables(OURS))
def test_a_changed_value_in_toml_is_replaced_and_nothing_else_changes(text: str) -> None:
    try:
        done = toml_edit.put(text, ("s", "d"), wanted)
    except Unfit:
        # A table whose parts are scattered over the file may be refused, but is not damaged.
        assert text.count("[s") + text.count("[ s") > 1
        return
    assert done == text.replace(OLD, '"/new/dragoman"')
