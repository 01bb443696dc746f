"""`dragoman login`: which method is used, and where the secret comes from."""

from __future__ import annotations

import io
import sys

import pytest

from dragoman.cli import login
from dragoman.errors import UsageError
from dragoman.events.parts import AuthMethod

PASSWORD = AuthMethod("password", "password", "password")
OAUTH = AuthMethod("oauth", "oauth", "oauth")
NONE = AuthMethod("none", "none", "none")


def test_the_only_method_is_used_and_one_of_several_has_to_be_named() -> None:
    assert login._chosen(None, [NONE, OAUTH], "x") is OAUTH
    assert login._chosen("password", [PASSWORD, OAUTH], "x") is PASSWORD
    with pytest.raises(UsageError, match="several login methods, choose one: password, oauth"):
        login._chosen(None, [PASSWORD, OAUTH], "x")
    with pytest.raises(UsageError, match="no login method 'magic'; it has oauth"):
        login._chosen("magic", [OAUTH], "x")
    with pytest.raises(UsageError, match="x has no login that dragoman can start") as refused:
        login._chosen(None, [NONE], "x", "run `x login`")
    assert refused.value.remedy == "run `x login`"


def test_a_secret_comes_from_a_variable_or_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "abc")
    assert login._secret("Token", "MY_TOKEN") == "abc"
    monkeypatch.setattr(sys, "stdin", io.StringIO("first line\nsecond\n"))
    assert login._secret("Password", None) == "first line"
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(UsageError, match="no password was given"):
        login._secret("Password", None)
    monkeypatch.delenv("MY_TOKEN")
    with pytest.raises(UsageError, match="the variable is not set"):
        login._secret("Token", "MY_TOKEN")


def test_a_secret_is_asked_for_without_an_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "abc"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", ask)
    assert login._secret("Password", None) == "abc"
    assert asked == ["Password: "]
