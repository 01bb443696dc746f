"""A dialect that an installed package registers by an entry point, used from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli_shell import TIMEOUT, Cli, Done, warm_cli

INSTALL_TIMEOUT = 50.0

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "words-dialect"
version = "1.0"
[project.entry-points."dragoman.dialects"]
words = "words_dialect:WordsEnd"
broken = "words_dialect:missing"
number = "words_dialect:NUMBER"
[tool.hatch.build.targets.wheel]
include = ["words_dialect.py"]
"""

DIALECT = """
import msgspec

from dragoman.dialects.legacy.base import ClientEnd
from dragoman.events import model
from dragoman.events.words import Outcome, Role

NUMBER = 3


class WordsEnd(ClientEnd):
    name = "words"

    def prompting(self, session_id, blocks):
        return [("ask", {"text": " ".join(block.text for block in blocks)})]

    def notified(self, method, params, line, place_of):
        word = msgspec.json.decode(params)["text"]
        return [model.MessageDelta(*place_of(None).base(method, line), Role.AGENT, word)]

    def answered(self, result, place):
        return [model.TurnEnded(*place.base("ask", bytes(result)), Outcome.OK, "fine")]
"""

AGENT = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    for word in ("Good ", "morning."):
        print(json.dumps({"jsonrpc": "2.0", "method": "word", "params": {"text": word}}))
    done = {"jsonrpc": "2.0", "id": asked["id"], "result": {"fine": True}}
    print(json.dumps(done), flush=True)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment into which pip has installed the package."""
    project, environment = tmp_path_factory.mktemp("words"), tmp_path_factory.mktemp("venv")
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "words_dialect.py").write_text(DIALECT)
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    (packages,) = environment.glob("lib/python*/site-packages")
    # What this environment has, dragoman included, is there as well.
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    where = ["--no-build-isolation", "--disable-pip-version-check", "--target", str(packages)]
    subprocess.run([*pip, *where, str(project)], check=True, timeout=INSTALL_TIMEOUT)
    return python


@pytest.fixture
def cli() -> Iterator[Cli]:
    with warm_cli() as cli:
        (cli.home / "agent.py").write_text(AGENT)
        yield cli


def run(cli: Cli, python: Path, *words: str) -> Done:
    done = subprocess.run(
        [python, "-m", "dragoman", "run", *words],
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def command(cli: Cli) -> list[str]:
    return [sys.executable, str(cli.home / "agent.py")]


def test_an_installed_dialect_is_spoken_by_its_name(cli: Cli, python: Path) -> None:
    words = ("hello", "--dialect", "words", "--format", "quiet")
    done = run(cli, python, *words, "--", *command(cli))
    assert (done.code, done.out) == (0, "Good morning.\n"), done.err


@pytest.mark.parametrize("how", [["--cold"], []])
def test_a_descriptor_can_name_an_installed_dialect(cli: Cli, python: Path, how: list[str]) -> None:
    folder = cli.home / "config_home" / "peers"
    folder.mkdir(parents=True)
    (folder / "polite.toml").write_text(
        'name = "polite"\ntitle = "Polite"\nprotocol = "words"\n'
        f"[[launch]]\ncommand = {json.dumps(command(cli))}\n"
    )
    done = run(cli, python, "polite", "hello", "--format", "quiet", *how)
    assert (done.code, done.out) == (0, "Good morning.\n"), done.err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "the dialect 'broken' of the package words-dialect cannot be loaded"),
        ("number", "is neither a subclass of ClientEnd"),
        ("none", "there is no dialect 'none'"),
    ],
)
def test_a_dialect_that_does_not_work_is_refused_before_a_start(
    cli: Cli, python: Path, name: str, said: str
) -> None:
    done = run(cli, python, "hello", "--dialect", name, "--", *command(cli))
    assert done.code == 2
    assert said in done.err
