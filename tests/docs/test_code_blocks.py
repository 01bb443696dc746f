"""What the documents show is true: Python blocks run, and the commands they name exist.

A block marked `python` is run as a program of its own in the folder of the project, and must end
well without a word on stderr. A block marked `output` right behind it is what it prints. A block
marked `python compile` needs a peer that is not here, and is only compiled.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import pytest

from tests.docs.markdown import ROOT, Block, blocks, documents, prose

RUN_TIMEOUT = 50.0
"""A block starts an interpreter and perhaps a child; a loaded machine takes its time."""

ALL = [list(blocks(document)) for document in documents()]
PYTHON = [block for found in ALL for block in found if block.info == "python"]
COMPILED = [block for found in ALL for block in found if block.info == "python compile"]
PRINTED = [
    (first, second) for found in ALL for first, second in pairwise(found) if second.info == "output"
]
KNOWN = {"", "python", "python compile", "output", "sh", "toml", "json", "text", "mermaid"}


def run(block: Block) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT,
        check=False,
    )


def test_the_readme_shows_code_that_can_be_run() -> None:
    assert any(block.document.name == "README.md" for block in PYTHON)


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_block_runs_and_prints_what_is_said(block: Block) -> None:
    done = run(block)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for first, second in PRINTED:
        if first == block:
            assert done.stdout == second.text


def test_every_python_block_compiles_whether_it_is_run_or_not() -> None:
    for block in [*PYTHON, *COMPILED]:
        compile(block.text, str(block), "exec")


def test_every_block_has_a_mark_that_somebody_checks() -> None:
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
            *(block.text for block in blocks(document) if block.info == "sh"),
        ]
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {name for name in named if name[1] not in targets} == set()
    assert {"demo", "test"} <= {target for document, target in named if document == "README.md"}
