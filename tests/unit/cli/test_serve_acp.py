"""`dragoman serve acp`: where the token comes from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.cli.serve_acp import TOKEN_VARIABLE, acp, address_of, token_of
from dragoman.errors import UsageError
from tests.unit.cli.calling import Shell


def test_an_address_is_of_this_machine_unless_it_says_otherwise() -> None:
    assert address_of("8765") == ("127.0.0.1", 8765)
    assert address_of("localhost:0") == ("localhost", 0)
    assert address_of("[::1]:80") == ("::1", 80)
    for text in ("", "host", "host:", "host:99999", "host:x", "٣"):
        with pytest.raises(UsageError, match="PORT"):
            address_of(text)


def test_a_token_is_created_and_shown_if_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    token, told = token_of(None)
    assert told is not None and token in told
    monkeypatch.setenv(TOKEN_VARIABLE, "from-the-environment")
    assert token_of(None) == ("from-the-environment", None)


def test_a_token_file_is_made_for_its_owner_alone_and_used_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "token"
    token, told = token_of(file)
    assert told == f"the token is in {file}"
    assert file.stat().st_mode & 0o777 == 0o600
    assert token_of(file) == (token, told)


@pytest.mark.parametrize("text", [b"", b"x" * 5_000_000, b"two words " * 4, "ä".encode() * 20])
def test_a_token_file_without_a_valid_token_is_named(shell: Shell, text: bytes) -> None:
    file = shell.home / "token"
    file.write_bytes(text)
    file.chmod(0o600)
    said = shell("serve", "acp", "--websocket", "0", "--token-file", str(file))
    assert (said.code, f"{file} contains no valid token" in said.err) == (2, True)


@pytest.mark.parametrize("text", ["abc", "two words " * 4, "x" * 2000, "\udcff" * 20])
def test_a_variable_without_a_valid_token_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, text)
    said = shell("serve", "acp", "--websocket", "0")
    told = " ".join(said.err.split())
    assert (said.code, f"{TOKEN_VARIABLE} contains no valid token" in told) == (2, True)
    assert "set another one, or unset the variable and use --token-file" in told


def test_two_carriers_and_a_token_without_a_door_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose one"):
        acp(socket=tmp_path / "s", websocket="0")
    with pytest.raises(UsageError, match="--websocket"):
        acp(token_file=tmp_path / "t")
