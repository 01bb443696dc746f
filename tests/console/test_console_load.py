"""CPU time and memory of the console with 50 running sessions."""

from __future__ import annotations

import json
import os
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from dragoman.store import Redactor, Store
from dragoman.store.store import store_path
from tests.console.conftest import Served, serving
from tests.integration.cli_shell import Cli
from tests.unit.store.stores import chunk, job, session

SESSIONS = 50
MAX_CPU = 1.0
"""Seconds of CPU time for the first page and its data."""
MAX_MEMORY = 150
"""MiB."""


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def visit(served: Served) -> int:
    """Load the page and its data as a browser does. Returns the number of sessions shown."""
    origin = {"Origin": served.url.rstrip("/")}
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def fetch(path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(served.url + path, data, origin)
        with opener.open(request, timeout=20) as answer:
            content: bytes = answer.read()
            return content

    for path in ("", "static/main.js", "static/connection.js", "static/console.css"):
        assert fetch(path)
    fetch("api/v1/login", {"token": served.link.partition("#token=")[2]})
    fetch("api/v1/inbox")
    return len(json.loads(fetch("api/v1/work"))["work"])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_first_page_with_fifty_sessions_needs_little_cpu_time_and_memory(cli: Cli) -> None:
    state = cli.home / "state_home"
    with Store.open(store_path(state), Redactor(())) as store:
        keys = []
        for _ in range(SESSIONS):
            made = session()
            store.create_session(made)
            running = {"state": "running", "started_at": 1.0, "runner": {"pid": os.getpid()}}
            store.create_job(job(made.key, **running))
            store.append(made.key, 0, [chunk("word ")] * 200)
            keys.append(made.key)
        with serving(cli) as served:
            before = processor_time(served.process.pid)
            assert visit(served) == SESSIONS
            assert processor_time(served.process.pid) - before < MAX_CPU
            # All sessions continue.
            for number in range(10):
                for key in keys:
                    store.append(key, 200 + number, [chunk("more ")])
            assert memory(served.process.pid) < MAX_MEMORY
