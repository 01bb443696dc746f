"""Every claim of docs/explanation/security.md names tests, and these exist."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.docs.markdown import ROOT, prose

DOCUMENT = ROOT / "docs" / "explanation" / "security.md"


def claims() -> list[tuple[str, list[str]]]:
    """The rows of the tables: what holds, and the tests that prove it."""
    found = []
    for _, line in prose(DOCUMENT):
        if line.startswith("| ") and "::" in line:
            claim, _, proof = line.strip("| ").partition(" | ")
            found.append((claim, re.findall(r"`([^`]+)`", proof)))
    return found


@cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_every_row_of_a_table_is_a_claim_with_a_test_that_exists() -> None:
    rows = [line for _, line in prose(DOCUMENT) if line.startswith("| ")]
    heads = [line for line in rows if line == "| what holds | proved by |"]
    assert len(claims()) == len(rows) - len(heads)
    missing = []
    for claim, proofs in claims():
        assert proofs, f"nothing proves that {claim}"
        for proof in proofs:
            path, _, name = proof.partition("::")
            if not (ROOT / path).is_file() or name not in functions_in(path):
                missing.append(proof)
    assert missing == []


def test_every_chapter_with_claims_says_from_whom_it_protects() -> None:
    headings = [line[3:] for _, line in prose(DOCUMENT) if line.startswith("## ")]
    assert headings[-1] == "What is not protected"
    assert len(claims()) >= len(headings)
