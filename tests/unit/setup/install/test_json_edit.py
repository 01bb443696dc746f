"""One entry in JSON with comments: where it goes, how it is laid out, and what stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dragoman.setup.install.json_edit import Unfit, put, remove
from dragoman.setup.install.jsonc import InvalidJsonc

ENTRY = {"command": "x", "args": ["a", "b"]}


def entry(old: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return ENTRY


def edited(text: str) -> str:
    done = put(text, ("s", "d"), entry)
    assert put(done, ("s", "d"), entry) == done, "a second time changes nothing"
    return done


SHORT = '{"command": "x", "args": ["a", "b"]}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"s": {"q": 1}}', f'{{"s": {{"q": 1, "d": {SHORT}}}}}'),
        ('{"a": 1}', f'{{"a": 1, "s": {{"d": {SHORT}}}}}'),
        ('{"s": {}, "a": 1}', f'{{"s": {{"d": {SHORT}}}, "a": 1}}'),
        (
            '{\n  "s": {\n    "q": 1\n  }\n}',
            '{\n  "s": {\n    "q": 1,\n    "d": {\n      "command": "x",\n'
            '      "args": ["a", "b"]\n    }\n  }\n}',
        ),
        (
            '{\n\t"s": {}\n}\n',
            '{\n\t"s": {\n\t\t"d": {\n\t\t\t"command": "x",\n\t\t\t"args": ["a", "b"]\n'
            "\t\t}\n\t}\n}\n",
        ),
    ],
)
def test_an_entry_is_laid_out_like_its_neighbours(before: str, after: str) -> None:
    assert edited(before) == after


def test_an_empty_text_becomes_a_whole_file() -> None:
    whole = (
        '{\n  "s": {\n    "d": {\n      "command": "x",\n      "args": ["a", "b"]\n    }\n  }\n}'
    )
    assert edited("") == whole + "\n"
    assert edited("{}") == whole
    assert edited("// mine") == "// mine\n" + whole + "\n"


def test_a_comment_stays_with_the_line_it_is_about() -> None:
    done = edited('{\n  "s": {\n    "q": 1 // about q, and {\n    // "old": 2,\n  }\n}')
    assert '    "q": 1, // about q, and {\n    // "old": 2,\n    "d": {' in done


def test_a_habit_of_trailing_commas_is_kept_and_none_begun() -> None:
    assert edited('{"s": {"q": 1, /* , */ },}').endswith('"q": 1, /* , */ "d": ' + SHORT + ", },}")
    assert ",}" not in edited('{"s": {"q": 1}}')


def test_a_comment_to_the_end_of_the_line_does_not_swallow_the_entry() -> None:
    done = edited('{"s": {"q": 1 // q\n}}')
    assert done.startswith('{"s": {"q": 1, // q\n')
    done = edited('{"s": { // nothing yet\n}}')
    assert done.startswith('{"s": { // nothing yet\n')


def test_line_ends_of_windows_are_kept() -> None:
    done = edited('{\r\n  "a": 1\r\n}\r\n')
    assert done.count("\n") == done.count("\r\n") == 9


def test_only_the_member_that_differs_is_changed() -> None:
    before = (
        '{"s": {"d": {"env": {"K": "v"}, // mine\n "command" : /* ! */ "old", "args": [ "a","b" ],'
        ' "disabled": true}}}'
    )
    assert edited(before) == before.replace('"old"', '"x"')


def test_a_member_that_is_missing_is_added_behind_the_others() -> None:
    done = edited('{"s": {"d": {"command": "x", "env": {}}}}')
    assert done == '{"s": {"d": {"command": "x", "env": {}, "args": ["a", "b"]}}}'


def test_true_is_not_taken_for_one() -> None:
    done = put('{"s": {"d": {"a": true}}}', ("s", "d"), lambda old: {"a": 1})
    assert done == '{"s": {"d": {"a": 1}}}'


@pytest.mark.parametrize("text", ["[]", '"x"', '{"s": []}', '{"s": null}', '{"s": {"d": "x"}}'])
def test_a_text_without_a_place_for_the_entry_is_refused(text: str) -> None:
    with pytest.raises(Unfit, match="not a JSON object"):
        put(text, ("s", "d"), entry)


def test_a_text_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidJsonc, match="occurs twice"):
        put('{"s": {}, "s": {}}', ("s", "d"), entry)


# -- removing


def removed(text: str) -> str:
    return remove(text, ("s", "d"), lambda entry: None)


@pytest.mark.parametrize(
    "text",
    [
        '{"s": {"q": 1}}',
        '{"a": 1}',
        "{}",
        '{\n  "s": {\n    "q": 1\n  }\n}',
        '{\n  "s": {\n    "q": 1 // about q, and {\n    // "old": 2,\n  }\n}',
        '{"s": {"q": 1, /* , */ },}',
        '{"s": { // nothing yet\n}}',
        '{\r\n  "a": 1\r\n}\r\n',
    ],
)
def test_what_was_put_in_is_cut_out_again(text: str) -> None:
    assert removed(put(text, ("s", "d"), entry)) == text
    assert removed(text) == text


def test_an_entry_before_others_goes_with_its_comma() -> None:
    text = '{\n  "s": {\n    "d": {},\n    // q\n    "q": 1\n  }\n}'
    assert removed(text) == '{\n  "s": {\n    // q\n    "q": 1\n  }\n}'


def test_a_comment_beside_the_entry_keeps_its_section() -> None:
    assert removed('{"s": {/* mine */ "d": {}}}') == '{"s": {/* mine */}}'
    assert removed('{"s": {"d": {}}, "a": 1}') == '{"a": 1}'


def test_an_entry_of_another_program_stays() -> None:
    def refuse(entry: object) -> None:
        raise Unfit(str(entry))

    with pytest.raises(Unfit, match="3"):
        remove('{"s": {"d": 3}}', ("s", "d"), refuse)
