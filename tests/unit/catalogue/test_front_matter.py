"""The shapes of front matter one by one; the property test mixes them."""

from __future__ import annotations

import pytest

from dragoman.catalogue.front_matter import FrontMatterField, drop, put, read
from dragoman.errors import FrontMatterInvalid

KEY = "delegate_to"


def refusal(data: bytes, value: str | None = "codex-execute") -> str:
    """Why an edit is refused."""
    with pytest.raises(FrontMatterInvalid) as caught:
        if value is None:
            drop(data, KEY)
        else:
            put(data, KEY, value)
    return str(caught.value)


def test_a_missing_field_is_added_behind_the_others() -> None:
    assert put(b"---\nname: x\n# last\n---\nbody", KEY, "codex-execute") == (
        b"---\nname: x\n# last\ndelegate_to: codex-execute\n---\nbody"
    )


def test_a_field_that_is_there_is_changed_where_it_stands() -> None:
    assert put(b"---\ndelegate_to:  a-b # why\nname: x\n---\n", KEY, "none") == (
        b"---\ndelegate_to:  none # why\nname: x\n---\n"
    )


def test_a_field_that_is_there_can_be_taken_out_with_its_comment() -> None:
    assert drop(b"---\nname: x\ndelegate_to: a-b # why\n---\n", KEY) == b"---\nname: x\n---\n"


def test_a_field_that_is_not_there_is_not_missed() -> None:
    assert drop(b"---\nname: x\n---\n", KEY) == b"---\nname: x\n---\n"
    assert drop(b"no front matter", KEY) == b"no front matter"


def test_a_field_is_read_with_the_line_it_stands_in() -> None:
    assert read(b"---\n# c\ndelegate_to: 'a-b'\n---\n", KEY) == FrontMatterField("a-b", 3)
    assert read(b"---\ndelegate_to:\n---\n", KEY) == FrontMatterField("", 2)
    assert read(b"---\nname: x\n---\ndelegate_to: a-b\n", KEY) is None
    assert read(b"delegate_to: a-b\n", KEY) is None
    assert read(b"", KEY) is None


def test_line_ends_and_the_mark_at_the_top_stay_as_they_are() -> None:
    assert put(b"\xef\xbb\xbf---\r\nname: x\r\n---\r\nbody\n", KEY, "a-b") == (
        b"\xef\xbb\xbf---\r\nname: x\r\ndelegate_to: a-b\r\n---\r\nbody\n"
    )
    assert put(b"\xef\xbb\xbfbody\r\n", KEY, "a-b") == (
        b"\xef\xbb\xbf---\r\ndelegate_to: a-b\r\n---\r\nbody\r\n"
    )
    assert put(b"---\rname: x\r---\r", KEY, "a-b") == b"---\rname: x\rdelegate_to: a-b\r---\r"


def test_a_file_without_front_matter_gets_one() -> None:
    assert put(b"", KEY, "a-b") == b"---\ndelegate_to: a-b\n---\n"
    assert put(b"# title", KEY, "a-b") == b"---\ndelegate_to: a-b\n---\n# title"
    assert put(b"----\ntext\n", KEY, "a-b") == b"---\ndelegate_to: a-b\n---\n----\ntext\n"


def test_an_empty_front_matter_is_filled_and_left_behind_empty() -> None:
    filled = put(b"---\r\n---", KEY, "a-b")
    assert filled == b"---\r\ndelegate_to: a-b\r\n---"
    assert drop(filled, KEY) == b"---\r\n---"


def test_a_block_value_becomes_one_word_and_the_comments_around_it_stay() -> None:
    data = b"---\ndelegate_to: |- # head\n   a-b\n\n # below\n\nname: x\n---\n"
    assert read(data, KEY) == FrontMatterField("a-b", 2)
    assert put(data, KEY, "c-d") == b"---\ndelegate_to: c-d # head\n\n # below\n\nname: x\n---\n"
    assert drop(data, KEY) == b"---\n\n # below\n\nname: x\n---\n"


def test_an_alias_is_replaced_by_a_word() -> None:
    data = b"---\nfirst: &p a-b\ndelegate_to: *p\n---\n"
    assert put(data, KEY, "c-d") == b"---\nfirst: &p a-b\ndelegate_to: c-d\n---\n"


def test_a_value_that_another_field_refers_to_is_left_alone() -> None:
    data = b"---\ndelegate_to: &p a-b\nother: *p\n---\n"
    assert "'*p' has no anchor" in refusal(data)
    assert "'*p' has no anchor" in refusal(data, None)


def test_a_line_that_keeps_two_things_apart_is_not_taken_out() -> None:
    # Without it the white space below would belong to the text above.
    data = b"---\ntext: |+\n  a\ndelegate_to: a-b\n\nname: x\n---\n"
    assert "without changing the rest" in refusal(data, None)


def test_values_that_yaml_would_not_read_as_text_are_quoted() -> None:
    for value in ("yes", "No", "null", "1-2", "2024-01-02", "it's", "a: b", "#x", "ü"):
        edited = put(b"---\n---\n", KEY, value)
        assert read(edited, KEY) == FrontMatterField(value, 2)
        assert b"'" in edited
    assert put(b'---\ndelegate_to: "x"\n---\n', KEY, 'a"\\b') == (
        b'---\ndelegate_to: "a\\"\\\\b"\n---\n'
    )


def test_a_value_of_two_lines_is_refused() -> None:
    assert "one line" in refusal(b"", "a\nb")
    assert "one line" in refusal(b"", "")


def test_a_field_that_stands_twice_is_an_error_that_names_both_lines() -> None:
    data = b"---\ndelegate_to: a-b\nname: x\n'delegate_to': c-d\n---\n"
    told = "line 4: delegate_to is in the front matter twice, first on line 2"
    assert refusal(data) == told
    assert refusal(data, None) == told
    with pytest.raises(FrontMatterInvalid, match="twice"):
        read(data, KEY)


def test_a_name_of_another_field_that_stands_twice_is_an_error_too() -> None:
    assert "name is in the front matter twice" in refusal(b"---\nname: a\nname: b\n---\n")


def test_bytes_that_are_not_text_are_named() -> None:
    assert refusal(b"---\nname: \xff\n---\n") == "the file is not UTF-8 text: byte 10 is 0xff"


def test_yaml_that_is_broken_is_named_with_its_line() -> None:
    told = refusal(b"---\nname: x\ndescription: use it when: always\n---\n")
    assert told.startswith("line 3: the front matter is not valid YAML: mapping values")
    assert "not valid YAML" in refusal(b'---\na: "\\U99999999"\n---\n')
    assert "not valid YAML" in refusal(b"---\na: \x07\n---\n")


def test_front_matter_that_never_ends_is_named() -> None:
    assert "never ends" in refusal(b"---\nname: x\nbody")
    assert "never ends" in refusal(b"---")


def test_front_matter_that_is_not_a_mapping_is_refused() -> None:
    assert "not a mapping" in refusal(b"---\n- a\n- b\n---\n")
    assert "more than one YAML document" in refusal(b"---\na: b\n--- c\n---\n")


def test_front_matter_in_braces_can_be_changed_but_not_added_to() -> None:
    data = b"---\n{name: x, delegate_to: a-b}\n---\n"
    assert put(data, KEY, "c-d") == b"---\n{name: x, delegate_to: c-d}\n---\n"
    assert "by hand" in refusal(data, None)
    assert "by hand" in refusal(b"---\n{name: x}\n---\n")
    assert read(b"---\n{}\n---\n", KEY) is None
    assert "by hand" in refusal(b"---\n{}\n---\n")


def test_a_field_that_is_not_a_single_value_is_left_alone() -> None:
    for value in (b"[a-b]", b"{a: b}", b"\n  - a"):
        data = b"---\ndelegate_to: " + value + b"\n---\n"
        assert refusal(data) == "line 2: delegate_to is not a single value"
        assert refusal(data, None) == "line 2: delegate_to is not a single value"


def test_files_that_only_look_as_if_they_had_no_front_matter_are_refused() -> None:
    assert "remove the empty lines" in refusal(b"\n\n---\nname: x\n---\n")
    assert "line of its own" in refusal(b"--- # comment\nname: x\n---\n")
    assert "TOML" in refusal(b"+++\nname = 'x'\n+++\n")
    assert "carriage return" in refusal(b"---\nname: x\r---\r\n---\n")


def test_an_empty_value_in_a_form_of_two_lines_is_refused() -> None:
    assert "no value" in refusal(b"---\n? delegate_to\n---\n")
