"""The addresses that the console listens on, and its shutdown."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from dragoman.console.app import ConsoleApp
from dragoman.console.live_state import LiveState
from dragoman.console.server import ConsoleOptions, check_names, parse_listen, require_safe
from dragoman.errors import AddressInUse, UsageError
from dragoman.paths import Paths
from dragoman.transports.tls import TlsFiles
from tests.aio import aio
from tests.certificates import make_certificate
from tests.unit.console.place import console, short_paths, told


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:8730", ("::1", 8730)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, found: tuple[str, int]) -> None:
    assert parse_listen(text) == found


@pytest.mark.parametrize(
    "text", ["", "8730", "127.0.0.1", "127.0.0.1:x", "a.b:1", "127.0.0.1:99999"]
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--listen"):
        parse_listen(text)


def test_an_address_that_other_machines_can_reach_requires_tls(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="requires TLS"):
        require_safe(ConsoleOptions(host="0.0.0.0"))
    require_safe(ConsoleOptions(host="::1"))
    tls = TlsFiles(certificate=tmp_path / "a", key=tmp_path / "b")
    require_safe(ConsoleOptions(host="0.0.0.0", tls=tls))


@aio
async def test_with_tls_the_cookie_is_for_tls_only(paths: Paths, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = TlsFiles(certificate=certificate, key=key)
    trusted = ssl.create_default_context(cafile=str(certificate))
    async with console(paths, tls=tls) as place:
        assert place.url.startswith("https://")
        async with httpx2.AsyncClient(
            base_url=place.url, verify=trusted, headers=place.origin, trust_env=False
        ) as client:
            answer = await client.post("/api/v1/login", json={"token": place.secret})
            assert "Secure" in answer.headers["set-cookie"]


@aio
async def test_an_additional_host_name_is_accepted(paths: Paths) -> None:
    check_names(("phone.example", "phone:8730", "[::1]:8730"))
    async with console(paths, names=("phone.example",)) as place:
        headers = {"host": "phone.example", "origin": "https://phone.example"}
        async with place.client(headers=headers) as client:
            answer = await client.post("/api/v1/login", json={"token": place.secret})
            assert answer.status_code == 200


@aio
async def test_a_login_survives_a_restart_of_the_server(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        cookies = dict(client.cookies)
    async with console(paths) as place, place.client(cookies=cookies) as client:
        assert (await client.get("/api/v1/me")).status_code == 200


@aio
async def test_a_page_that_reconnects_while_the_console_starts_is_not_refused_as_a_stranger(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(paths) as place, place.browser() as client:
        cookies = dict(client.cookies)
    start = LiveState.start
    answers: list[int] = []

    async def reconnecting(state: LiveState) -> None:
        async with place.client(cookies=cookies) as client:
            with pytest.raises(httpx2.ConnectError):
                answers.append((await client.get("/api/v1/me")).status_code)
        await start(state)

    monkeypatch.setattr(LiveState, "start", reconnecting)
    async with console(paths, port=place.port), place.client(cookies=cookies) as client:
        answers.append((await client.get("/api/v1/me")).status_code)
    assert answers == [200]
    assert "refused" not in caplog.text


@aio
async def test_the_console_ends_while_browsers_are_connected(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        socket = await place.socket(client)
        await told(socket, "snapshot")
    await socket.wait_closed()
    assert socket.close_code == 1001


@aio
async def test_a_port_in_use_is_named_in_the_error(paths: Paths) -> None:
    async with console(paths) as place:
        with short_paths() as others, pytest.raises(AddressInUse, match=str(place.port)):
            async with console(others, port=place.port):
                pass


@aio
async def test_everything_is_closed_even_if_one_part_cannot_be(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[LiveState] = []
    close = LiveState.aclose

    async def closing(state: LiveState) -> None:
        await close(state)
        closed.append(state)

    async def failing(app: ConsoleApp) -> None:
        raise RuntimeError("cannot stop")

    monkeypatch.setattr(LiveState, "aclose", closing)
    monkeypatch.setattr(ConsoleApp, "aclose", failing)
    with pytest.raises(RuntimeError, match="cannot stop"):
        async with console(paths):
            pass
    assert len(closed) == 1
