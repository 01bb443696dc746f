"""Which callers share a broker, and which do not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker.spec import (
    BrokerSpec,
    FileIdentity,
    Folders,
    decode,
    endpoint_name,
    identify_files,
    is_meant,
    real_workspace,
    search_path_of,
    shared_terms,
)
from dragoman.client.budgets import Budgets
from dragoman.errors import BrokerUnavailable

FOLDERS = Folders(state="/s", runtime="/r", data="/d")


def spec(**fields: Any) -> BrokerSpec:
    chosen: dict[str, Any] = {"peer": "gemini", "command": ("/bin/gemini",), "workspace": "/w"}
    return BrokerSpec(**{**chosen, "paths": FOLDERS, **fields})


def test_a_spec_survives_its_way_to_the_broker() -> None:
    full = spec(
        env={"KEY": "value"},
        details={"sandbox": "read-only"},
        budgets=Budgets(total=7.0, silence=None),
        identity=(FileIdentity(path="/bin/gemini", size=3, mtime_ns=4),),
        parallel=True,
        secret_values=("value",),
    )
    assert decode(full.encode()) == full
    assert b"\n" not in full.encode()
    with pytest.raises(msgspec.MsgspecError):
        decode(full.encode()[:-3])


@pytest.mark.parametrize("name", ["PATH", "COLORTERM", "KEY"])
def test_a_variable_that_is_not_utf_8_means_that_no_broker_is_available(name: str) -> None:
    # A latin-1 byte, as `os.environ` has it. The first two are not part of the name.
    unfit = spec(env={name: "caf\udce9"}, search_path=("/bin",))
    with pytest.raises(BrokerUnavailable, match="UTF-8 paths and variables, not 'caf"):
        endpoint_name(unfit)
        unfit.encode()


def test_the_name_says_the_peer_and_is_short() -> None:
    assert endpoint_name(spec()).startswith("gemini-")
    long = endpoint_name(spec(peer="/opt/My Agent/" + "x" * 100))
    assert len(long) == 24 + 1 + 12
    assert endpoint_name(spec(peer="…")).startswith("peer-")


@pytest.mark.parametrize(
    "fields",
    [
        {"peer": "qwen"},
        {"workspace": "/v"},
        {"command": ("/bin/gemini", "--acp")},
        {"command": None, "address": "unix:/x"},
        {"protocol": "codex"},
        {"env": {"GEMINI_API_KEY": "another"}},
        {"details": {"sandbox": "workspace-write"}},
        {"terminals": True},
        {"read_files": False},
        {"write_files": False},
        {"unstable": True},
        {"max_line_size": 7},
        {"mode_after_open": "plan"},
        {"missing_file_is_empty": True},
    ],
)
def test_who_wants_another_peer_or_other_terms_gets_another_broker(fields: dict[str, Any]) -> None:
    assert endpoint_name(spec(**fields)) != endpoint_name(spec())


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"LC_CTYPE": "C.UTF-8", "LANG": "de_DE.UTF-8", "LANGUAGE": "de", "LC_ALL": "C"}},
        {"env": {"TERM": "xterm", "SSH_AUTH_SOCK": "/x", "XDG_SESSION_ID": "7"}},
        {"budgets": Budgets(total=1.0)},
        {"ttl": 5.0, "max_idle": 1},
        {"version": "99"},
        {"identity": (FileIdentity(path="/bin/gemini", size=1, mtime_ns=1),)},
        {"parallel": True},
        {"secret_values": ("x",)},
        {"title": "Gemini"},
    ],
)
def test_another_terminal_or_another_version_finds_the_same_broker(fields: dict[str, Any]) -> None:
    assert endpoint_name(spec(**fields)) == endpoint_name(spec())


def test_path_counts_by_its_folders_with_files_and_not_by_their_order(tmp_path: Path) -> None:
    for name in ("one", "two", "bare"):
        (tmp_path / name / "folder").mkdir(parents=True)
        if name != "bare":
            (tmp_path / name / "program").touch()
    one, two, bare = (str(tmp_path / name) for name in ("one", "two", "bare"))

    def named(*folders: str) -> str:
        path = os.pathsep.join(folders)
        return endpoint_name(spec(env={"PATH": path}, search_path=search_path_of(path)))

    assert named(one, two) == named(bare, two, one, one, str(tmp_path / "none"))
    assert named(one, two) != named(one)


def test_terms_differ_where_names_do_and_tell_no_value() -> None:
    one, other = (shared_terms(spec(env={"KEY": value, "A": "1"})) for value in ("x", "y"))
    assert {name for name in one if one[name] != other[name]} == {"KEY"}
    moved = shared_terms(spec(env={"KEY": "x", "A": "1"}, workspace="/v"))
    assert {name for name in one if one[name] != moved[name]} == {"the folder"}
    assert all(len(digest) == 8 for digest in one.values())


def test_the_order_of_variables_does_not_count() -> None:
    one = spec(env={"A": "1", "B": "2"})
    other = spec(env={"B": "2", "A": "1"})
    assert endpoint_name(one) == endpoint_name(other)


def test_the_files_of_a_command_are_known_by_their_real_paths(tmp_path: Path) -> None:
    program = tmp_path / "agent.js"
    program.write_text("one")
    link = tmp_path / "agent"
    link.symlink_to(program)
    command = (str(link), "--acp", "relative", str(tmp_path), str(tmp_path / "none"), "/nul\0")
    [found] = identify_files(command)
    assert (found.path, found.size) == (str(program), 3)
    before = spec(identity=(found,)).identity_digest
    program.write_text("another")
    os.utime(program, ns=(1, 1))
    assert spec(identity=identify_files(command)).identity_digest != before


def test_a_link_to_a_workspace_is_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert real_workspace(tmp_path / "link") == str(tmp_path.resolve())
    assert real_workspace("~no-such-user") == str(Path.cwd() / "~no-such-user")


@pytest.mark.parametrize("word", ["gemini-0123456789ab", "gemini", "gemini-01"])
def test_an_endpoint_is_meant_by_its_name_its_peer_or_a_beginning_with_part_of_the_digest(
    word: str,
) -> None:
    assert is_meant(word, "gemini-0123456789ab", "gemini")
    assert is_meant(word, "gemini-0123456789ab")


@pytest.mark.parametrize("word", ["codex", "codex-", "codex-a", "codex-acp-b", "code", "c", ""])
def test_a_peer_is_not_meant_by_the_beginning_of_its_name(word: str) -> None:
    assert not is_meant(word, "codex-acp-0123456789ab", "codex-acp")
    assert not is_meant(word, "codex-acp-0123456789ab")
