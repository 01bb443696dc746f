"""The hosts in the settings with their last check, and a new check."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.broker.client.ssh_command import Host
from dragoman.config.edit import set_host
from dragoman.console import host_routes
from dragoman.console.json_routes import INTERNAL_PROBLEM
from dragoman.paths import Paths
from tests.aio import aio
from tests.unit.broker.client.fake_ssh import fake_ssh
from tests.unit.console.place import TIMEOUT, console, short_paths, told


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


@aio
async def test_a_host_is_checked_and_its_findings_are_sent(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch)
    paths.config.mkdir(parents=True)
    set_host(paths, "box", {"destination": "me@box.example.org", "workspace": "/src"})
    async with console(paths) as place, place.browser() as client:
        (host,) = (await client.get("/api/v1/hosts")).json()["hosts"]
        assert host["name"] == "box" and host["destination"] == "me@box.example.org"
        assert host["check"] is None and not host["checking"]
        async with place.socket(client) as socket, asyncio.timeout(TIMEOUT):
            await told(socket, "snapshot")
            started = await client.post("/api/v1/hosts/box/check", json={})
            assert started.json() == {"started": True}
            twice = await client.post("/api/v1/hosts/box/check", json={})
            assert twice.status_code == 400 and "already" in twice.json()["message"]
            while host["check"] is None or host["checking"]:
                await told(socket, "peers")
                (host,) = (await client.get("/api/v1/hosts")).json()["hosts"]
        assert "Python" in [each["name"] for each in host["check"]["findings"]]


@aio
async def test_an_unreachable_host_shows_why_and_an_unknown_one_is_refused(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch, "echo 'ssh: connection refused' >&2; exit 255")
    paths.config.mkdir(parents=True)
    set_host(paths, "box", {"destination": "box"})
    async with console(paths) as place, place.browser() as client:
        unknown = await client.post("/api/v1/hosts/bix/check", json={})
        assert unknown.status_code == 400 and "did you mean box" in unknown.json()["message"]
        async with place.socket(client) as socket, asyncio.timeout(TIMEOUT):
            await told(socket, "snapshot")
            await client.post("/api/v1/hosts/box/check", json={})
            problem = ""
            while not problem:
                await told(socket, "peers")
                problem = (await client.get("/api/v1/hosts")).json()["hosts"][0]["problem"]
        assert "box" in problem


@aio
async def test_a_check_of_a_host_that_fails_inside_dragoman_is_not_shown_as_done(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(host: Host, paths: Paths) -> None:
        raise OSError("a path of this machine")

    monkeypatch.setattr(host_routes, "check", broken)
    paths.config.mkdir(parents=True)
    set_host(paths, "box", {"destination": "box"})
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await client.post("/api/v1/hosts/box/check", json={})
            await told(socket, "peers")
            await told(socket, "peers")
        (host,) = (await client.get("/api/v1/hosts")).json()["hosts"]
    assert not host["checking"] and host["problem"] == INTERNAL_PROBLEM
