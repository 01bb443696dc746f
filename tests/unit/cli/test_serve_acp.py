"""`dragoman serve acp`: where the token comes from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from dragoman.cli.serve_acp import TOKEN_VARIABLE, Preset, acp, address_of, token_of
from dragoman.config.schema import Permissions
from dragoman.errors import UsageError


def test_an_address_is_of_this_machine_unless_it_says_otherwise() -> None:
    assert address_of("8765") == ("127.0.0.1", 8765)
    assert address_of("localhost:0") == ("localhost", 0)
    assert address_of("[::1]:80") == ("::1", 80)
    for text in ("", "host", "host:", "host:99999", "host:x", "٣"):
        with pytest.raises(UsageError, match="PORT"):
            address_of(text)


def test_a_token_is_made_and_told_where_nobody_gave_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    token, told = token_of(None)
    assert told is not None and token in told
    monkeypatch.setenv(TOKEN_VARIABLE, "from the environment")
    assert token_of(None) == ("from the environment", None)


def test_a_token_file_is_made_for_its_owner_alone_and_used_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token, told = token_of(file)
    assert told is not None and token not in told
    assert file.stat().st_mode & 0o777 == 0o600
    assert token_of(file) == (token, None)


def test_a_token_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("x" * 40)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        token_of(file)
    with pytest.raises(UsageError):
        token_of(tmp_path / "missing" / "token")


def test_two_carriers_and_a_token_without_a_door_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose one"):
        acp(socket=tmp_path / "s", websocket="0")
    with pytest.raises(UsageError, match="--websocket"):
        acp(token_file=tmp_path / "t")


def test_the_presets_are_those_of_the_settings() -> None:
    assert {preset.value for preset in Preset} == set(get_args(Permissions))
