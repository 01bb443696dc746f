"""What is installed is what was written: the wheel alone, in a new environment, without a checkout.

The environment is made from the package index, with the versions of constraints.txt, as the set-up
of the Makefile does. Brokers are on, as for any user.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from dragoman.catalogue.load import Catalogue, built_in
from dragoman.cli.reference import helps
from tests.aio import aio
from tests.docs.markdown import blocks
from tests.integration.cli_shell import Done
from tests.integration.mcp_places import text_of

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT = 50.0
"""Packing a few hundred files takes a second or two; a loaded machine takes its time."""
INSTALL_TIMEOUT = 300.0
"""Twenty packages from an index, or from pip's cache."""
COMMAND_TIMEOUT = 60.0

pytestmark = pytest.mark.timeout(INSTALL_TIMEOUT * 2)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=BUILD_TIMEOUT,
    )
    (built,) = folder.glob("*.whl")
    return built


def test_a_wheel_holds_every_descriptor_and_every_other_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        files = {f"dragoman/catalogue/peers/{name}.toml" for name in Catalogue(built_in()).names}
        assert files and files - inside == set()
        source = ROOT / "src"
        present = [
            path
            for path in (source / "dragoman").rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        ]
        names = {"__init__.pyi", "prices.toml", "probe.py", "py.typed", "qwen.toml", "skill.md"}
        assert names <= {path.name for path in present}
        for path in present:
            assert archive.read(path.relative_to(source).as_posix()) == path.read_bytes()


# -- installed


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and a user with nothing but that."""

    bin: Path
    home: Path
    work: Path

    @property
    def env(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.bin), "/usr/bin", "/bin"])
        return {"HOME": str(self.home), "PATH": path, "DRAGOMAN_RUNTIME_DIR": self.runtime}

    @property
    def runtime(self) -> str:
        return str(self.home / "run")

    def ask_over_acp(self, prompt: str) -> Done:
        """Ask scout through `dragoman serve acp`."""
        # An agent gets a base environment only, and its broker is to be one of those here.
        server = ("env", f"DRAGOMAN_RUNTIME_DIR={self.runtime}", "dragoman", "serve", "acp")
        return self("dragoman", "run", prompt, "--", *server, "--peer", "scout")

    def __call__(self, program: str, *words: str) -> Done:
        done = subprocess.run(
            [str(self.bin / program), *words],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def install(what: str, bin: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(bin / "python"), "install", "--quiet"),
            *("--disable-pip-version-check", "--no-input"),
            *("--constraint", str(ROOT / "constraints.txt"), what),
        ],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def alone(wheel: Path) -> Iterator[Installed]:
    """The wheel in a new environment, without extras."""
    # The path of a broker's socket must be short.
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name)
        made = [sys.executable, "-m", "venv", "--without-pip", str(folder / "env")]
        subprocess.run(made, check=True, timeout=INSTALL_TIMEOUT)
        installed = Installed(folder / "env" / "bin", folder / "home", folder / "work")
        install(str(wheel), installed.bin)
        installed.home.mkdir()
        installed.work.mkdir()
        (installed.work / "greeting.py").write_text("def greet():\n    pass\n")
        try:
            yield installed
        finally:
            stopped = installed("dragoman", "broker", "stop", "--all")
            assert stopped.code == 0, stopped.err


@pytest.fixture
def extended(wheel: Path, alone: Installed) -> Installed:
    """The same with every extra: from now on, so the test with it is the last one."""
    install(f"{wheel}[local,mcp,otel]", alone.bin)
    return alone


def test_nothing_is_installed_but_what_the_wheel_needs(alone: Installed) -> None:
    code = (
        "import dragoman, importlib.metadata as m\n"
        "print(dragoman.__file__, *(each.metadata['Name'] for each in m.distributions()))"
    )
    file, *names = alone("python", "-c", code).out.split()
    assert Path(file).is_relative_to(alone.bin.parent)
    assert "dragoman" in names
    assert {"pytest", "mypy", "mcp", "anthropic", "hatchling"}.isdisjoint(names)


def test_the_examples_of_the_readme_run(alone: Installed) -> None:
    client, agent = (block for block in blocks(ROOT / "README.md") if block.info == "python")
    (printed,) = (block for block in blocks(ROOT / "README.md") if block.info == "output")
    (alone.work / "examples").mkdir()
    (alone.work / "examples" / "parrot.py").write_text(agent.text)
    done = alone("python", "-W", "error", "-c", client.text)
    assert (done.code, done.out, done.err) == (0, printed.text, "")
    done = alone("dragoman", "run", "hello", "--", "python", "examples/parrot.py")
    assert (done.code, done.out.splitlines()[0]) == (0, "hello")


def test_scout_answers_and_is_delegated_to(alone: Installed) -> None:
    for words in (("run", "scout"), ("delegate", "exploration")):
        done = alone("dragoman", *words, "where is greet defined?")
        assert done.code == 0, done.err
        assert "`greet` is defined in `greeting.py:1`" in done.out
    assert alone("dragoman", "broker", "list").out.count("scout") > 0
    code = (
        "import asyncio, dragoman\n"
        "print(asyncio.run(dragoman.delegate('exploration', 'where is greet defined?')).answered)"
    )
    assert alone("python", "-W", "error", "-c", code).out == "scout\n"


def test_every_command_has_help(alone: Installed) -> None:
    every = [words for words, _ in helps()]
    assert len(every) > 50
    with ThreadPoolExecutor(4) as pool:
        shown = list(pool.map(lambda words: alone(*words, "--help"), every))
    for words, done in zip(every, shown, strict=True):
        assert (done.code, done.err) == (0, ""), words
        assert f"Usage: {' '.join(words)} " in done.out


def test_acp_is_served_without_an_extra(alone: Installed) -> None:
    done = alone.ask_over_acp("where is greet defined?")
    assert done.code == 0, done.err
    assert "`greet` is defined in `greeting.py:1`" in done.out


def test_what_an_extra_is_for_says_how_to_install_it(alone: Installed) -> None:
    done = alone("dragoman", "serve", "mcp")
    assert done.code == 2
    assert "pip install 'dragoman[mcp]'" in done.err


@aio
async def test_both_servers_run_with_the_extras(extended: Installed) -> None:
    done = await asyncio.to_thread(extended.ask_over_acp, "where is greet defined?")
    assert done.code == 0 and "`greet` is defined in" in done.out, done.err
    parameters = StdioServerParameters(
        command=str(extended.bin / "dragoman"),
        args=["serve", "mcp"],
        env=extended.env,
        cwd=extended.work,
    )
    with (extended.home / "server.err").open("w") as errors:
        async with (
            asyncio.timeout(COMMAND_TIMEOUT),
            Client(stdio_client(parameters, errlog=errors), mode="legacy") as host,
        ):
            assert "delegate" in {tool.name for tool in (await host.list_tools()).tools}
            work = {"role": "exploration", "prompt": "where is greet defined?"}
            assert "greeting.py:1" in text_of(await host.call_tool("delegate", work))
    assert (extended.home / "server.err").read_text() == ""
