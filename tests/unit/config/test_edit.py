"""Edits of the user's file: only what was asked for, all of it or nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from dragoman.config import Paths
from dragoman.config.edit import (
    disable_peers,
    edit_config,
    enable_peers,
    init_config,
    remove_host,
    set_host,
)
from dragoman.errors import ConfigInvalid
from tests.unit.config.folders import load, paths_in, write


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return paths_in(tmp_path)


def text(paths: Paths) -> str:
    return paths.config_file.read_text(encoding="utf-8")


def test_the_first_file_is_all_defaults_and_is_written_once(paths: Paths, tmp_path: Path) -> None:
    assert init_config(paths)
    assert load(tmp_path, paths).settings == load(tmp_path, paths_in(tmp_path / "no")).settings
    enable_peers(paths, ["codex"])
    before = text(paths)
    assert not init_config(paths)
    assert text(paths) == before


def test_enabling_makes_the_file_if_there_is_none(paths: Paths, tmp_path: Path) -> None:
    assert enable_peers(paths, ["gemini", "codex", "gemini"]) == ("gemini", "codex")
    assert load(tmp_path, paths).settings.enabled_peers == ("gemini", "codex")
    assert enable_peers(paths, ["codex"]) == ()
    assert disable_peers(paths, ["gemini", "kimi"]) == ("gemini",)
    assert load(tmp_path, paths).settings.enabled_peers == ("codex",)


def test_a_file_with_a_byte_order_mark_can_be_edited(paths: Paths, tmp_path: Path) -> None:
    write(paths.config_file, '\ufeffformat = "json"\n')
    enable_peers(paths, ["codex"])
    settings = load(tmp_path, paths).settings
    assert (settings.format, settings.enabled_peers) == ("json", ("codex",))


def test_comments_and_layout_stay(paths: Paths) -> None:
    before = 'enabled_peers = [ # mine\n  "a", # first\n]\n\n# later\nformat   =   "json" # yes\n'
    write(paths.config_file, before)
    enable_peers(paths, ["b"])
    assert text(paths) == before.replace("# first\n]", '# first\n  "b",\n]')
    disable_peers(paths, ["b"])
    assert '"b"' not in text(paths)
    assert text(paths).startswith('enabled_peers = [ # mine\n  "a", # first\n')
    assert text(paths).endswith('\n# later\nformat   =   "json" # yes\n')


def test_a_list_that_is_missing_is_put_before_the_tables(paths: Paths, tmp_path: Path) -> None:
    write(paths.config_file, "# mine\n[timeouts] # short\ntotal = 5\n")
    enable_peers(paths, ["codex"])
    assert text(paths) == 'enabled_peers = ["codex"]\n\n# mine\n[timeouts] # short\ntotal = 5\n'
    assert load(tmp_path, paths).settings.timeouts.total == 5


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("peer.codex.evn", ["A"], "did you mean `env`?"),
        ("permissions", "yes", "permissions"),
        ("peer.codex.model", "sk-0123456789abcdefghijk", "secret"),
        ("timeouts.total", 0, "greater than 0"),
    ],
)
def test_what_would_not_load_is_not_written(
    paths: Paths, key: str, value: object, words: str
) -> None:
    init_config(paths)
    before = text(paths)

    def change(document: tomlkit.TOMLDocument) -> None:
        table: Any = document
        for word in key.split(".")[:-1]:
            table = table.setdefault(word, tomlkit.table())
        table[key.split(".")[-1]] = value

    with pytest.raises(ConfigInvalid) as caught:
        edit_config(paths, change)
    assert words in str(caught.value)
    assert text(paths) == before


@pytest.mark.parametrize("broken", [b"x = ", b"\xff", b"enabled_peers = 3\n"])
def test_a_file_that_is_broken_already_is_left_alone(paths: Paths, broken: bytes) -> None:
    paths.config.mkdir()
    paths.config_file.write_bytes(broken)
    with pytest.raises(ConfigInvalid):
        enable_peers(paths, ["codex"])
    assert paths.config_file.read_bytes() == broken


def test_two_writers_at_once_lose_nothing(paths: Paths, tmp_path: Path) -> None:
    init_config(paths)
    names = [f"peer{number}" for number in range(12)]
    threads = [threading.Thread(target=enable_peers, args=(paths, [name])) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(load(tmp_path, paths).settings.enabled_peers) == sorted(names)


def test_a_host_is_written_changed_and_removed_and_the_rest_stays(
    paths: Paths, tmp_path: Path
) -> None:
    before = '# mine\nformat = "json"\n'
    write(paths.config_file, before)
    assert set_host(paths, "box", {"destination": "me@box", "ssh_options": ("-p", "2222")})
    assert set_host(paths, "box", {"dragoman": "/opt/dragoman", "ssh_options": None})
    assert not set_host(paths, "box", {"dragoman": "/opt/dragoman"})
    (host,) = load(tmp_path, paths).settings.hosts.values()
    assert (host.destination, host.dragoman, host.ssh_options) == ("me@box", "/opt/dragoman", ())
    assert remove_host(paths, "box") and not remove_host(paths, "box")
    assert text(paths).strip() == before.strip()


def test_a_host_with_an_impossible_destination_is_not_written(paths: Paths) -> None:
    with pytest.raises(ConfigInvalid, match="is not a valid destination"):
        set_host(paths, "box", {"destination": "-oProxyCommand=x"})
    assert not paths.config_file.exists()
