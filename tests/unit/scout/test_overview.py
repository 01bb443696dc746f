from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dragoman.scout import overview

GO = threading.Event()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in {
        "README.md": "# X\n",
        "readme.txt": "x",
        "pyproject.toml": '[project.scripts]\nrun = "app:main"\n',
        "package.json": '{"bin": {"tool": "x.js"}, "scripts": {"build": "tsc"}}',
        "Cargo.toml": "[[bin]]\nname = 'crab'\n",
        "Makefile": "all: x\n\ttrue\nV := 1\n",
        "src/app.py": "a\nb\nc",
        "src/__main__.py": "x\n",
        "src/deep/main.py": "x\n",
        "src/logo.png": "\0",
        "tests/unit/test_a.py": "x\n",
        "lib/b_test.go": "x\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_a_survey_counts_folders_and_languages(root: Path) -> None:
    seen = overview.survey(str(root), "", GO)
    assert seen.files == 12
    assert dict(seen.top) == {"src": 4, "tests": 1, "lib": 1}
    assert seen.languages["Python"] == 4
    assert seen.readme == "README.md"
    assert dict(seen.tests) == {"tests": 1, "lib": 1}
    assert seen.mains == ["src/__main__.py", "src/app.py", "src/deep/main.py"]
    assert seen.manifests[0] == "pyproject.toml"


def test_a_survey_of_a_folder_sees_that_folder_only(root: Path) -> None:
    seen = overview.survey(str(root), "src", GO)
    assert (seen.files, dict(seen.top)) == (4, {"deep": 1})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("app.py", ["src/app.py"]),
        ("APP", ["src/app.py"]),
        ("*.go", ["lib/b_test.go"]),
        ("src/*.py", ["src/__main__.py", "src/app.py", "src/deep/main.py"]),
        ("deep", ["src/deep/main.py"]),
        ("nothing", []),
    ],
)
def test_files_are_found_by_name(pattern: str, expected: list[str], root: Path) -> None:
    assert overview.find_files(str(root), pattern, GO) == expected


def test_files_are_found_by_language(root: Path) -> None:
    assert len(overview.find_files(str(root), "python", GO)) == 4


def test_a_folder_is_listed_folders_first_and_links_are_not_followed(root: Path) -> None:
    (root / "out").symlink_to("/")
    names = overview.list_folder(str(root), "", 2, GO)
    assert names[:3] == [(0, "lib/"), (1, "b_test.go"), (0, "src/")]
    assert (0, "out") in names


def test_a_crowded_folder_is_cut(tmp_path: Path) -> None:
    for number in range(overview.MAX_ENTRIES + 5):
        (tmp_path / f"{number:03}").touch()
    names = overview.list_folder(str(tmp_path), "", 1, GO)
    assert len(names) == overview.MAX_ENTRIES + 1
    assert names[-1] == (0, "… and 5 more")


def test_entry_points_are_read_from_manifests_and_names(root: Path) -> None:
    seen = overview.survey(str(root), "", GO)
    found = [(hit.path, hit.line, note) for hit, note in overview.entry_points(str(root), seen)]
    assert found[0] == ("pyproject.toml", 2, "script `run` = `app:main`")
    assert ("package.json", 1, "program `tool`") in found
    assert ("package.json", 1, "npm script `build`") in found
    assert ("Cargo.toml", 2, "program `crab`") in found
    assert ("Makefile", 1, "make target `all`") in found
    assert ("src/__main__.py", 1, "by its name") in found
    assert not any("`V`" in note for _, _, note in found)


@pytest.mark.parametrize("text", ["{", "[]", '{"bin": 3}', "[" * 100_000, "\0"])
def test_a_manifest_that_is_none_names_nothing(text: str, tmp_path: Path) -> None:
    for name in ("package.json", "pyproject.toml", "Cargo.toml"):
        (tmp_path / name).write_text(text)
    seen = overview.survey(str(tmp_path), "", GO)
    assert overview.entry_points(str(tmp_path), seen) == []
