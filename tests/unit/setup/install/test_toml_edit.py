"""One table in TOML: where it goes, and what stays."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from dragoman.setup.install.json_edit import Unfit
from dragoman.setup.install.toml_edit import put, remove

WANTED = {"command": "/x", "args": ["serve", "mcp"]}


def wanted(old: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return WANTED


def edited(text: str, name: str = "d") -> str:
    done = put(text, ("s", name), wanted)
    assert put(done, ("s", name), wanted) == done, "a second time changes nothing"
    assert tomllib.loads(done)["s"][name].items() >= WANTED.items()
    return done


TABLE = '[s.d]\ncommand = "/x"\nargs = ["serve", "mcp"]\n'


def test_a_new_table_stands_at_the_end() -> None:
    assert edited("") == TABLE
    assert edited("a = 1 # one\n") == "a = 1 # one\n\n" + TABLE
    assert edited("[s.q]\nx = 1\n\n[t]") == "[s.q]\nx = 1\n\n[t]\n\n" + TABLE


def test_line_ends_of_windows_are_kept() -> None:
    assert edited("a = 1\r\n") == "a = 1\r\n\r\n" + TABLE.replace("\n", "\r\n")
    text = '[s.d]\r\ncommand = "old"\r\n\r\n[t]\r\na = 1\r\n'
    done = edited(text)
    assert done.count("\n") == done.count("\r\n") == text.count("\n") + 1
    assert done.endswith("\r\n[t]\r\na = 1\r\n")


def test_a_name_that_is_not_a_bare_key_is_quoted() -> None:
    assert '[s."my own"]\n' in edited("", "my own")


def test_keys_that_differ_are_changed_where_they_stand_and_others_stay() -> None:
    text = (
        "# head\n[s.d] # ours\n# the program\ncommand = 'old' # moved\n"
        'args = [ "serve","mcp" ]\nenabled = false\n\n[s.d.env]\nK = "v"\n\n# tail\n[t]\na = 1\n'
    )
    assert edited(text) == text.replace("'old'", '"/x"')


@pytest.mark.parametrize(
    "text",
    [
        's = { q = { command = "y" } } # all of them\nb = 2\n',
        's = { d = { command = "y" } } # all of them\nb = 2\n',
        '[s]\nq = { command = "y" } # q\nd = { command = "y" } # d\n',
        's.q.command = "y"\nb = 2\n',
        's.d.command = "y"\nb = 2\n',
        '[s.q]\nc = 1\n[t]\nx = 1\n[s.d]\ncommand = "y"\n[u]\ny = 1\n',
        '[t]\nx = 1\n[s.d]\ncommand = "y"\n\n[u]\ny = 1\n[s.q]\n# end\n',
    ],
)
def test_every_way_to_write_the_table_is_edited_or_refused(text: str) -> None:
    try:
        done = edited(text)
    except Unfit:
        return
    before, after = tomllib.loads(text), tomllib.loads(done)
    before["s"].pop("d", None), after["s"].pop("d")
    assert before == after
    assert [line.partition("#")[2] for line in text.splitlines() if "#" in line] == [
        line.partition("#")[2] for line in done.splitlines() if "#" in line
    ]


def test_a_table_in_braces_takes_the_entry_inside() -> None:
    done = edited('s = { q = { command = "y" } } # all\n')
    assert done.startswith('s = { q = { command = "y" }') and done.endswith(" # all\n")


@pytest.mark.parametrize("text", ["s = 1\n", "[[s]]\na = 1\n", "[s]\nd = 1\n"])
def test_a_text_without_a_place_for_the_table_is_refused(text: str) -> None:
    with pytest.raises(Unfit, match="is not a table"):
        put(text, ("s", "d"), wanted)


@pytest.mark.parametrize("text", ["a = 1\na = 2\n", "a = \n", "{}\n"])
def test_a_text_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        put(text, ("s", "d"), wanted)


# -- removing


def removed(text: str) -> str:
    return remove(text, ("s", "d"), lambda entry: None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a = 1 # mine\n",
        "[s.q]\nx = 1\n\n[t]\ny = 2\n",
        "s = {q = {x = 1}}\n",
        "[s]\nz = 1\n",
        "# c\r\n[s.q]\r\nx = 1\r\n",
    ],
)
def test_what_was_put_in_is_cut_out_again(text: str) -> None:
    done = put(text, ("s", "d"), lambda old: {"command": "x", "args": ["a"]})
    assert done != text and removed(done) == text
    assert removed(text) == text


def test_tables_below_it_go_along_and_comments_about_the_next_one_stay() -> None:
    text = 'a = 1\n\n[s.d]\nx = 1\n[s."d".env]\nA = "1"\n\n# about t\n[t]\ny = 2\n'
    assert removed(text) == "a = 1\n\n# about t\n[t]\ny = 2\n"


def test_a_table_that_cannot_be_cut_out_is_refused_or_taken_out_by_its_keys() -> None:
    assert tomllib.loads(removed('s.d.x = 1\nb = """\n[s.d]\n"""\n')) == {"b": "[s.d]\n"}
