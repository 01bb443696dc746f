"""Settings out of many places: the order, the origins, and what an untrusted project may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect

from dragoman.config import Settings, trust_project
from dragoman.config.load import KEYS
from dragoman.errors import ConfigInvalid
from tests.unit.config.folders import load, paths_in, repository, write


def test_flags_go_before_variables_before_the_project_before_the_user(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = write(
        paths.config_file, 'format = "json"\n[timeouts]\ntotal = 1\nsilence = 2\nrequest = 3'
    )
    root = repository(tmp_path / "repo", "[timeouts]\ntotal = 11\nsilence = 12")
    trust_project(root, paths)
    environ = {"DRAGOMAN_TIMEOUTS_TOTAL": "21", "DRAGOMAN_ENABLED_PEERS": "codex, gemini"}
    config = load(root, paths, environ=environ, flags={"timeouts.total": 31.0, "format": None})
    times = config.settings.timeouts
    assert (times.total, times.silence, times.request) == (31.0, 12, 3)
    assert config.settings.enabled_peers == ("codex", "gemini")
    assert config.origin("timeouts.total") == "flag"
    assert config.origin("enabled_peers") == "DRAGOMAN_ENABLED_PEERS"
    assert config.origin("timeouts.silence") == str(root / "dragoman.toml")
    assert config.origin("timeouts.request") == config.origin("format") == str(file)
    assert config.origin("permissions") == "default"
    assert config.project == root and config.trusted


def test_every_setting_is_listed_with_its_value_and_origin(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, '[peer.codex]\nenv = ["A_KEY"]')
    rows = {key: (value, origin) for key, value, origin in load(tmp_path, paths).values()}
    assert rows["peer.codex.env"] == (["A_KEY"], str(paths.config_file))
    assert rows["format"] == ("text", "default")
    assert set(KEYS.values()) <= set(rows)


def test_without_any_file_all_is_default(tmp_path: Path) -> None:
    config = load(tmp_path, paths_in(tmp_path))
    assert config.project is None and not config.trusted
    assert {origin for _, _, origin in config.values()} == {"default"}
    # They are not read where nobody has set anything, and would be the same.
    assert config.settings == load(tmp_path, paths_in(tmp_path), flags={"format": "text"}).settings


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("DRAGOMAN_ENABLED_PEER", "codex", "did you mean DRAGOMAN_ENABLED_PEERS?"),
        ("DRAGOMAN_TIMEOUTS_TOTAL", "soon", "not a valid number"),
        ("DRAGOMAN_MAX_IDLE_BROKERS", "1.5", "not a valid number"),
        ("DRAGOMAN_LIMITS_DAY_TURNS", "1.5", "not a valid number"),
        ("DRAGOMAN_REQUIRE_CARD", "maybe", "'maybe' is not valid; use 1 or true or 0 or false"),
        ("DRAGOMAN_WARM", "maybe", "'maybe' is not valid; use 1 or true or 0 or false"),
        ("DRAGOMAN_FORMAT", "xml", "DRAGOMAN_FORMAT: format"),
        ("DRAGOMAN_CHECK", "caf\udce9", r"DRAGOMAN_CHECK: 'caf\udce9' is not UTF-8 text"),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(ConfigInvalid, match=name) as caught:
        load(tmp_path, paths_in(tmp_path), environ={name: text})
    assert words in str(caught.value)


def test_variables_that_are_not_settings_and_empty_ones_are_left_alone(tmp_path: Path) -> None:
    environ = {
        "DRAGOMAN_TRACE": "x",
        "DRAGOMAN_MARK": "y",
        "DRAGOMAN_CONFIG_HOME": "z",
        "DRAGOMAN_SOMETHING_ELSE": "w",
        "DRAGOMAN_DEPTH": "1",
        "DRAGOMAN_LINEAGE": "j-1",
        "DRAGOMAN_CEILING": "{}",
        "DRAGOMAN_FORMAT": "",
        "OTHER": "v",
        "DRAGOMAN_TIMEOUTS_SILENCE": "never",
    }
    config = load(tmp_path, paths_in(tmp_path), environ=environ)
    assert config.settings.format == "text"
    assert config.settings.budgets().silence is None


def test_limits_and_the_local_model_are_settings_like_others(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, "[limits]\nday_cost = 2\n[peer.codex.limits]\nday_turns = 3")
    environ = {
        "DRAGOMAN_LIMITS_DAY_TOKENS": "1000",
        "DRAGOMAN_LIMITS_SILENCE": "2.5",
        "DRAGOMAN_LOCAL_MODEL_API": "openai",
        "DRAGOMAN_LOCAL_MODEL_COMPETES": "1",
        "DRAGOMAN_MAX_DEPTH": "3",
    }
    config = load(tmp_path, paths, environ=environ)
    settings = config.settings
    assert (settings.limits.day_cost, settings.limits.day_tokens) == (2, 1000)
    assert settings.limits.silence == 2.5 and settings.max_depth == 3
    assert settings.local_model.api == "openai" and settings.local_model.competes
    assert settings.for_peer("codex").limits.day_turns == 3
    assert config.origin("peer.codex.limits.day_turns") == str(paths.config_file)


def test_every_number_can_be_set_with_a_variable(tmp_path: Path) -> None:
    numbers = {
        field.name
        for field in inspect.type_info(Settings).fields  # type: ignore[attr-defined]
        if {"FloatType", "IntType"} & {type(kind).__name__ for kind in _kinds(field.type)}
    }
    assert {"ttl", "question_timeout", "max_line_size"} <= numbers
    environ = {f"DRAGOMAN_{name.upper()}": "7000" for name in numbers}
    settings = load(tmp_path, paths_in(tmp_path), environ=environ).settings
    assert {getattr(settings, name) for name in numbers} == {7000}


def _kinds(kind: Any) -> tuple[Any, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def test_lists_of_variables_for_a_peer_add_up(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, '[peer.codex]\nenv = ["A", "B"]')
    root = repository(tmp_path / "repo", '[peer.codex]\nenv = ["B", "C"]')
    trust_project(root, paths)
    config = load(root, paths)
    assert config.settings.for_peer("codex").env == ("A", "B", "C")
    assert config.origin("peer.codex.env") == f"{paths.config_file}, {root / 'dragoman.toml'}"


# -- a project that nobody has trusted


def test_a_broken_project_is_an_error_that_names_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", "enabled_peer = []")
    with pytest.raises(ConfigInvalid, match="did you mean `enabled_peers`"):
        load(root, paths_in(tmp_path))
    config = load(root, paths_in(tmp_path), strict=False)
    assert len(config.problems) == 1
    assert config.project == root


# -- peers in files


def test_the_users_peers_are_handed_on_one_for_each_file(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.peers_folder / "mine.toml", 'name = "mine"')
    write(paths.peers_folder / "bad.toml", "= 3")
    write(paths.peers_folder / "notes.txt", "not one")
    write(paths.peers_folder / ".hidden.toml", "not one")
    bad, mine = load(tmp_path, paths).peers
    assert (mine.name, mine.table, mine.folder) == ("mine", {"name": "mine"}, paths.peers_folder)
    assert not mine.project
    assert bad.problem is not None and "bad.toml" in str(bad.problem)


def test_a_trusted_projects_peers_get_the_names_of_their_tables(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    root = repository(tmp_path / "repo", '[peers.ours]\ntitle = "Ours"\n')
    trust_project(root, paths)
    (ours,) = load(root, paths).peers
    assert ours.table == {"name": "ours", "title": "Ours"}
    assert (ours.project, ours.key, ours.folder) == (True, "peers.ours", root)


@pytest.mark.parametrize("text", ["peers = 3", "peers = [1]", "[peers]\nours = 3"])
def test_peers_that_are_not_tables_are_a_problem(tmp_path: Path, text: str) -> None:
    paths = paths_in(tmp_path)
    root = repository(tmp_path / "repo", text)
    trust_project(root, paths)
    (peer,) = load(root, paths).peers
    assert peer.problem is not None and "expected" in str(peer.problem)


def test_no_variable_is_a_policy() -> None:
    assert not any("POLICY" in name for name in KEYS)


def test_hosts_are_read_from_the_users_file_and_an_empty_table_is_one(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, '[hosts.box]\n[hosts.lab]\nssh_options = ["-p", "2222"]')
    hosts = load(tmp_path, paths).settings.hosts
    assert set(hosts) == {"box", "lab"}
    assert hosts["lab"].ssh_options == ("-p", "2222") and hosts["box"].destination is None


@pytest.mark.parametrize("trusted", [False, True])
def test_hosts_of_a_project_are_ignored_with_a_notice_even_if_it_is_trusted(
    tmp_path: Path, trusted: bool
) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, '[hosts.box]\nworkspace = "/mine"')
    root = repository(
        tmp_path / "repo", '[hosts.box]\nssh_options = ["-oProxyCommand=evil"]\n[hosts.evil]\n'
    )
    if trusted:
        trust_project(root, paths)
    config = load(root, paths)
    assert set(config.settings.hosts) == {"box"}
    assert config.settings.hosts["box"].ssh_options == ()
    (notice,) = config.untrusted
    assert str(notice).endswith("hosts is ignored: only your own config.toml can name machines")
