"""`dragoman login`: which method is used, and where the secret comes from."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from dragoman.cli import login
from dragoman.cli.command_loop import CommandLoop
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


def secret(what: str, variable: str | None = None) -> str:
    """The secret that is read in the loop of a command."""
    live = CommandLoop()
    found: list[str] = []

    async def work() -> int:
        found.append(await login._secret(what, variable, live))
        return 0

    live.run(work)
    return found[0]


def test_a_secret_comes_from_a_variable_or_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "abc")
    assert secret("Token", "MY_TOKEN") == "abc"
    monkeypatch.setattr(sys, "stdin", io.StringIO("first line\r\nsecond\n"))
    assert secret("Password") == "first line"
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(UsageError, match="no password was given"):
        secret("Password")
    monkeypatch.delenv("MY_TOKEN")
    with pytest.raises(UsageError, match="the variable is not set"):
        secret("Token", "MY_TOKEN")


def test_a_secret_is_asked_for_without_an_echo_in_the_main_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, bool]] = []

    def ask(prompt: str) -> str:
        asked.append((prompt, threading.current_thread() is threading.main_thread()))
        return "abc"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", ask)
    assert secret("Password") == "abc"
    assert asked == [("Password: ", True)]
