"""Credential files are private, and incomplete join codes are rejected."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from dragoman.errors import UsageError
from dragoman.fleet.credentials import (
    JoinCode,
    MemberCredential,
    credential_from,
    credential_path,
    credentials_of,
    decode_code,
    encode_code,
    find_credential,
    new_member_key,
    read_credential,
    save_credential,
)
from dragoman.fleet.nkeys import new_key
from dragoman.fleet.tokens import user_token
from dragoman.paths import Paths, find_paths


def paths(folder: Path) -> Paths:
    return find_paths({"HOME": str(folder), "DRAGOMAN_DATA_HOME": str(folder / "data")})


def code() -> JoinCode:
    return JoinCode(
        id="join-1",
        team="team",
        name="w1",
        kind="worker",
        urls=("nats://h:1",),
        seed="S",
        token="t",
    )


def credential(name: str = "w1") -> MemberCredential:
    key = new_member_key()
    token = user_token(new_key("account"), key.public, name=name, now=1, expires_at=99)
    return msgspec.structs.replace(credential_from(code(), key, token), name=name)


def test_a_join_code_is_one_word_and_decodes_to_the_same_values() -> None:
    text = encode_code(code())
    assert text.split() == [text]
    assert decode_code(f" {text[:30]}\n{text[30:]} ") == code()


@pytest.mark.parametrize("field", ["id", "team", "name"])
def test_a_join_code_whose_names_could_be_paths_is_rejected(field: str) -> None:
    changed = msgspec.structs.replace(code(), **{field: "../../elsewhere"})
    with pytest.raises(UsageError, match="invalid name"):
        decode_code(encode_code(changed))


@pytest.mark.parametrize("cut", [5, 20, 60])
def test_a_truncated_join_code_is_rejected(cut: int) -> None:
    with pytest.raises(UsageError):
        decode_code(encode_code(code())[:-cut])


@pytest.mark.parametrize("text", ["", "hello", "dragoman-join-", "dragoman-join-!!", "x" * 20000])
def test_text_that_is_not_a_join_code_is_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        decode_code(text)


def test_a_credential_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = credential_path(paths(tmp_path), "team", "w1")
    saved = credential()
    save_credential(saved, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_credential(path) == saved
    assert saved.expires_at == 99


def test_a_credential_file_that_others_can_read_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    save_credential(credential(), path)
    os.chmod(path, 0o644)
    with pytest.raises(UsageError, match="other users"):
        read_credential(path)


def test_an_invalid_credential_file_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="invalid fleet credential"):
        read_credential(path)


def test_the_credential_is_found_by_kind_and_name(tmp_path: Path) -> None:
    where = paths(tmp_path)
    with pytest.raises(UsageError, match="as a worker"):
        find_credential(where, "worker")
    for name in ("w1", "w2"):
        save_credential(credential(name), credential_path(where, "team", name))
    with pytest.raises(UsageError, match="several"):
        find_credential(where, "worker")
    assert find_credential(where, "worker", name="w2").name == "w2"
    with pytest.raises(UsageError, match="as a submitter"):
        find_credential(where, "submitter")


def test_an_invalid_credential_is_reported_and_the_valid_one_is_used(tmp_path: Path) -> None:
    where = paths(tmp_path)
    save_credential(credential("w1"), credential_path(where, "team", "w1"))
    bad = credential_path(where, "other", "w2")
    bad.write_text("{}")
    bad.chmod(0o600)
    found, problems = credentials_of(where, "worker")
    assert [one.name for one in found] == ["w1"]
    assert [str(bad) in str(problem) for problem in problems] == [True]
    notices: list[str] = []
    assert find_credential(where, "worker", on_notice=notices.append).name == "w1"
    (notice,) = notices
    assert str(bad) in notice and "invalid fleet credential" in notice
    with pytest.raises(UsageError, match="invalid fleet credential"):
        find_credential(where, "submitter", on_notice=notices.append)
