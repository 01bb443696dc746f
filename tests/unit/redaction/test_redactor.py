"""Secrets are cut out of texts and lines, and nothing else is."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.redaction.redactor import LONG, LONGEST, REACH, Redactor, ReportRedactor
from tests.unit.store.stores import SECRET


def test_what_has_no_secret_comes_back_as_the_same_object() -> None:
    redact = Redactor(["hunter2hunter2"])
    text = "the task-list has a key, a token and https://example.org/a?b=c in it"
    line = b'{ "sessionId": "one", "n": 1e3, "text": "plain\\n words" }'
    assert redact.text(text) is text
    assert redact.line(line) is line


@pytest.mark.parametrize(
    "text",
    [
        f"it is {SECRET}.",
        f"OPENAI={SECRET}",
        "export MY_TOKEN=abcdefgh",
        "Authorization: Bearer abcdefghijkl",
        "curl --api-key abcdefgh",
        "https://anna:abcdefgh@example.org/",
        '{"apiKey": "abcdefgh"}',
        "-----BEGIN RSA PRIVATE KEY-----\nabcdefgh\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_is_cut_out_of_texts_and_lines(text: str) -> None:
    redact = Redactor()
    assert "abcdefgh" not in redact.text(text) and SECRET not in redact.text(text)
    line = msgspec.json.encode({"sessionId": "one", "text": text})
    clean = msgspec.json.decode(redact.line(line))
    assert "abcdefgh" not in clean["text"] and SECRET not in clean["text"]
    assert clean["sessionId"] == "one"


def test_an_address_keeps_its_host() -> None:
    assert Redactor().text("see ftp://anna:hush@example.org/x") == (
        "see ftp://[redacted]@example.org/x"
    )


def test_values_are_cut_out_in_every_form() -> None:
    value = 'päss/"word" 42'
    redact = Redactor([value])
    for written in (
        value,
        'päss/\\"word\\" 42',
        'p\\u00e4ss/\\"word\\" 42',
        'päss\\/\\"word\\" 42',
        "p%C3%A4ss%2F%22word%22%2042",
        "p%C3%A4ss/%22word%22%2042",
    ):
        assert redact.text(f"<{written}>") == "<[redacted]>", written


def test_each_long_line_of_a_value_is_cut_out_too() -> None:
    redact = Redactor(["first line, which is long enough\nshort\n"])
    assert redact.text("a first line, which is long enough, short") == "a [redacted], short"


def test_values_too_short_to_be_distinguished_from_words_stay() -> None:
    assert Redactor(["abc", ""]).text("abc") == "abc"


def test_a_value_within_a_key_leaves_no_rest_of_the_key() -> None:
    assert Redactor([SECRET[3:12]]).text(f"<{SECRET}>") == "<[redacted]>"
    assert Redactor(["abcdef", "abcdefghij"]).text("abcdefghij") == "[redacted]"
    assert Redactor(["abcdefgh", "efghijkl"]).text("<abcdefghijkl>") == "<[redacted]>"


def test_names_of_fields_are_searched_like_their_values() -> None:
    clean = Redactor(["hunter2hunter2"]).line(b'{"hunter2hunter2":["hunter2hunter2",1,null]}')
    assert clean == b'{"[redacted]":["[redacted]",1,null]}'


def test_what_stands_under_the_name_of_a_secret_goes_whatever_it_looks_like() -> None:
    assert Redactor().line(b'{"env":[{"name":"MY_TOKEN","value":"plain"}]}') == (
        b'{"env":[{"name":"MY_TOKEN","value":"[redacted]"}]}'
    )
    assert Redactor().line(b'["--password","plain"]') == b'["--password","[redacted]"]'


def test_a_field_that_occurs_twice_hides_nothing() -> None:
    line = b'{"text":"%b","text":"harmless"}' % SECRET.encode()
    assert SECRET.encode() not in Redactor().line(line)


@pytest.mark.parametrize("line", [b'{"a":"%b"', b'\xff "%b"', b"[" * 5000 + b'"%b"'])
def test_what_is_not_json_is_searched_as_text(line: bytes) -> None:
    assert SECRET.encode() not in Redactor().line(line % SECRET.encode())


def test_half_a_surrogate_pair_does_not_hide_a_secret() -> None:
    line = b'{"text":"\\ud83d %b"}' % SECRET.encode()
    assert msgspec.json.decode(Redactor().line(line)) == {"text": "\ufffd [redacted]"}


def test_the_reach_of_a_redactor_is_its_longest_value() -> None:
    assert Redactor().reach == REACH
    assert Redactor(["short one"]).reach == REACH
    assert Redactor(["x" * 3000]).reach == 3000


def test_a_text_that_looks_like_a_placeholder_of_ours_stays_what_it_is() -> None:
    value = {"a": "\0000", "b": "\0001", "c": "x" * 1000, "d": f"is {SECRET}"}
    clean = msgspec.json.decode(Redactor().line(msgspec.json.encode(value)))
    assert clean == value | {"d": "is [redacted]"}


@pytest.mark.parametrize("place", [0, LONG - 20, LONG, LONG + 10, 3 * LONG])
def test_a_secret_in_a_long_text_is_found_wherever_it_stands(place: int) -> None:
    value = 'hunter2 "and" more' * 60
    redact = Redactor([value])
    for secret in (SECRET, value, f"PASSWORD='{'tiger lily ' * 300}'"):
        before, behind = ("word " * place)[: max(0, place - 1)] + " ", " word" * LONG
        clean = redact.text(before + secret + behind)
        assert "hunter2" not in clean and SECRET not in clean and "tiger" not in clean
        assert clean.startswith(before) and clean.endswith(behind)


@pytest.mark.parametrize("place", [LONG - 5000, LONG - 1500, LONG - 100])
def test_a_word_that_shows_late_what_it_is_is_not_torn_in_a_long_text(place: int) -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJ" + "c3ViIjoiMTIzNDU2" * 120 + ".dozjgNryP4J3jVmNHl0w5N"
    for written in (token, "".join(f"\\u{ord(letter):04x}" for letter in token)):
        text = ("word " * place)[:place] + " " + written + " word" * LONG
        assert Redactor().text(text) == text.replace(written, "[redacted]")


def test_a_long_text_is_only_cut_so_far_if_a_secret_has_no_end() -> None:
    text = "-----BEGIN PRIVATE KEY-----\n" + "words and words " * 20_000
    clean = Redactor().text(text)
    assert clean.endswith("words and words ")
    assert len(text) - len(clean) > LONGEST // 2


def test_a_long_word_without_an_end_costs_no_more_than_its_length() -> None:
    text = "QUJDREVG" * 100_000 + f" {SECRET}"
    clean = Redactor().text(text)
    assert clean == text[: -len(SECRET)] + "[redacted]"


@pytest.mark.parametrize("behind", ["鍵", "é"])
def test_a_key_right_behind_another_script_is_found_however_that_is_written(behind: str) -> None:
    for line in (
        json.dumps({"a": behind + SECRET}),
        json.dumps({"a": behind + SECRET}, ensure_ascii=False),
    ):
        assert SECRET.encode() not in Redactor().line(line.encode())
    assert SECRET not in Redactor().text(behind + SECRET)


def test_the_end_of_a_text_that_goes_on_is_measured_as_it_reads() -> None:
    redact = Redactor()
    plain, escaped = "word " * 2000, "\\u0041" * 2000
    assert redact.before(plain, len(plain)) == len(plain) - REACH
    assert redact.before(plain, 10) == 0
    assert 6 * REACH <= len(escaped) - redact.before(escaped, len(escaped)) < 12 * REACH
    token = "eyJhbGciOiJIUzI1NiJ9.eyJ" + "c3ViIjoiMTIzNDU2" * 120
    for word, certain in ((token, 5), ("x" * 2000, 5 + 2000 - REACH)):
        assert redact.open_from("word " + word, []) == certain


# -- reports


def test_the_home_folder_becomes_a_tilde_and_only_it() -> None:
    redact = ReportRedactor(homes=["/home/anna/"])
    assert redact("/home/anna/x:/home/anna") == "~/x:~"
    assert redact("/home/annabel/x") == "/home/annabel/x"


def test_values_of_secrets_are_cut_out_wherever_they_stand() -> None:
    redact = ReportRedactor(["hunter2hunter2", "oddly-named", "no"])
    assert redact("a hunter2hunter2 b visible oddly-named no") == (
        "a [redacted] b visible [redacted] no"
    )


def test_keys_of_known_makers_are_cut_out_though_no_variable_holds_them() -> None:
    key = "sk-" + "a1" * 12
    assert key not in ReportRedactor()(f"it said: bad key {key}!")


def test_folders_of_the_user_elsewhere_lose_the_name() -> None:
    redact = ReportRedactor(homes=["/Users/anna"], user="anna")
    assert redact("/mnt/anna/x") == "/mnt/USER/x"
    assert ReportRedactor(user="root")("/root/x") == "/root/x"
