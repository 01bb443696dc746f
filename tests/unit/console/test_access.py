"""Login links and tokens of the console."""

from __future__ import annotations

import stat
from collections.abc import Iterator

import pytest

from dragoman.console import access as access_module
from dragoman.console.access import LINK_TIMEOUT, TOKEN_TIMEOUT, ConsoleAccess, new_key
from dragoman.errors import ConfigInvalid, UsageError
from dragoman.paths import Paths
from tests.unit.console.place import short_paths


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        monkeypatch.setattr(access_module, "time", self)

    def time(self) -> float:
        return self.now


def test_a_link_gives_one_token_with_its_rights(paths: Paths) -> None:
    access = ConsoleAccess(paths)
    found = access.exchange(access.new_link("read"), "Browser\n\x1b 1")
    assert found is not None
    secret, token = found
    assert token.rights == "read" and token.label == "Browser 1"
    assert access.find(secret) == token
    assert access.find(secret + "x") is None


def test_a_token_with_a_key_is_valid_only_with_that_key(paths: Paths) -> None:
    access = ConsoleAccess(paths)
    key = new_key()
    found = access.exchange(access.new_link("act"), "browser", key=key)
    assert found is not None
    secret, token = found
    assert access.find(secret, key=key) == token
    for wrong in ("", new_key(), secret, key[:-1], f".{key}"):
        assert access.find(secret, key=wrong) is None
    assert access.find(key, key=secret) is None


def test_a_link_can_be_used_once(paths: Paths) -> None:
    access = ConsoleAccess(paths)
    link = access.new_link("act")
    assert access.exchange(link, "") is not None
    assert access.exchange(link, "") is None
    before = access.path.stat()
    assert access.exchange("unknown", "") is None
    after = access.path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_links_and_tokens_expire(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    access = ConsoleAccess(paths)
    late, used = access.new_link("act"), access.new_link("act")
    clock.now += LINK_TIMEOUT - 1
    found = access.exchange(used, "")
    assert found is not None
    clock.now += 2
    assert access.has_expired(late) and not access.has_expired("unknown")
    assert access.exchange(late, "") is None
    clock.now += TOKEN_TIMEOUT
    assert access.find(found[0]) is None
    assert not access.is_valid(found[1].id)


def test_another_process_sees_a_revoked_token_immediately(paths: Paths) -> None:
    here, there = ConsoleAccess(paths), ConsoleAccess(paths)
    found = here.exchange(here.new_link("act"), "")
    assert found is not None
    secret, token = found
    assert there.find(secret) == token
    there.revoke(token.id)
    assert here.find(secret) is None and not here.is_valid(token.id)
    with pytest.raises(UsageError, match="no token"):
        there.revoke(token.id)


def test_all_tokens_and_links_can_be_revoked(paths: Paths) -> None:
    access = ConsoleAccess(paths)
    link = access.new_link("act")
    assert access.exchange(access.new_link("act"), "") is not None
    assert access.revoke_all() == 1
    assert access.exchange(link, "") is None


def test_the_file_contains_no_secret_and_only_its_owner_can_read_it(paths: Paths) -> None:
    access = ConsoleAccess(paths)
    link = access.new_link("act")
    found = access.exchange(access.new_link("act"), "")
    assert found is not None
    text = access.path.read_text()
    assert link not in text and found[0] not in text
    assert stat.S_IMODE(access.path.stat().st_mode) == 0o600


def test_the_cookie_name_is_stable_and_differs_between_instances(paths: Paths) -> None:
    assert ConsoleAccess(paths).cookie == ConsoleAccess(paths).cookie
    with short_paths() as others:
        assert ConsoleAccess(others).cookie != ConsoleAccess(paths).cookie


def test_an_invalid_file_is_named_in_the_error(paths: Paths) -> None:
    access = ConsoleAccess(paths)
    access.new_link("act")
    access.path.write_text("{")
    with pytest.raises(ConfigInvalid, match=r"console\.json"):
        ConsoleAccess(paths).find("x")
