"""What a person is told about a file that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from dragoman.config.validate import convert, refuse_secrets
from dragoman.errors import ConfigInvalid


class Inner(Struct, frozen=True, forbid_unknown_fields=True):
    size: int = 0
    words: tuple[str, ...] = ()


class Outer(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    named: dict[str, Inner] = {}


def refused(data: Any) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        convert(data, Outer, origin="file.toml", base="top")
    return caught.value


@pytest.mark.parametrize(
    ("data", "key", "words"),
    [
        ({"name": "a", "innner": {}}, "top.innner", "did you mean `inner`?"),
        ({"name": "a", "inner": {"sise": 1}}, "top.inner.sise", "did you mean `size`?"),
        ({"name": "a", "many": [{}, {"word": 1}]}, "top.many[1].word", "did you mean `words`?"),
        ({"name": "a", "named": {"x": {"zzz": 1}}}, "top.named.x.zzz", "size, words"),
        ({"name": 3}, "top.name", "expected a string, got a whole number"),
        ({"name": "a", "inner": {"size": "big"}}, "top.inner.size", "expected a whole number"),
        ({"name": "a", "many": {}}, "top.many", "expected a list"),
        ({}, "top", "it lacks the key `name`"),
    ],
)
def test_a_mistake_is_named_with_its_file_its_path_and_what_was_meant(
    data: Any, key: str, words: str
) -> None:
    error = refused(data)
    assert (error.origin, error.key) == ("file.toml", key)
    assert words in str(error)


def test_what_is_right_becomes_the_value() -> None:
    data = {"name": "a", "many": [{"size": 2, "words": ["x"]}]}
    assert convert(data, Outer, origin="f") == Outer("a", many=(Inner(2, ("x",)),))


@pytest.mark.parametrize(
    "data",
    [
        {"env": {"OPENAI_API_KEY": "abcdef-0123456789"}},
        {"env": {"MY_TOKEN": "a1b2c3d4e5f6a7b8"}},
        {"db": {"password": "hunter2-hunter2"}},
        {"command": ["agent", "--key=sk-abcdefghijklmnopqrstuv"]},
        {"note": "use ghp_0123456789012345678901234567890123"},
        {"list": [{"x": "AIzaSyA0123456789012345678901234567890"}]},
    ],
)
def test_what_looks_like_a_secret_is_refused_with_advice(data: Any) -> None:
    with pytest.raises(ConfigInvalid, match="set it as an environment variable"):
        refuse_secrets(data, origin="f")


@pytest.mark.parametrize(
    "data",
    [
        {"credentials": {"env": ["OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN"]}},
        {"env": {"USE_TOKEN": "true", "NO_KEY": "1"}},
        {"login": "set OPENAI_API_KEY and run it", "key": "see the manual for this"},
        {"max_tokens": "none", "monkey": "sk-short"},
    ],
)
def test_names_and_words_are_not_secrets(data: Any) -> None:
    refuse_secrets(data, origin="f")


@pytest.mark.parametrize(
    "data",
    [
        {"address": "wss://me:s3cret@host/x"},
        {"address": "wss://host/x?access_token=abcd1234efgh5678"},
        {"command": ["agent", "--api-key", "abcd1234-efgh-5678"]},
        {"command": ["agent", "--token=abcd1234-efgh-5678"]},
        {"env": {"sk-abcdefghijklmnop1234": "x"}},
        {"x": "Bearer eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc"},
    ],
)
def test_a_secret_is_found_in_addresses_and_command_lines_too(data: Any) -> None:
    with pytest.raises(ConfigInvalid, match="looks like a secret"):
        refuse_secrets(data, origin="file.toml")


@pytest.mark.parametrize(
    "data",
    [
        {"address": "wss://host:8080/x?page=abcd1234efgh5678"},
        {"command": ["agent", "--key", "/etc/keys/one.pem", "--token", "$MY_TOKEN"]},
        {"command": ["agent", "--password", "--other-option", "--token-file=./file.txt"]},
    ],
)
def test_where_a_secret_is_kept_is_none(data: Any) -> None:
    refuse_secrets(data, origin="file.toml")


def test_a_text_that_is_made_to_take_long_is_read_once() -> None:
    refuse_secrets({"x": "-eyJabcdefghijk" * 60_000}, origin="file.toml")
    refuse_secrets({"x": "://:" * 200_000, "y": "?page=" * 100_000}, origin="file.toml")


def test_tables_without_end_are_refused_and_long_words_are_cut() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(ConfigInvalid, match="nested more than"):
        refuse_secrets(deep, origin="file.toml")
    error = refused({"name": "a", "x" * 500_000: 1})
    assert len(str(error)) < 500
