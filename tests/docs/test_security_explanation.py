"""Every claim of docs/explanation/security.md is in the index with tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.docs.markdown import ROOT, prose, section, table

DOCUMENT = ROOT / "docs" / "explanation" / "security.md"
INDEX = ROOT / "docs" / "explanation" / "security-tests.md"
OPEN = "What is not protected"


def chapters() -> list[str]:
    """The headings with claims."""
    headings = [line[3:] for _, line in prose(DOCUMENT) if line.startswith("## ")]
    assert headings[-1] == OPEN
    return headings[:-1]


def claims(chapter: str) -> Iterator[str]:
    """Return the items of a list, each as one line without its full stop."""
    text = "\n".join(section(DOCUMENT, chapter))
    for item in re.split(r"(?m)^- ", text)[1:]:
        yield " ".join(item.split()).removesuffix(".")


@cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_the_index_has_the_claims_of_the_page_in_its_order() -> None:
    headings = [line[3:] for _, line in prose(INDEX) if line.startswith("## ")]
    assert headings == chapters()
    for chapter in chapters():
        assert [row[0] for row in table(section(INDEX, chapter))] == list(claims(chapter))
    assert sum(len(list(claims(chapter))) for chapter in chapters()) > 40


def test_every_claim_has_a_test_that_exists() -> None:
    missing = []
    for chapter in chapters():
        for claim, proof in table(section(INDEX, chapter)):
            proofs = re.findall(r"`([^`]+)`", proof)
            assert proofs, f"nothing proves that {claim}"
            for each in proofs:
                path, _, name = each.partition("::")
                if not (ROOT / path).is_file() or name not in functions_in(path):
                    missing.append(each)
    assert missing == []
