"""Settings of the local model: what is refused, where the key comes from, what is near."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.delegation.local_model import LocalModel
from dragoman.errors import AuthRequired, ConfigInvalid


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"api": "anthropic", "model": ""}, "model"),
        ({"api": "anthropic", "model": "m", "max_tokens": 0}, "max_tokens"),
        ({"api": "openai", "model": "m"}, "base_url"),
        ({"api": "openai", "model": "m", "base_url": "ftp://x"}, "base_url"),
        ({"api": "openai", "model": "m", "base_url": "http://"}, "base_url"),
        ({"api": "openai", "model": "m", "base_url": "http://[::1"}, "base_url"),
        ({"api": "openai", "model": "m", "base_url": "localhost:1"}, "base_url"),
        ({"api": "openai", "model": "m", "base_url": "http://127.0.0.1:99999"}, "base_url"),
        ({"api": "anthropic", "model": "m", "base_url": "http://two..dots"}, "base_url"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_their_key(values: Any, key: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        LocalModel(**values)
    assert caught.value.key == key


def test_settings_are_read_and_a_wrong_name_is_refused() -> None:
    text = b'{"api": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}'
    assert msgspec.json.decode(text, type=LocalModel).on_this_machine
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"api": "openai", "model": "m", "key": "x"}', type=LocalModel)


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://localhost:1/v1", True),
        ("http://gpu.localhost", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:80", True),
        ("http://10.0.0.1", False),
        ("https://localhost.example.org", False),
        ("http://127.0.0.1.example.org", False),
    ],
)
def test_only_this_machine_is_near(url: str, near: bool) -> None:
    assert LocalModel(api="openai", model="m", base_url=url).on_this_machine is near


def test_a_key_comes_from_the_variable_that_is_named_and_from_no_other() -> None:
    model = LocalModel(api="anthropic", model="m", key_variable="MINE")
    assert model.key({"MINE": " k \n", "ANTHROPIC_API_KEY": "other"}) == "k"
    with pytest.raises(AuthRequired, match="set MINE"):
        model.key({"ANTHROPIC_API_KEY": "other"})
    with pytest.raises(AuthRequired, match="set ANTHROPIC_API_KEY"):
        LocalModel(api="anthropic", model="m").key({"ANTHROPIC_API_KEY": " "})


@pytest.mark.parametrize("key", ["sk-1\nsk-2", "sk-ä", "sk-\0", "sk-\udcff"])
def test_a_key_that_cannot_be_in_a_header_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(AuthRequired, match="set MINE again") as caught:
        LocalModel(api="anthropic", model="m", key_variable="MINE").key({"MINE": key})
    assert "sk-" not in str(caught.value)


def test_an_open_server_may_have_no_key_unless_one_is_named() -> None:
    url = "http://127.0.0.1:1/v1"
    assert LocalModel(api="openai", model="m", base_url=url).key({}) == ""
    with pytest.raises(AuthRequired):
        LocalModel(api="openai", model="m", base_url=url, key_variable="MINE").key({})
