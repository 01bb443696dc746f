"""The examples in the documents are true: Python blocks run, and the commands exist.

A `python` block is run as a program in the directory of the project, with a new home for dragoman,
and must succeed without output on stderr. An `output` block right after it is its expected output.
A `python compile` block needs a peer that is not available, and is only compiled. In an `sh` block,
every call of dragoman is parsed as the command parses it, but not run. An `sh run` block needs no
model and no network: those of a document are run in order in a small project, with a new home and
fake agents, and every command must succeed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from dragoman.cli.app import app
from dragoman.cli.host_option import OWN, RELAYED, split
from dragoman.cli.host_send import taken
from tests.docs.markdown import ROOT, Block, blocks, documents, prose
from tests.integration.cli_shell import FOLDERS

RUN_TIMEOUT = 50.0
"""A block starts an interpreter and perhaps a child, which takes long on a busy machine."""

ALL = [list(blocks(document)) for document in documents()]
PYTHON = [block for found in ALL for block in found if block.info == "python"]
COMPILED = [block for found in ALL for block in found if block.info == "python compile"]
SHELL_RUN = [block for found in ALL for block in found if block.info == "sh run"]
PRINTED = [
    (first, second) for found in ALL for first, second in pairwise(found) if second.info == "output"
]
KNOWN = {"", "python", "python compile", "output", "sh", "sh run", "toml", "json", "text"}


def run(block: Block, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        cwd=ROOT,
        env={**os.environ, **{f"DRAGOMAN_{name}": str(home / name.lower()) for name in FOLDERS}},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT,
        check=False,
    )


def test_the_readme_shows_code_that_can_be_run() -> None:
    assert any(block.document.name == "README.md" for block in PYTHON)


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_block_runs_and_prints_what_is_said(block: Block, tmp_path: Path) -> None:
    done = run(block, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for first, second in PRINTED:
        if first == block:
            assert done.stdout == second.text


STAND_IN = f"""#!/bin/sh
[ "$1" = --version ] && {{ echo 0.61.0; exit; }}
exec {sys.executable} {ROOT}/examples/parrot.py
"""
"""A fake agent: it speaks ACP and repeats its prompt."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small repository, and fake agents."""
    folder = tmp_path / "project"
    (folder / "agents").mkdir(parents=True)
    (folder / "app.py").write_text("def main() -> None:\n    pass\n")
    (folder / "agents" / "reviewer.md").write_text("---\nname: reviewer\n---\nReview it.\n")
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (tmp_path / "bin").mkdir()
    for name in ("gemini", "my-agent"):
        program = tmp_path / "bin" / name
        program.write_text(STAND_IN)
        program.chmod(0o755)
    return folder


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", sorted({block.document for block in SHELL_RUN}), ids=str)
def test_the_shell_blocks_of_a_document_run_in_their_order(document: Path, project: Path) -> None:
    home = project.parent
    programs = [home / "bin", Path(sys.executable).parent, "/usr/bin", "/bin"]
    environ = {
        "HOME": str(home),
        "PATH": os.pathsep.join(map(str, programs)),
        "LANG": "C.UTF-8",
        "GEMINI_API_KEY": "of-a-stand-in",
        **{f"DRAGOMAN_{name}": str(home / name.lower()) for name in FOLDERS},
    }

    def shell(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-eu", "-c", text],
            cwd=project,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * RUN_TIMEOUT,
            check=False,
        )

    try:
        for block in SHELL_RUN:
            if block.document == document:
                done = shell(block.text)
                assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    finally:
        assert shell("dragoman broker stop --all").returncode == 0


def test_every_python_block_compiles_whether_it_is_run_or_not() -> None:
    for block in [*PYTHON, *COMPILED]:
        compile(block.text, str(block), "exec")


def test_every_block_has_a_tag_that_is_checked() -> None:
    unknown = [str(block) for found in ALL for block in found if block.info not in KNOWN]
    assert unknown == []
    assert all(first.info == "python" for first, _ in PRINTED), "output of nothing"


def test_every_make_target_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {
        (document.name, target)
        for document in documents()
        for text in [
            *(line for _, line in prose(document)),
            *(block.text for block in blocks(document) if block.info in ("sh", "sh run")),
        ]
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {name for name in named if name[1] not in targets} == set()
    assert {"demo", "test"} <= {target for document, target in named if document == "README.md"}


def calls(block: Block) -> Iterator[list[str]]:
    """Return the words of every call of dragoman in a block, up to the next shell operator."""
    text = r"dragoman (?:[^|;)\"'\n]|\"[^\"]*\"|'[^']*')*"
    for call in re.findall(rf"(?:^|[|;(]) *({text})", block.text.replace("\\\n", ""), re.MULTILINE):
        words = shlex.split(call, comments=True)
        ends = (at for at, word in enumerate(words) if re.match(r"2?[<>]|&", word))
        yield words[: next(ends, None)]


def _without_host(words: list[str]) -> list[str]:
    """Return a call without the options for another machine, which come before its command."""
    host, rest = split(words[1:])
    _, rest = taken(rest)
    if host is None or rest[0] not in (*OWN, *RELAYED):
        return words
    if rest[:2] == ["jobs", "fetch"]:
        rest = ["hosts", "fetch", host, *rest[2:]]
    return [words[0], *rest]


def understand(words: list[str]) -> None:
    """Parse a call as the command line does, without executing it. Raises the parse error."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    name, *rest = _without_host(words)
    while command is not None:
        try:
            context = command.make_context(name, rest, parent=context)
        except typer.Exit:  # such as --version
            return
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not rest or not hasattr(command, "resolve_command"):
            return
        name, command, rest = command.resolve_command(context, rest)


SHELL = [
    pytest.param(words, id=f"{block} {' '.join(words)}")
    for found in ALL
    for block in found
    if block.info in ("sh", "sh run")
    for words in calls(block)
]


@pytest.mark.parametrize("words", SHELL)
def test_every_call_in_a_shell_block_is_one_that_the_command_understands(words: list[str]) -> None:
    understand(words)


def test_calls_are_found_and_wrong_ones_are_not_understood() -> None:
    assert len(SHELL) > 50 and len(SHELL_RUN) > 15
    for wrong in ("acp install --host zed", "peers lst", "serve acp --websocket"):
        with pytest.raises(Exception, match="option|command|argument|Missing"):
            understand(["dragoman", *wrong.split()])
