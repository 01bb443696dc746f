"""Unit tests mirror the source one to one, so that a reader of either finds the other at once.

src/dragoman/a/b.py is tested in tests/unit/a/test_b.py. A package's own `__init__` and `__main__`
may be tested in test_init.py and test_main.py beside its other tests, and need not be.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dragoman"
UNIT = ROOT / "tests" / "unit"

OPTIONAL = {"__init__.py": "test_init.py", "__main__.py": "test_main.py"}


def mirrors(source: Path) -> tuple[set[str], set[str]]:
    """The test files that must exist, and those that may, as paths below the test folder."""
    required: set[str] = set()
    allowed: set[str] = set()
    for path in source.rglob("*.py"):
        folder = path.relative_to(source).parent
        if path.name in OPTIONAL:
            allowed.add((folder / OPTIONAL[path.name]).as_posix())
        else:
            required.add((folder / f"test_{path.name}").as_posix())
    return required, required | allowed


def present(unit: Path) -> set[str]:
    return {path.relative_to(unit).as_posix() for path in unit.rglob("test_*.py")}


def test_every_source_module_has_a_unit_test_file() -> None:
    required, _ = mirrors(SOURCE)
    assert sorted(required - present(UNIT)) == []


def test_every_unit_test_file_has_a_source_module() -> None:
    _, allowed = mirrors(SOURCE)
    assert sorted(present(UNIT) - allowed - {Path(__file__).name}) == []


def test_the_mirror_notices_what_is_missing_and_what_is_too_much(tmp_path: Path) -> None:
    for name in ("src/a/b.py", "src/a/__init__.py", "unit/a/test_c.py", "unit/a/test_init.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    required, allowed = mirrors(tmp_path / "src")
    found = present(tmp_path / "unit")
    assert required - found == {"a/test_b.py"}
    assert found - allowed == {"a/test_c.py"}


def test_every_test_folder_is_a_package_so_that_equal_names_do_not_collide() -> None:
    tests = ROOT / "tests"
    folders = {path.parent for path in tests.rglob("test_*.py")}
    assert (
        sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()) == []
    )
