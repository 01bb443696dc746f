"""CONTRIBUTING.md lists every kind of test."""

from __future__ import annotations

from tests.docs.markdown import ROOT, section, table

TESTS = ROOT / "tests"


def test_every_folder_of_tests_is_explained_and_every_explained_folder_exists() -> None:
    rows = table(section(ROOT / "CONTRIBUTING.md", "How tests are laid out"))
    folders = {path.parent.name for path in TESTS.glob("*/__init__.py")}
    assert {cells[0] for cells in rows} == {f"`tests/{name}`" for name in folders}
