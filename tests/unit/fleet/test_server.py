"""The server's configuration and program. The running server is tested in tests/fleet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from msgspec import structs

from dragoman.broker.lock import try_lock
from dragoman.errors import FleetError, UsageError
from dragoman.fleet import server
from dragoman.fleet.server import (
    LOCK,
    FleetServer,
    ServerOptions,
    configuration,
    find_server,
    last_error,
    parse_listen,
    prepared,
    tell_server,
    wants_tls,
)
from dragoman.fleet.team import FleetFolder
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio


def options(**more: object) -> ServerOptions:
    return structs.replace(ServerOptions(host="127.0.0.1", port=4222), **more)


def text(folder: FleetFolder, wanted: ServerOptions) -> str:
    keys = prepared(folder, wanted)
    return configuration(
        keys,
        folder.path,
        listen=f"{wanted.host}:{wanted.port}",
        sync=wanted.sync,
        now=1,
        ports=folder.path / "ports",
    )


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("LocalHost", True), ("::1", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_only_a_server_on_loopback_may_be_plain(host: str, loopback: bool) -> None:
    assert wants_tls(options(host=host)) is not loopback


def test_a_server_without_tls_on_a_non_loopback_address_is_refused() -> None:
    with pytest.raises(UsageError, match="TLS is required"):
        wants_tls(options(host="192.0.2.7", tls=False))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_a_name_for_every_address_no_member_could_connect(
    tmp_path: Path, host: str
) -> None:
    folder = FleetFolder(tmp_path / "fleet")
    with pytest.raises(UsageError, match="needs --name"):
        prepared(folder, options(host=host))
    assert not folder.path.exists()


@pytest.mark.parametrize("name", ["", "bücher.example", "two words"])
def test_a_name_that_no_certificate_can_have_is_refused(tmp_path: Path, name: str) -> None:
    folder = FleetFolder(tmp_path / "fleet")
    with pytest.raises(UsageError, match="--name takes a host name or address"):
        prepared(folder, options(host="192.0.2.7", names=(name,)))
    assert not folder.path.exists()


def test_an_address_is_host_and_port() -> None:
    assert parse_listen("127.0.0.1:4222") == ("127.0.0.1", 4222)
    assert parse_listen("[::1]:0") == ("::1", 0)
    for wrong in ("", "4222", "host:", ":1", "host:port", "host:70000"):
        with pytest.raises(UsageError, match="ADDRESS:PORT"):
            parse_listen(wrong)


def test_the_configuration_has_tls_for_the_given_names(tmp_path: Path) -> None:
    folder = FleetFolder(tmp_path / "fleet")
    told = text(folder, options(host="0.0.0.0", names=("fleet.example",)))
    assert "tls {" in told and "server.key" in told
    assert folder.read().tls_names == ("fleet.example",)
    again = prepared(folder, options(host="0.0.0.0", names=("fleet.example",)))
    assert again.tls == folder.read().tls


def test_the_loopback_configuration_has_no_tls_and_accounts_for_each_team(tmp_path: Path) -> None:
    folder = FleetFolder(tmp_path / "fleet")
    told = text(folder, options(teams=("red", "blue"), sync="always"))
    assert "tls {" not in told and "sync_interval: always" in told
    assert [one.name for one in folder.read().teams] == ["red", "blue"]
    # Two accounts of each team, and the system account.
    preload = told.partition("resolver_preload {")[2].partition("}")[0].strip().splitlines()
    assert len(preload) == 5


def test_keys_and_teams_are_kept_between_starts(tmp_path: Path) -> None:
    folder = FleetFolder(tmp_path / "fleet")
    first = prepared(folder, options())
    assert prepared(folder, options()) == first
    assert [one.name for one in first.teams] == ["team"]


@aio
async def test_a_program_that_is_too_old_or_not_nats_server_is_rejected(tmp_path: Path) -> None:
    for name, said in (("old", "nats-server: v2.10.3"), ("other", "hello")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{said}'\n")
        program.chmod(0o755)
        with pytest.raises(UsageError, match="too old|is not a nats-server"):
            await find_server(str(program))


KILLED = """#!/bin/sh
if [ "$1" != -c ]; then echo 'nats-server: v2.12.0'; exit; fi
cd "$(dirname "$2")/ports"
printf '{"nats": ["nats://127.0.0.1:1"]}' > new && mv new 1.ports
kill -9 $$
"""
"""A server that is killed after it wrote its port. Nothing listens there."""


@aio
async def test_a_server_that_is_killed_while_it_starts_is_not_waited_for(tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.write_text(KILLED)
    program.chmod(0o755)
    started = FleetServer(FleetFolder(tmp_path / "fleet"), options(program=str(program)))
    with pytest.raises(FleetError, match="was killed by signal 9"):
        async with started:
            pass


@aio
async def test_the_lock_is_held_until_the_server_has_ended(tmp_path: Path) -> None:
    ended = asyncio.Event()

    class Slow:
        async def aclose(self) -> None:
            await ended.wait()

    server = FleetServer(FleetFolder(tmp_path), options())
    server._stream = cast(Any, Slow())
    server._lock = try_lock(tmp_path / LOCK)
    leaving = TaskOwner("test").start(server.__aexit__(None, None, None), "leave")
    await asyncio.sleep(0)
    leaving.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert try_lock(tmp_path / LOCK) is None
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    again = try_lock(tmp_path / LOCK)
    assert again is not None
    again.release()


@aio
async def test_the_lock_is_released_even_if_the_server_cannot_be_ended(tmp_path: Path) -> None:
    class Stuck:
        async def aclose(self) -> None:
            raise RuntimeError("cannot be ended")

    server = FleetServer(FleetFolder(tmp_path), options())
    server._stream = cast(Any, Stuck())
    server._lock = try_lock(tmp_path / LOCK)
    with pytest.raises(RuntimeError, match="cannot be ended"):
        await server.__aexit__(None, None, None)
    again = try_lock(tmp_path / LOCK)
    assert again is not None
    again.release()


class _AnsweringServer:
    """Stands in for the connection to a server that answers every request."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *more: object) -> None: ...

    async def request(self, subject: str, data: bytes, *, changes: bool) -> Any:
        # If it does not answer, it may have applied the revocation.
        assert changes
        return SimpleNamespace(data=self._answer)


@aio
@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (b'{"server": {}, "data": {"code": 200}}', ""),
        (b'{"server": {}, "error": {"code": 500, "description": "no"}}', "revocation: no$"),
        (b'{"server": {}, "error": "no"}', "revocation: no$"),
        (b"[]", r"invalid fleet data \(ClaimsReply\)"),
        (b"nonsense", r"invalid fleet data \(ClaimsReply\)"),
    ],
)
async def test_a_revocation_counts_only_if_the_server_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, refused: str
) -> None:
    monkeypatch.setattr(server, "FleetConnection", lambda access: _AnsweringServer(answer))
    keys = prepared(FleetFolder(tmp_path / "fleet"), options())
    if not refused:
        await tell_server(keys, keys.teams[0])
        return
    with pytest.raises(FleetError, match=refused) as caught:
        await tell_server(keys, keys.teams[0])
    # An answer that cannot be read does not say that the token was not applied.
    assert caught.value.may_have_run is refused.startswith("invalid")


def test_the_reason_for_a_server_that_does_not_start_is_its_last_error() -> None:
    log = "[1] x [INF] Starting\n[1] x [FTL] address already in use\n[1] x [INF] Exiting\n"
    assert last_error(log) == "address already in use"
    assert last_error("nothing known\n") == "nothing known"
