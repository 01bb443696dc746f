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
    assert {"src/": 4, "tests/": 1, "lib/": 1, "Makefile": 1}.items() <= seen.top.items()
    assert seen.languages["Python"] == 4
    assert seen.readme == "README.md"
    assert dict(seen.tests) == {"tests": 1, "lib": 1}
    assert seen.mains == ["src/__main__.py", "src/app.py", "src/deep/main.py"]
    assert seen.manifests[0] == "pyproject.toml"


def test_a_survey_of_a_folder_sees_that_folder_only(root: Path) -> None:
    seen = overview.survey(str(root), "src", GO)
    assert (seen.files, dict(seen.top)) == (
        4,
        {"deep/": 1, "app.py": 1, "__main__.py": 1, "logo.png": 1},
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("app.py", ["src/app.py"]),
        ("APP", ["src/app.py"]),
        ("deep/main.py", ["src/deep/main.py"]),
        ("readme", ["README.md", "readme.txt"]),
        ("pp.py", []),
        ("nothing", []),
    ],
)
def test_files_are_found_by_name(name: str, expected: list[str], root: Path) -> None:
    assert overview.find_files(str(root), name, GO) == expected


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
