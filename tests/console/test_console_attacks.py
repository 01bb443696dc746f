"""Attacks on a running console by a hostile page, another local user or a hostile client.

Every refused request is also logged by the command.
"""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import os
import queue
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.console.conftest import TIMEOUT, Served, Tabs, request, serving, wait_until
from tests.integration.cli_shell import Cli

KEY = base64.b64encode(b"0123456789abcdef").decode()


class Web:
    """An HTTP client that can send arbitrary requests to a console."""

    def __init__(self, served: Served) -> None:
        self.served = served
        place = urlsplit(served.url)
        self.host, self.port = place.hostname or "", place.port or 0
        self.name = f"{self.host}:{self.port}"
        self.cookie = ""

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT)
        sent = {"Host": self.name, "Origin": f"http://{self.name}", "Cookie": self.cookie}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {k: v for k, v in sent.items() if v})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            return answer.status, text, {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()

    def login(self, link: str) -> int:
        secret = link.partition("#token=")[2]
        status, _, headers = self.request("POST", "/api/v1/login", {"token": secret})
        self.cookie = headers.get("set-cookie", "").partition(";")[0]
        return status

    @contextmanager
    def raw(self, data: bytes) -> Iterator[socket.socket]:
        with socket.create_connection((self.host, self.port), TIMEOUT) as connection:
            # The server may refuse and close before it has read everything. Its answer is there.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            yield connection

    @contextmanager
    def web_socket(self, **headers: str) -> Iterator[tuple[int, socket.socket]]:
        sent = {"Host": self.name, "Origin": f"http://{self.name}", "Cookie": self.cookie}
        sent |= {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        sent |= {"Sec-WebSocket-Key": KEY} | headers
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value)
        with self.raw(f"GET /api/v1/events HTTP/1.1\r\n{lines}\r\n".encode()) as connection:
            head = b""
            while b"\r\n\r\n" not in head:
                part = connection.recv(1)
                if not part:
                    break
                head += part
            yield int(head.split(b" ")[1]), connection


def answer_of(connection: socket.socket) -> bytes:
    """Everything received until the server closes the connection."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def logged(served: Served, *words: str) -> None:
    """Wait for a log line that contains all these words."""

    def is_there() -> bool:
        return any(all(word in line for word in words) for line in list(served.log))

    wait_until(is_there, lambda: (words, served.log))


@pytest.fixture
def web(console: Served) -> Web:
    made = Web(console)
    assert made.login(console.link) == 200
    return made


def test_a_page_of_another_origin_is_refused_and_logged(console: Served, web: Web) -> None:
    for origin in ("http://evil.example", "null", f"https://{web.name}", f"http://{web.name}.x"):
        assert web.request("GET", "/api/v1/work", Origin=origin)[0] == 403
        assert web.request("POST", "/api/v1/runs", {}, Origin=origin)[0] == 403
        with web.web_socket(Origin=origin) as (status, _):
            assert status == 403
    assert web.request("GET", "/api/v1/work", Sec_Fetch_Site="cross-site")[0] == 403
    logged(console, "refused GET", "403")
    logged(console, "refused WEBSOCKET", "403")
    logged(console, "refused POST", "403")
    # Requests without an Origin may not act.
    assert web.request("POST", "/api/v1/runs", {}, Origin="")[0] == 403
    with web.web_socket(Origin="") as (status, _):
        assert status == 403


def test_another_host_name_is_refused_and_logged(console: Served, web: Web) -> None:
    for host in ("evil.example", f"evil.example:{web.port}", "127.0.0.1", f"0.0.0.0:{web.port}"):
        assert web.request("GET", "/", Host=host)[0] == 421
        with web.web_socket(Host=host) as (status, _):
            assert status == 403
    # Proxy headers are ignored.
    status, _, _ = web.request("GET", "/", Host="evil.example", X_Forwarded_Host=web.name)
    assert status == 421
    logged(console, "refused GET", "421")
    with web.raw(
        f"GET / HTTP/1.1\r\nHost: {web.name}\r\nHost: evil.example\r\n\r\n".encode()
    ) as connection:
        assert answer_of(connection).split(b" ")[1] in (b"400", b"421")
    with web.raw(
        f"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example:{web.port}\r\n"
        "Connection: close\r\n\r\n".encode()
    ) as connection:
        assert answer_of(connection).split(b" ")[1] in (b"400", b"404", b"421")


def test_requests_without_a_token_get_no_data_and_are_logged(console: Served) -> None:
    web = Web(console)
    for cookie in ("", "dragoman-x=guess", "dragoman-" + "x" * 5000):
        web.cookie = cookie
        assert web.request("GET", "/api/v1/work")[0] == 401
        with web.web_socket() as (status, _):
            assert status == 403
    assert web.login("#token=guess") == 401
    logged(console, "refused GET", "401")
    logged(console, "refused a login")


def test_a_used_or_expired_link_is_refused_and_logged(console: Served) -> None:
    web = Web(console)
    assert web.login(console.link) == 200
    assert web.login(console.link) == 401
    logged(console, "refused a login", "unknown or was used")
    link = console.new_link()
    (file,) = console.cli.home.rglob("console.json")
    record = json.loads(file.read_text())
    for each in record["links"]:
        each["expiresAt"] = time.time() - 1
    file.write_text(json.dumps(record))
    assert not any("has expired" in line for line in console.log)
    assert web.login(link) == 401
    logged(console, "refused a login", "has expired")
    # Trying it does not make it valid.
    assert web.login(link) == 401


def test_a_read_only_token_cannot_act_and_its_attempts_are_logged(console: Served) -> None:
    web = Web(console)
    assert web.login(console.new_link("--read-only")) == 200
    assert web.request("GET", "/api/v1/work")[0] == 200
    for path in ("runs", "delegations", "questions/x/answer", "jobs/x/cancel", "jobs/x/seen"):
        assert web.request("POST", f"/api/v1/{path}", {})[0] == 403
    for path in (
        "sessions/x/prompt",
        "sessions/x/handover",
        "sessions/x/check",
        "sessions/x/apply",
    ):
        assert web.request("POST", f"/api/v1/{path}", {})[0] == 403
    for path in ("comments", "comments/y/delete", "send"):
        assert web.request("POST", f"/api/v1/sessions/x/review/{path}", {})[0] == 403
    for path in ("verify", "verify/stop", "enable", "disable", "unpark"):
        assert web.request("POST", f"/api/v1/peers/page/{path}", {})[0] == 403
    for path in ("peers/status", "ledger", "peers", "inbox"):
        assert web.request("GET", f"/api/v1/{path}")[0] == 200
    logged(console, "refused POST", "this token, or the whole console, is read-only")


def test_revoking_a_token_closes_its_sockets_and_later_requests_are_logged(
    console: Served, web: Web
) -> None:
    with web.web_socket() as (status, connection):
        assert status == 101
        assert console.cli.child("console", "tokens", "revoke", "all").code == 0
        closed(connection)
    assert web.request("GET", "/api/v1/work")[0] == 401
    logged(console, "was revoked")
    logged(console, "refused GET", "401")


def closed(connection: socket.socket) -> None:
    """Wait for a close frame with code 1008."""
    found = b""
    while b"\x88\x02\x03\xf0" not in found:
        part = connection.recv(65536)
        assert part, found[-200:]
        found += part


def test_without_a_readable_token_file_every_browser_is_refused_and_the_console_recovers(
    console: Served, web: Web
) -> None:
    (file,) = console.cli.home.rglob("console.json")
    good = file.read_text()
    with web.web_socket() as (status, connection):
        assert status == 101
        file.write_text("{")
        closed(connection)
    assert web.request("GET", "/api/v1/work")[0] == 503
    assert web.request("GET", "/")[0] == 200
    logged(console, "closing all connections", "console.json")
    file.write_text(good)
    with web.web_socket() as (status, connection):
        assert status == 101
        # The remedy that `console link` names for a damaged file.
        file.unlink()
        closed(connection)
    assert web.request("GET", "/api/v1/work")[0] == 401
    assert web.login(console.new_link()) == 200
    works(web)
    assert not any("Traceback" in line for line in console.log)


def test_other_machines_are_served_over_tls_only(cli: Cli, tmp_path: Path) -> None:
    refused = cli.child("console", "--listen", "0.0.0.0:0")
    assert refused.code == 2 and "requires TLS" in refused.err, refused.err
    subject = ["-subj", "/CN=localhost", "-days", "2", "-nodes", "-newkey", "rsa:2048"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(["openssl", "req", "-x509", *subject, *files], check=True, capture_output=True)
    options = ("--tls-cert", files[3], "--tls-key", files[1], "--name", "localhost:1")
    with serving(cli, *options, listen="0.0.0.0:0") as served:
        assert served.url.startswith("https://0.0.0.0:")
        port = urlsplit(served.url).port or 0
        plain = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        with plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n")
            assert b"200" not in answer_of(plain)
        context = ssl.create_default_context(cafile=files[3])
        context.check_hostname = False
        inner = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        with context.wrap_socket(inner, server_hostname="localhost") as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n")
            assert b" 200 " in connection.recv(65536)


def test_no_path_leads_outside_the_static_files(web: Web) -> None:
    for path in (
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/static/index.html%00.js",
        "/etc/passwd",
        "/static/__init__.py",
        "//evil.example/%2e%2e",
    ):
        status, text, _ = web.request("GET", path)
        assert status == 404, path
        assert "root:" not in text and "import" not in text
    # Static files cannot be changed either.
    assert web.request("PUT", "/static/main.js", {})[0] == 405
    assert web.request("DELETE", "/", {})[0] == 405


def works(web: Web) -> None:
    assert web.request("GET", "/api/v1/me")[0] == 200


def test_a_huge_malformed_or_endless_body_does_no_harm(web: Web) -> None:
    head = (
        f"POST /api/v1/runs HTTP/1.1\r\nHost: {web.name}\r\nOrigin: http://{web.name}\r\n"
        f"Cookie: {web.cookie}\r\n"
    ).encode()
    with web.raw(head + b"Content-Length: 99999999999\r\n\r\n" + b"x" * 100_000) as connection:
        assert b" 413 " in answer_of(connection)
    both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    hidden = b"GET /api/v1/work HTTP/1.1\r\n\r\n"
    with web.raw(head + both + hidden) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert answer_of(connection).count(b"HTTP/1.1 200") == 0
    for size in (b"-1", b"1e9", b"5, 6"):
        with web.raw(head + b"Content-Length: " + size + b"\r\n\r\n{}") as connection:
            connection.shutdown(socket.SHUT_WR)
            assert b" 400 " in answer_of(connection)
    long = {"peer": "x" * 1_000_000, "prompt": "", "workspace": ""}
    bodies: list[Any] = [{}, [], "x", {"peer": 5}, long]
    for body in bodies:
        assert web.request("POST", "/api/v1/runs", body)[0] == 400
    # Nested brackets that overflow the stack of a careless parser.
    nested = b"[" * 200_000
    length = f"Content-Length: {len(nested)}\r\nConnection: close\r\n\r\n".encode()
    with web.raw(head + length + nested) as connection:
        assert b" 400 " in answer_of(connection)
    with web.raw(b"GET / HTTP/1.1\r\nHost: " + b"x" * 200_000 + b"\r\n\r\n") as raw:
        assert answer_of(raw).split(b" ")[1:2] in ([b"400"], [b"431"], [b"421"], [])
    works(web)


def frame(code: int, payload: bytes, *, masked: bool = True, reserved: int = 0) -> bytes:
    head = bytes([0x80 | reserved | code])
    size = len(payload)
    mark = 0x80 if masked else 0
    if size < 126:
        head += bytes([mark | size])
    else:
        head += bytes([mark | 127]) + size.to_bytes(8, "big")
    return head + (b"\0\0\0\0" if masked else b"") + payload


def test_invalid_frames_end_only_their_own_connection(web: Web) -> None:
    follow = json.dumps({"type": "follow", "session": "x" * 100_000}).encode()
    for data in (
        frame(1, b"{}", masked=False),
        frame(1, b"{}", reserved=0x70),
        frame(1, b"\xff\xfe"),
        frame(3, b"x"),
        frame(9, b"x" * 200),
        b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff" + b"x" * 100,
        frame(1, b"x" * 2_000_000),
        frame(0, b"continued"),
        frame(8, b"\x00"),
    ):
        with web.web_socket() as (status, connection):
            assert status == 101
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            answer_of(connection)
        works(web)
    # A well-formed message that makes no sense is answered with an error.
    with web.web_socket() as (_, connection):
        connection.sendall(frame(1, follow) + frame(1, b"[]") + frame(2, b"\xff"))
        found = b""
        while found.count(b'"error"') < 3:
            part = connection.recv(65536)
            assert part, found[-500:]
            found += part
    works(web)


def test_many_slow_connections_do_not_lock_the_owner_out(web: Web) -> None:
    crowd = []
    try:
        for _ in range(400):
            each = socket.create_connection((web.host, web.port), TIMEOUT)
            # Headers that never end.
            each.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            crowd.append(each)
        works(web)
        with web.web_socket() as (status, _):
            assert status == 101
    finally:
        for each in crowd:
            each.close()


def test_another_server_of_this_machine_cannot_use_the_cookie_that_it_receives(
    console: Served, tabs: Tabs
) -> None:
    received: queue.Queue[str] = queue.Queue()

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.put(self.headers.get("cookie") or "")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<link rel=icon href=data:,>")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            # The agent serves a page, and the user clicks its link.
            address = f"http://127.0.0.1:{server.server_port}/"
            key = console.submit(f"The app runs: [see it]({address})")
            page = tabs.open(f"#/session/{key}")
            tabs.expected.append(f"a request to {address}")
            with page.expect_popup() as popup:
                page.get_by_label("Agent").get_by_role("link", name="see it").click()
            popup.value.wait_for_load_state()
            popup.value.close()
            web = Web(console)
            web.cookie = received.get(timeout=TIMEOUT)
        finally:
            server.shutdown()
            serving.join()
    assert web.cookie.startswith("dragoman-")
    assert web.request("GET", "/api/v1/me")[0] == 401
    assert web.request("POST", "/api/v1/runs", {})[0] == 401
    with web.web_socket() as (status, _):
        assert status == 403
    # The page itself still works.
    page.reload()
    page.get_by_text("Turn ended: ok").wait_for()
    assert request(page, "GET", "me")[1]["rights"] == "act"


def test_other_users_cannot_read_the_files_of_the_console(console: Served, web: Web) -> None:
    seen = 0
    for folder, _, names in os.walk(console.cli.home):
        for name in names:
            path = Path(folder, name)
            if "console" in name or path.parent.name in ("consoles", "questions"):
                seen += 1
                assert path.stat().st_mode & 0o077 == 0, path
    assert seen >= 2
