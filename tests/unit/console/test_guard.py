"""Authorization of requests to the console, over real connections."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from dragoman.paths import Paths
from tests.aio import aio
from tests.docs.test_http_api_reference import served
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
async def test_without_a_token_only_the_static_page_is_served(
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
async def test_other_origins_and_hosts_are_refused_despite_a_valid_cookie(
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
async def test_requests_that_change_something_need_an_origin(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        del client.headers["origin"]
        assert (await client.get("/api/v1/me")).status_code == 200
        assert (await client.post("/api/v1/jobs/j-1/seen", json={})).status_code == 403
        assert (await client.post("/", json={})).status_code == 403


@aio
@pytest.mark.parametrize("server", [True, False])
async def test_a_read_only_browser_cannot_act(
    paths: Paths, server: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(paths, read_only=server) as place:
        async with place.browser("act" if server else "read") as client:
            assert (await client.get("/api/v1/me")).json()["rights"] == "read"
            async with place.socket(client) as socket:
                assert (await told(socket, "snapshot"))["rights"] == "read"
            for path in ACTS:
                assert (await client.post(path, json={})).status_code == 403, path
            # Logging out is allowed.
            assert (await client.post("/api/v1/logout", json={})).status_code == 200
    assert "is read-only" in caplog.text


@aio
async def test_a_cookie_of_another_console_is_refused(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        ((name, value),) = client.cookies.items()
        for cookie in (f"{name}=", f"{name}={value}x", "dragoman-other=" + value, ";;="):
            async with place.client(headers={**place.origin, "cookie": cookie}) as other:
                assert (await other.get("/api/v1/me")).status_code == 401


@aio
async def test_a_cookie_that_belongs_to_a_key_is_refused_without_it(paths: Paths) -> None:
    async with console(paths) as place, place.client() as client:
        sent = {"token": place.secret, "bind": True}
        key = (await client.post("/api/v1/login", json=sent)).json()["key"]
        for wrong in ({}, {"x-dragoman-key": ""}, {"x-dragoman-key": key[1:]}):
            for path in DATA[:-1]:
                assert (await client.get(path, headers=wrong)).status_code == 401
            for path in ACTS:
                assert (await client.post(path, json={}, headers=wrong)).status_code == 401
        for offered in ([], ["dragoman.v1"], ["dragoman.v1", f"dragoman.key.{key[1:]}"]):
            with pytest.raises(InvalidStatus):
                async with place.socket(client, offered):
                    pass
        assert (await client.get("/api/v1/me", headers={"x-dragoman-key": key})).status_code == 200
        async with place.socket(client, ["dragoman.v1", f"dragoman.key.{key}"]) as socket:
            assert (await told(socket, "snapshot"))["rights"] == "act"


@aio
async def test_malformed_cookies_of_other_programs_on_this_host_change_nothing(
    paths: Paths,
) -> None:
    async with console(paths) as place, place.browser() as client:
        ((name, value),) = client.cookies.items()
        for other in ('a={"b": "c"}', "a b=c", "=", "\x80=1", f"{name}=wrong", "x" * 3000):
            for cookie in (f"{other}; {name}={value}", f"{name}={value}; {other}"):
                headers = {**place.origin, "cookie": cookie.encode("latin-1")}
                async with place.client(headers=headers) as browser:
                    assert (await browser.get("/api/v1/me")).status_code == 200, other


@aio
async def test_every_request_of_the_api_is_authorized(paths: Paths, tmp_path: Path) -> None:
    requests = [each.split(" ") for each in sorted(served(tmp_path)) if "/events" not in each]
    assert len(requests) > 30
    async with console(paths) as place, place.browser("read") as reads, place.client() as none:

        async def status(client: Any, method: str, path: str, **headers: str) -> int:
            sent = {**place.origin, **headers}
            answer = await client.request(method, path, json={}, headers=sent)
            return int(answer.status_code)

        for method, route in requests:
            path = re.sub(r"{\w+}", "x", route)
            if path != "/api/v1/login":
                assert await status(none, method, path) == 401, path
            assert await status(reads, method, path, origin="http://example.org") == 403, path
            assert await status(reads, method, path, host="example.org") == 421, path
            same_site = {"sec-fetch-site": "same-site"}
            assert await status(reads, method, path, **same_site) == 403, path
            if method == "POST" and path not in ("/api/v1/login", "/api/v1/logout"):
                assert await status(reads, method, path) == 403, path
                # A header does not change the method of a request.
                override = {"x-http-method-override": "GET"}
                assert await status(reads, method, path, **override) == 403, path
        # Methods that no route has are not a way around.
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
            answer = await reads.request(method, "/api/v1/work")
            assert answer.status_code == 403, method


@aio
async def test_no_secret_reaches_the_log(paths: Paths, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dragoman")
    async with console(paths) as place, place.browser() as client:
        assert (await client.get(f"/api/v1/nothing?token={place.secret}")).status_code == 404
        await client.post("/api/v1/login", json={"token": place.secret + "x"})
        ((_, value),) = client.cookies.items()
    assert place.secret not in caplog.text and value not in caplog.text
