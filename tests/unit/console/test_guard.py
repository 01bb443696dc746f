"""Who is let in to the console, with which rights: over real connections."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus

from dragoman.paths import Paths
from tests.aio import aio
from tests.unit.console.place import console, short_paths, told

DATA = ("/api/v1/me", "/api/v1/inbox", "/api/v1/work", "/api/v1/peers", "/api/v1/sessions/s-1")
ACTS = (
    "/api/v1/runs",
    "/api/v1/delegations",
    "/api/v1/questions/1/answer",
    "/api/v1/sessions/s-1/prompt",
    "/api/v1/sessions/s-1/handover",
    "/api/v1/jobs/j-1/cancel",
    "/api/v1/jobs/j-1/seen",
)


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


@aio
async def test_without_a_token_there_is_the_shell_and_no_data(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(paths) as place, place.client() as client:
        assert (await client.get("/")).status_code == 200
        assert (await client.get("/static/main.js")).status_code == 200
        for path in DATA:
            assert (await client.get(path)).status_code == 401, path
        for path in ACTS:
            assert (await client.post(path, json={})).status_code == 401, path
        with pytest.raises(InvalidStatus):
            async with place.socket(client):
                pass
    refused = [record for record in caplog.records if "refused" in record.getMessage()]
    assert len(refused) == len(DATA) + len(ACTS) + 1


@aio
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://example.org"},
        {"origin": "null"},
        {"origin": ""},
        {"host": "example.org"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_other_origins_and_names_are_refused_with_a_good_cookie(
    paths: Paths, headers: dict[str, str]
) -> None:
    async with console(paths) as place, place.browser() as client:
        assert (await client.get("/api/v1/me")).status_code == 200
        sent = {**place.origin, **headers}
        answer = await client.post("/api/v1/jobs/j-1/seen", json={}, headers=sent)
        assert answer.status_code in (403, 421)
        if "origin" not in headers:
            assert (await client.get("/api/v1/me", headers=sent)).status_code in (403, 421)
        with pytest.raises(InvalidStatus):
            async with place.socket(client, **headers):
                pass


@aio
async def test_what_changes_something_needs_an_origin(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        del client.headers["origin"]
        assert (await client.get("/api/v1/me")).status_code == 200
        assert (await client.post("/api/v1/jobs/j-1/seen", json={})).status_code == 403
        assert (await client.post("/", json={})).status_code == 403


@aio
@pytest.mark.parametrize("server", [True, False])
async def test_one_who_may_read_cannot_act(
    paths: Paths, server: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(paths, read_only=server) as place:
        async with place.browser("act" if server else "read") as client:
            assert (await client.get("/api/v1/me")).json()["rights"] == "read"
            async with place.socket(client) as socket:
                assert (await told(socket, "snapshot"))["rights"] == "read"
            for path in ACTS:
                assert (await client.post(path, json={})).status_code == 403, path
            # Leaving is not an act.
            assert (await client.post("/api/v1/logout", json={})).status_code == 200
    assert "may only read" in caplog.text


@aio
async def test_a_cookie_of_another_console_counts_for_nothing(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        ((name, value),) = client.cookies.items()
        for cookie in (f"{name}=", f"{name}={value}x", "dragoman-other=" + value, ";;="):
            async with place.client(headers={**place.origin, "cookie": cookie}) as other:
                assert (await other.get("/api/v1/me")).status_code == 401


@aio
async def test_no_secret_reaches_the_log(paths: Paths, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dragoman")
    async with console(paths) as place, place.browser() as client:
        assert (await client.get(f"/api/v1/nothing?token={place.secret}")).status_code == 404
        await client.post("/api/v1/login", json={"token": place.secret + "x"})
        ((_, value),) = client.cookies.items()
    assert place.secret not in caplog.text and value not in caplog.text
