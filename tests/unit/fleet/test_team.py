"""The keys of a fleet: invite, admit and revoke members."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from dragoman.errors import UsageError
from dragoman.fleet.credentials import decode_code
from dragoman.fleet.nkeys import new_key, read_seed
from dragoman.fleet.team import FleetFolder, coordinator_access, new_team, system_access
from dragoman.fleet.tokens import read_token


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    folder = FleetFolder(tmp_path / "fleet")
    keys = folder.prepare().with_team(new_team("team"))
    folder.change(structs.replace(keys, urls=("nats://127.0.0.1:4222",)))
    return folder


def test_the_keys_are_created_once_and_readable_only_by_their_owner(tmp_path: Path) -> None:
    folder = FleetFolder(tmp_path / "fleet")
    with pytest.raises(UsageError, match="no fleet"):
        folder.read()
    keys = folder.prepare()
    assert folder.prepare() == keys
    assert folder.file.stat().st_mode & 0o777 == 0o600


def test_keys_that_others_can_read_are_refused(folder: FleetFolder) -> None:
    folder.file.chmod(0o640)
    with pytest.raises(UsageError, match="is readable by other users") as caught:
        folder.read()
    assert "chmod 600" in (caught.value.remedy or "")


def test_a_join_code_admits_one_machine_once(folder: FleetFolder) -> None:
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    user = new_key("user")
    claims = read_token(folder.admit(code.id, user.public, team="team", now=100))
    assert claims["sub"] == user.public and claims["exp"] > 100
    assert "job.w1" in claims["nats"]["sub"]["allow"]
    with pytest.raises(UsageError, match="already used"):
        folder.admit(code.id, new_key("user").public, team="team", now=100)


def test_a_machine_that_did_not_get_its_token_can_ask_for_it_again(folder: FleetFolder) -> None:
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    public = new_key("user").public
    first = read_token(folder.admit(code.id, public, team="team", now=100))
    assert folder.expects(code.id, public, team="team")
    again = read_token(folder.admit(code.id, public, team="team", now=200))
    assert (again["sub"], again["exp"]) == (public, first["exp"])
    assert again["nats"] == first["nats"]
    # With the key of another machine the code is used up, and after a revocation with any key.
    assert not folder.expects(code.id, new_key("user").public, team="team")
    folder.revoke("w1", team=None, now=300)
    with pytest.raises(UsageError, match="revoked"):
        folder.admit(code.id, public, team="team", now=300)


def test_a_newer_join_code_replaces_the_previous_one(folder: FleetFolder) -> None:
    first = decode_code(folder.invite("worker", "w1", team=None, now=100))
    folder.invite("worker", "w1", team=None, now=100)
    with pytest.raises(UsageError, match="replaced"):
        folder.admit(first.id, new_key("user").public, team="team", now=100)


def test_a_name_can_be_used_again_only_after_it_was_revoked(folder: FleetFolder) -> None:
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    folder.admit(code.id, new_key("user").public, team="team", now=100)
    with pytest.raises(UsageError, match="already a member"):
        folder.invite("submitter", "w1", team=None, now=200)
    folder.revoke("w1", team=None, now=200)
    folder.invite("worker", "w1", team=None, now=300)


def test_a_revoked_key_is_in_the_next_team_token(folder: FleetFolder) -> None:
    user = new_key("user")
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    folder.admit(code.id, user.public, team="team", now=100)
    keys, team = folder.revoke("w1", team=None, now=200)
    assert read_token(keys.team_token(team, 200))["nats"]["revocations"] == {user.public: 200}
    with pytest.raises(UsageError, match="unknown member"):
        folder.revoke("w1", team=None, now=200)


@pytest.mark.parametrize("name", ["coordinator", "join-1", "a.b", "*"])
def test_reserved_and_invalid_names_are_rejected(folder: FleetFolder, name: str) -> None:
    with pytest.raises(UsageError):
        folder.invite("worker", name, team=None, now=100)


def test_a_public_key_of_another_kind_is_rejected(folder: FleetFolder) -> None:
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    with pytest.raises(UsageError, match="public key"):
        folder.admit(code.id, new_key("account").public, team="team", now=100)


def test_the_team_must_be_named_if_there_are_several(folder: FleetFolder) -> None:
    folder.change(folder.read().with_team(new_team("blue")))
    with pytest.raises(UsageError, match="--team"):
        folder.invite("worker", "w1", team=None, now=100)
    with pytest.raises(UsageError, match="unknown team"):
        folder.invite("worker", "w1", team="green", now=100)
    assert decode_code(folder.invite("worker", "w1", team="blue", now=100)).team == "blue"


def test_changing_the_settings_keeps_members_that_joined_meanwhile(folder: FleetFolder) -> None:
    before = folder.read()
    folder.invite("worker", "w1", team=None, now=100)
    folder.change(structs.replace(before, listen="127.0.0.1:1"))
    assert folder.read().team(None).member("w1") is not None
    assert folder.read().listen == "127.0.0.1:1"


def test_only_the_coordinator_is_in_the_stream_account(folder: FleetFolder) -> None:
    keys = folder.read()
    team = keys.team(None)
    members, store = (
        read_token(token)["nats"] for token in (keys.team_token(team, 1), keys.store_token(team, 1))
    )
    assert members["limits"]["streams"] == 0 and store["limits"]["streams"] == -1
    imported = {one["subject"]: one["account"] for one in members["imports"]}
    assert set(imported) == {one["subject"] for one in store["exports"]}
    assert set(imported.values()) == {read_seed(team.store_seed).public}
    code = decode_code(folder.invite("worker", "w1", team=None, now=100))
    assert read_token(code.token)["iss"] == read_seed(team.seed).public
    token = folder.admit(code.id, new_key("user").public, team="team", now=100)
    assert read_token(token)["iss"] == read_seed(team.seed).public


def test_the_coordinator_uses_the_stream_account_and_the_system_user_the_system_account(
    folder: FleetFolder,
) -> None:
    keys = folder.read()
    team = keys.team(None)
    access = coordinator_access(keys, team, 1)
    assert read_token(access.token)["iss"] == read_seed(team.store_seed).public
    assert read_token(system_access(keys, 1).token)["iss"] == read_seed(keys.system_seed).public
