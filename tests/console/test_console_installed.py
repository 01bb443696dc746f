"""From `pip install` to the inbox, as in the tutorial: the built wheel with its extra in a new
virtual environment and an empty home directory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import TIMEOUT, Served, Tabs, serving
from tests.integration.cli_shell import Cli
from tests.integration.test_wheel import INSTALL_TIMEOUT, Installed, install, wheel

__all__ = ["wheel"]

pytestmark = pytest.mark.timeout(INSTALL_TIMEOUT * 2)


class InstalledCli(Cli):
    """The command of a virtual environment instead of the checkout."""

    def __init__(self, installed: Installed) -> None:
        super().__init__(installed.work, installed.home)
        self.installed = installed

    @property
    def env(self) -> dict[str, str]:
        return self.installed.env | self.extra

    def argv(self, *words: str) -> list[str]:
        return [str(self.installed.bin / "dragoman"), *words]


@pytest.fixture
def installed(wheel: Path) -> Iterator[Installed]:
    # The path of a broker's socket must be short.
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        folder = Path(name).resolve()
        made = [sys.executable, "-m", "venv", "--without-pip", str(folder / "env")]
        subprocess.run(made, check=True, timeout=INSTALL_TIMEOUT)
        found = Installed(folder / "env" / "bin", folder / "home", folder / "work")
        install(f"{wheel}[console]", found.bin)
        found.home.mkdir()
        found.work.mkdir()
        (found.work / "greeting.py").write_text("def greet():\n    pass\n")
        try:
            yield found
        finally:
            stopped = found("dragoman", "broker", "stop", "--all")
            assert stopped.code == 0, stopped.err


def opened_link(folder: Path, page: Any) -> str:
    """The link that the command passed to the user's browser."""
    file = folder / "opened"
    waited = 0
    while not file.exists():
        assert waited < TIMEOUT * 1000
        page.wait_for_timeout(50)
        waited += 50
    return file.read_text()


def test_the_installed_package_opens_the_inbox_with_one_command_and_starts_work(
    browser: Any, installed: Installed
) -> None:
    cli = InstalledCli(installed)
    opened = installed.home / "opened"
    program = installed.home / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.new\nmv {opened}.new {opened}\n')
    program.chmod(0o755)
    cli.extra["BROWSER"] = f"{program} %s"
    with serving(cli, "--open") as served:
        tabs = Tabs(browser, served)
        page = tabs.browser().new_page()
        page.goto(opened_link(installed.home, page))
        page.get_by_role("heading", name="Inbox").wait_for()
        page.get_by_text("Nothing is waiting for you.").wait_for()
        start_work(served, page)
        page.context.close()
        assert tabs.problems == []


def start_work(served: Served, page: Any) -> None:
    """The next step of the tutorial: scout, which needs no model, finds a definition."""
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.get_by_text("New work").click()
    page.get_by_label("Who").select_option("peer:scout")
    page.get_by_label("Workspace").fill(str(served.cli.cwd))
    page.get_by_label("Prompt").fill("where is greet defined?")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Turn ended: ok").wait_for()
    page.get_by_label("Agent").get_by_text("greeting.py").first.wait_for()
