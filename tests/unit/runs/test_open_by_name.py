"""A peer by its name: the settings count, and so do the caller's words."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.broker.client import connect
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.open import open_peer
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer
from dragoman.client.options import ConnectOptions
from dragoman.errors import UnknownPeer
from dragoman.paths import VARIABLES
from dragoman.runs.open_by_name import open_named
from tests.aio import aio
from tests.unit.config.folders import write

AGENT = (
    "import json, os, sys; id = json.loads(sys.stdin.readline())['id']; "
    "name = ','.join(str(os.environ.get(n)) for n in ('A_KEY', 'B_KEY', 'C'))\n"
    "result = {'protocolVersion': 1, 'agentInfo': {'name': name, 'version': '1'}}\n"
    "print(json.dumps({'jsonrpc': '2.0', 'id': id, 'result': result}), flush=True)\n"
    "sys.stdin.read()"
)
"""Calls itself by what it sees of its environment."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with one peer, which may see one variable more than it asks for."""
    for name, variable in VARIABLES.items():
        monkeypatch.setenv(variable, str(tmp_path / name))
    for name in ("A_KEY", "B_KEY"):
        monkeypatch.setenv(name, name.lower())
    command = json.dumps([sys.executable, "-c", AGENT])
    text = f'name = "mine"\ntitle = "Mine"\nprotocol = "acp"\n[[launch]]\ncommand = {command}\n'
    write(tmp_path / "config" / "peers" / "mine.toml", text)
    write(
        tmp_path / "config" / "config.toml",
        'max_line_size = 5000\n[timeouts]\nrequest = 7\n[peer.mine]\nenv = ["A_KEY"]\n',
    )
    return tmp_path


@aio
async def test_a_users_peer_is_opened_by_its_name_with_the_users_settings(home: Path) -> None:
    async with open_named("mine", workspace=home) as peer:
        assert peer.info.name == "a_key,None,None"
        assert peer.client.budgets.request == 7.0
        assert peer.client.options.max_line_size == 5000


@aio
async def test_what_the_caller_says_goes_before_the_settings(home: Path) -> None:
    async with dragoman.connect(
        "mine",
        workspace=home,
        inherit=["B_KEY"],
        env={"C": "c"},
        budgets=Budgets(request=3.0),
        max_line_size=9000,
        dialect="auto",
    ) as peer:
        assert peer.info.name == "a_key,b_key,c"
        assert peer.client.budgets.request == 3.0
        assert peer.client.options.max_line_size == 9000


def test_a_program_without_a_loop_has_names_too(home: Path) -> None:
    with dragoman.connect_sync("mine", workspace=home) as peer:
        assert peer.info.name == "a_key,None,None"


class Warm:
    """In the place of `open_warm`: remembers what it was asked for, and starts nothing warm."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[dict[str, Any]] = []
        monkeypatch.setattr(connect, "open_warm", self._open)

    @asynccontextmanager
    async def _open(
        self, way: LaunchSpec, options: ConnectOptions, *, workspace: Path, **broker: Any
    ) -> AsyncIterator[Peer]:
        self.asked.append(broker)
        async with open_peer(way, options, workspace=workspace) as peer:
            yield peer


@pytest.mark.parametrize(
    ("settings", "warm", "used"),
    [
        ("", None, True),
        ("warm = false\n", None, False),
        ("warm = false\n", True, True),
        ("", False, False),
    ],
)
@aio
async def test_the_caller_and_else_the_settings_say_whether_a_broker_is_used(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: str,
    warm: bool | None,
    used: bool,
) -> None:
    monkeypatch.delenv("DRAGOMAN_WARM")
    write(home / "config" / "config.toml", settings)
    brokers = Warm(monkeypatch)
    async with open_named("mine", workspace=home, warm=warm) as peer:
        assert peer.info.version == "1"
    assert bool(brokers.asked) is used


@aio
async def test_a_broker_gets_an_idle_timeout_only_if_one_is_set(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = Warm(monkeypatch)
    for settings in ("", "ttl = 5\nmax_idle_brokers = 1\n"):
        write(home / "config" / "config.toml", settings)
        async with open_named("mine", ConnectOptions(name="a program"), workspace=home, warm=True):
            pass
    assert [(asked["ttl"], asked["max_idle"]) for asked in brokers.asked] == [(None, 4), (5.0, 1)]
    assert brokers.asked[0]["paths"].runtime == home / "runtime"


@aio
async def test_a_name_that_is_none_starts_nothing_and_names_the_nearest(home: Path) -> None:
    with pytest.raises(UnknownPeer, match="did you mean mine"):
        async with dragoman.connect("mien", workspace=home):
            pass
