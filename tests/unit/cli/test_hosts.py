"""`dragoman hosts` without a machine. tests/hosts has the tests that need one."""

from __future__ import annotations

import json

from dragoman.cli.hosts import complete_host
from tests.unit.cli.calling import Shell


def test_a_host_is_added_changed_listed_and_removed(shell: Shell) -> None:
    assert "No machines are set up" in shell("hosts").err
    said = shell("hosts", "add", "box", "--destination", "me@box", "--workspace", "/srv/x")
    assert said.code == 0 and "box: added in" in said.out
    said = shell("hosts", "add", "box", "--ssh-option=-p", "--ssh-option=2222")
    assert "box: changed in" in said.out
    assert "box: unchanged in" in shell("hosts", "add", "box", "--workspace", "/srv/x").out
    row = json.loads(shell("hosts", "list", "--format", "json").out)
    assert (row["destination"], row["ssh_options"]) == ("me@box", ["-p", "2222"])
    assert row["check"] is None
    assert "not checked" in shell("hosts").out
    assert complete_host("b") == ["box"]
    assert shell("peers", "enable", "codex@box").code == 0
    removed = shell("hosts", "remove", "box")
    assert removed.code == 0 and "`dragoman peers disable codex@box`" in removed.out
    assert shell("peers", "disable", "codex@box").code == 0
    assert shell("hosts", "remove", "box").code == 2


def test_the_default_destination_is_the_name(shell: Shell) -> None:
    shell("hosts", "add", "box")
    assert 'destination = "box"' in (shell.config / "config.toml").read_text()


def test_an_invalid_name_or_path_is_rejected(shell: Shell) -> None:
    assert "is not a valid host name" in shell("hosts", "add", "a.b").err
    refused = shell("hosts", "add", "box", "--workspace", "src").err
    assert "is not an absolute path" in refused and "nothing was changed" in refused
    assert "is not a valid destination" in shell("hosts", "add", "box", "--destination=-x").err
    assert not (shell.config / "config.toml").exists()


def test_an_unknown_host_names_the_nearest_one(shell: Shell) -> None:
    shell("hosts", "add", "laptop")
    assert "did you mean laptop?" in shell("hosts", "check", "latop").err
