"""The page and the HTTP API of the console."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

import dragoman.console
from dragoman.config.safe_files import locked
from dragoman.console import app
from dragoman.console.app import content_policy, static_files
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.console.place import console, short_paths, told

STATIC = Path(dragoman.console.__file__).parent / "static"


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


@aio
async def test_the_page_has_a_strict_content_security_policy(paths: Paths) -> None:
    async with console(paths) as place, place.client() as client:
        answer = await client.get("/")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-dns-prefetch-control"] == "off"
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/vendor/", "/other"):
            assert (await client.get(path)).status_code == 404, path


def test_the_policy_allows_only_the_import_map_as_inline_script() -> None:
    page = (STATIC / "index.html").read_bytes()
    scripts = re.findall(rb"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    inline = [script for script in scripts if script]
    assert len(inline) == 1
    imports = json.loads(inline[0])["imports"]
    assert all(path.removeprefix("/static/") in static_files() for path in imports.values())
    assert "sha256-" in content_policy(page)
    assert "sha256-" not in content_policy(b"<p>nothing</p>")


def test_the_page_loads_nothing_from_other_hosts_never_sets_html_and_stores_only_its_key() -> None:
    for name, data in static_files().items():
        if name.startswith("vendor/"):
            continue
        text = data.decode()
        found = re.findall(r"https?://[^\s\"'\\)`/]+", text)
        assert set(found) <= {"http://www.w3.org"}, name
        words = ["innerHTML", "insertAdjacentHTML", "document.write", "eval(", "sessionStorage"]
        if name != "login_key.js":
            words.append("localStorage")
        for word in words:
            assert word not in text, (name, word)


def test_vendored_files_match_the_published_ones() -> None:
    vendor = STATIC / "vendor"
    record = json.loads((vendor / "vendor.json").read_text())
    listed = {"vendor.json"}
    for package in record["packages"]:
        assert package["version"] and package["licence"] and len(package["tarballSha256"]) == 64
        for file in package["files"]:
            listed.add(file["file"])
            digest = hashlib.sha256((vendor / file["file"]).read_bytes()).hexdigest()
            assert digest == file["sha256"], file["file"]
    assert listed == {path.name for path in vendor.iterdir()}


@aio
async def test_a_link_is_exchanged_once_for_a_cookie_that_scripts_cannot_read(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(paths) as place, place.client() as client:
        answer = await client.post("/api/v1/login", json={"token": place.secret})
        assert answer.json()["rights"] == "act"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{place.access.cookie}=")
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" not in cookie
        assert (await client.get("/api/v1/me")).json()["id"] == answer.json()["id"]
        again = await client.post("/api/v1/login", json={"token": place.secret})
        assert again.status_code == 401 and again.json()["error"] == "link_invalid"
        assert (await client.post("/api/v1/logout", json={})).status_code == 200
        assert (await client.get("/api/v1/me")).status_code == 401
    assert "refused a login" in caplog.text


@aio
async def test_a_login_and_a_logout_that_wait_for_a_lock_do_not_stop_the_loop(
    paths: Paths,
) -> None:
    async with console(paths) as place, place.client() as client, place.client() as other:
        tasks = TaskOwner("test")
        for path, body in (("login", {"token": place.secret}), ("logout", {})):
            with locked(place.access.path):
                waiting = tasks.start(client.post(f"/api/v1/{path}", json=body), path)
                for _ in range(3):
                    assert (await other.get("/api/v1/me")).status_code == 401
                assert not waiting.done()
            assert (await waiting).status_code == 200


@aio
async def test_invalid_requests_get_an_error_that_says_what_is_wrong(
    paths: Paths, tmp_path: Path
) -> None:
    work = {"role": "review", "prompt": "x", "workspace": str(tmp_path)}
    run = {"peer": "scout", "prompt": "x", "workspace": str(tmp_path)}
    async with console(paths) as place, place.browser() as client:
        for path, body, status, word in (
            ("/api/v1/runs", run | {"workspace": "relative"}, 400, "not an absolute path"),
            ("/api/v1/runs", run | {"workspace": "/missing"}, 400, "not a directory"),
            ("/api/v1/runs", run | {"peer": "missing"}, 400, "missing"),
            ("/api/v1/runs", run | {"prompt": 3}, 400, "prompt"),
            ("/api/v1/delegations", work | {"workspace": "relative"}, 400, "not an absolute path"),
            ("/api/v1/delegations", work | {"role": "nonsense"}, 400, "nonsense"),
            ("/api/v1/delegations", work | {"prompt": " "}, 400, "empty"),
            ("/api/v1/sessions/s-1/prompt", {"text": "x"}, 404, "no session"),
            ("/api/v1/sessions/s-1/handover", {"peer": "scout", "text": "x"}, 404, "no session"),
            ("/api/v1/jobs/j-1/cancel", {}, 404, "no job"),
            ("/api/v1/questions/1/answer", {"digest": "x"}, 409, "already answered"),
        ):
            answer = await client.post(path, json=body)
            assert answer.status_code == status, answer.text
            assert word in answer.json()["message"], answer.text
        assert (await client.post("/api/v1/runs", content=b"{")).status_code == 400
        assert (await client.get("/api/v1/sessions/s-1")).status_code == 404
        assert (await client.get("/api/v1/work")).json() == {"work": []}
        assert (await client.get("/api/v1/inbox")).json() == {"questions": []}
        assert "scout" in (await client.get("/api/v1/peers")).json()["peers"]


@aio
async def test_responses_must_not_be_cached(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        answer = await client.get("/api/v1/work")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-type"] == "application/json"


@aio
async def test_the_number_of_open_websockets_is_limited(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_SOCKETS", 1)
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await told(socket, "snapshot")
            with pytest.raises(InvalidStatus):
                async with place.socket(client):
                    pass
