"""A console as users run it: the command, brokers and an agent as processes, and real browsers.

Requires Playwright's Python package and an installed Chromium; `make test-console` says how to get
them. Without them, these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_shell import Cli, cli_in

HERE = Path(__file__).parent
AGENT = HERE / "page_agent.py"
TIMEOUT = 45.0
"""Seconds to wait for anything to appear; the machine may be busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the timeout: a test starts up to ten programs, and each takes longer on a busy
    machine."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))


def expect(found: Any) -> Any:
    """Playwright's assertions about a page or a locator, which wait until they hold. What the page
    shows follows its cause after a while, so a value that is read only once may be too old."""
    sync_api: Any = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=TIMEOUT * 1000)
    return sync_api.expect(found)


def wait_until(holds: Callable[[], bool], why: Callable[[], object] = lambda: "") -> None:
    """Wait for something outside the page: a file, a process, a line of a log."""
    give_up_at = time.monotonic() + TIMEOUT
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < give_up_at, why()
        pause.wait(0.02)


def chromium() -> str | None:
    named = os.environ.get("CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass
class Served:
    """A running console."""

    cli: Cli
    process: Any
    link: str
    log: list[str] = field(default_factory=list)
    sessions: int = 0

    @property
    def url(self) -> str:
        return self.link.partition("#")[0]

    def new_link(self, *options: str) -> str:
        done = self.cli.child("console", "link", *options)
        assert done.code == 0, done.err
        return done.out.strip()

    def submit(self, prompt: str, *options: str) -> str:
        """Submit a prompt to a broker with the command. Returns the session key."""
        self.sessions += 1
        named = ("--session", f"s{self.sessions}")
        words = ("run", "page", prompt, "--no-wait", "--format", "json", *named, *options)
        with self.cli.terminal(*words) as terminal:
            assert terminal.wait() == 0, terminal.shown
        for line in terminal.shown.splitlines():
            if '"JobSubmitted"' in line:
                return str(json.loads(line)["session_key"])
        raise AssertionError(terminal.shown)


@contextmanager
def serving(cli: Cli, *options: str, listen: str = "127.0.0.1:0") -> Iterator[Served]:
    words = cli.argv("console", "--listen", listen, *options)
    process = subprocess.Popen(  # noqa: TID251 - a test's own child, ended below
        words, cwd=cli.cwd, env=cli.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    served = Served(cli, process, "")
    lines = process.stderr
    reader = threading.Thread(target=lambda: served.log.extend(lines), daemon=True)
    reader.start()
    try:
        served.link = process.stdout.readline().strip()
        assert served.link, served.log
        yield served
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(TIMEOUT)
        finally:
            process.kill()
            process.wait()
            reader.join(TIMEOUT)
            process.stdout.close()
            process.stderr.close()
    assert code == 143, "".join(served.log)


def release(console: Served) -> None:
    """Let an agent continue that waits for it."""
    (console.cli.cwd / "GO").write_text("go\n")


@pytest.fixture
def cli() -> Iterator[Cli]:
    # The paths of pytest's temporary directories are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        cli = cli_in(Path(name).resolve())
        cli.extra["DRAGOMAN_WARM"] = "1"
        # The log of a console that crashes says where.
        cli.extra["PYTHONFAULTHANDLER"] = "1"
        peers = cli.home / "config_home" / "peers"
        peers.mkdir(parents=True)
        command = [sys.executable, str(AGENT), str(cli.home)]
        for peer, roles in (("page", '["review"]'), ("second", "[]")):
            (peers / f"{peer}.toml").write_text(
                f'name = "{peer}"\ntitle = "{peer}"\nprotocol = "acp"\nroles = {roles}\n'
                f"[[launch]]\ncommand = {json.dumps(command)}\n"
            )
        settings = 'enabled_peers = ["page", "second"]\npermissions = "ask"\n'
        (cli.home / "config_home" / "config.toml").write_text(settings)
        # A script in place of ssh makes this machine act as another one.
        cli.extra["DRAGOMAN_SSH"] = str(cli.home / "ssh")
        (cli.home / "ssh").write_text(
            f'#!/bin/sh\nPATH={sys.prefix}/bin:/usr/bin:/bin\nfor last; do :; done\neval "$last"\n'
        )
        (cli.home / "ssh").chmod(0o755)
        os.mkfifo(cli.cwd / "GO")
        try:
            yield cli
        finally:
            # In a child process: Playwright has an event loop running in this thread.
            stopped = cli.child("broker", "stop", "--all")
        assert stopped.code == 0, stopped.err
        cli.wait_for_agents()


@pytest.fixture
def console(cli: Cli) -> Iterator[Served]:
    with serving(cli) as served:
        yield served


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api: Any = pytest.importorskip("playwright.sync_api")
    program = chromium()
    if program is None:
        pytest.skip("Chromium not found: apt install chromium, or set CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


REQUEST = """async ([method, path, body]) => {
    const { loginKey } = await import("/static/login_key.js");
    const answer = await fetch(path, {
        method, body, headers: {"content-type": "application/json", "x-dragoman-key": loginKey()},
    });
    const text = await answer.text();
    return [answer.status, text.startsWith("{") ? JSON.parse(text) : text];
}"""


def request(page: Any, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send a request from a page. Returns the status and the body of the response."""
    data = None if body is None else json.dumps(body)
    status, told = page.evaluate(REQUEST, [method, f"/api/v1/{path}", data])
    return status, told


class Tabs:
    """Opens pages and records their errors and warnings."""

    def __init__(self, browser: Any, served: Served) -> None:
        self._browser = browser
        self._served = served
        self.contexts: list[Any] = []
        self.problems: list[str] = []
        self.expected: list[str] = []
        """Texts of problems that the test causes on purpose."""

    def browser(self, **options: Any) -> Any:
        """A separate browser context that is not logged in."""
        context = self._browser.new_context(**options)
        context.set_default_timeout(TIMEOUT * 1000)
        self.contexts.append(context)
        context.on("page", self._watch)
        return context

    def _watch(self, page: Any) -> None:
        def console(message: Any) -> None:
            if message.type in ("error", "warning"):
                self.problems.append(message.text)

        def request(request: Any) -> None:
            own = self._served.url.partition("://")[2]
            if not request.url.partition("://")[2].startswith(own):
                self.problems.append(f"a request to {request.url}")

        page.on("console", console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", request)
        page.on("websocket", request)

    def open(self, path: str = "", **options: Any) -> Any:
        """A page in a new browser context that is logged in."""
        context = self.browser(**options)
        page = context.new_page()
        page.goto(self._served.new_link())
        page.get_by_text("connected", exact=True).wait_for()
        if path:
            page.goto(self._served.url + path)
        return page


@pytest.fixture
def tabs(browser: Any, console: Served) -> Iterator[Tabs]:
    tabs = Tabs(browser, console)
    yield tabs
    for context in tabs.contexts:
        context.close()
    left = [each for each in tabs.problems if not any(word in each for word in tabs.expected)]
    assert left == []


@pytest.fixture
def page(tabs: Tabs) -> Any:
    return tabs.open()


Shot = Callable[[Any, str], None]


HIDE_PATHS = """(names) => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        for (const [path, name] of names) {
            const text = walker.currentNode.data;
            if (text.includes(path)) walker.currentNode.data = text.replaceAll(path, name);
        }
    }
}"""


@pytest.fixture
def shot(cli: Cli) -> Shot:
    """Retake the screenshots in the directory CONSOLE_PICTURES; an empty file asks for a new one.
    Paths of this machine are replaced by those of an example user."""
    folder = os.environ.get("CONSOLE_PICTURES")
    names = [
        [str(cli.cwd), "/home/me/project"],
        [str(cli.home), "/home/me"],
        [f"{cli.cwd.parent.name}/{cli.cwd.name}", "me/project"],
        [sys.prefix, "/home/me/dragoman/.venv"],
        [str(AGENT.parents[2]), "/home/me/dragoman"],
    ]

    def take(page: Any, name: str) -> None:
        if folder:
            page.locator(".toast").wait_for(state="hidden")
            for scheme in ("light", "dark"):
                picture = Path(folder, f"console-{name}-{scheme}.png")
                if picture.exists():
                    page.emulate_media(color_scheme=scheme)
                    page.evaluate(HIDE_PATHS, names)
                    page.screenshot(path=picture)

    return take
