"""`dragoman console`: its options, links and tokens. `tests/console` serves it."""

from __future__ import annotations

import json

import pytest

from dragoman.cli import shared_options
from dragoman.console.access import ConsoleAccess
from dragoman.paths import find_paths
from tests.unit.cli.calling import Shell


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--listen", "8730"], "--listen takes ADDRESS:PORT"),
        (["--listen", "0.0.0.0:8730"], "requires TLS"),
        (["--name", "https://my-machine.example.net"], "--name takes HOST[:PORT]"),
        (["--name", "my machine"], "--name takes HOST[:PORT]"),
        (["--tls-cert", "x.pem"], "must be used together"),
        (["--tls-cert", "x.pem", "--tls-key", "y.pem", "--listen", "127.0.0.1:0"], "x.pem"),
        (["tokens", "other"], "list or revoke"),
        (["tokens", "revoke"], "missing token ID"),
        (["tokens", "revoke", "x"], "no token"),
        (["tokens", "list", "x"], "takes no ID"),
        (["link"], "no console was started yet"),
    ],
)
def test_invalid_usage_is_reported(shell: Shell, words: list[str], problem: str) -> None:
    said = shell("console", *words)
    assert said.code == 2
    assert problem in " ".join(said.err.split())


def test_without_the_extra_it_says_how_to_get_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_options, "find_spec", lambda name: None)
    said = shell("console")
    assert said.code == 2 and "pip install 'dragoman[console]'" in said.err


def test_tokens_are_listed_and_revoked(shell: Shell) -> None:
    assert "No browser is logged in" in shell("console", "tokens").err
    access = ConsoleAccess(find_paths())
    access.set_url("http://127.0.0.1:1/")
    link = shell("console", "link", "--read-only").out.strip()
    assert link.startswith("http://127.0.0.1:1/#token=")
    found = access.exchange(link.partition("#token=")[2], "Browser \x1b[2J")
    assert found is not None and found[1].rights == "read"
    listed = shell("console", "tokens")
    assert found[1].id in listed.out and "read" in listed.out and "\x1b" not in listed.out
    told = json.loads(shell("console", "tokens", "list", "--format", "json").out)
    assert told["id"] == found[1].id and "digest" not in told
    assert shell("console", "tokens", "--format", "quiet").out == f"{found[1].id}\n"
    assert shell("console", "tokens", "revoke", found[1].id).code == 0
    assert access.find(found[0]) is None
    assert "revoked 0 tokens" in shell("console", "tokens", "revoke", "all").err


def test_a_missing_certificate_is_named_without_the_number_of_the_error(shell: Shell) -> None:
    said = shell("console", "--tls-cert", "c.pem", "--tls-key", "k.pem", "--listen", "127.0.0.1:0")
    assert said.code == 2 and "c.pem" in said.err and "Errno" not in said.err
