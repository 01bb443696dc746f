"""The check that counts words to avoid in plain technical English."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_english.py"


def check(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (root / "scripts").mkdir(exist_ok=True)
    copy = root / "scripts" / SCRIPT.name
    copy.write_text(SCRIPT.read_text("utf-8"), "utf-8")
    command = [sys.executable, str(copy), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "dragoman" / "wire"
    package.mkdir(parents=True)
    (package / "one.py").write_text('"""Called by whoever asks."""\n# It is no file.\n', "utf-8")
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("There is no such word here any longer.\n", "utf-8")
    assert check(tmp_path, "--write").returncode == 0
    return tmp_path


def test_the_counts_are_kept_per_package(project: Path) -> None:
    assert '"wire" = 2' in (project / "scripts" / "english.toml").read_text("utf-8")
    assert check(project).returncode == 0


def test_one_more_marker_word_fails_and_names_the_command_that_lists_them(project: Path) -> None:
    (project / "src/dragoman/wire/two.py").write_text("# Nobody reads it.\n", "utf-8")
    done = check(project)
    assert done.returncode == 1
    assert "wire: 3 lines with marker words, 2 allowed" in done.stderr
    assert "--list wire" in done.stderr
    assert "two.py:1: # Nobody reads it." in check(project, "--list", "wire").stdout


def test_the_name_of_a_test_counts_as_a_sentence(project: Path) -> None:
    (project / "src/dragoman/wire/two.py").write_text("def test_nobody_reads_it(): ...\n", "utf-8")
    assert "two.py:1" in check(project, "--list", "wire").stdout


def test_a_new_package_may_have_none(project: Path) -> None:
    other = project / "src" / "dragoman" / "other"
    other.mkdir()
    (other / "a.py").write_text("# You shall not.\n", "utf-8")
    assert check(project).returncode == 1
    assert check(project, "--write").returncode == 1, "--write only lowers"


def test_a_count_that_fell_has_to_be_written_down(project: Path) -> None:
    (project / "src/dragoman/wire/one.py").write_text("# Whoever.\n", "utf-8")
    assert "--write" in check(project).stderr
    assert check(project, "--write").returncode == 0
    assert check(project).returncode == 0
    assert '"wire" = 1' in (project / "scripts" / "english.toml").read_text("utf-8")


def test_plain_sentences_are_not_counted(project: Path) -> None:
    (project / "src/dragoman/wire/one.py").write_text(
        "# There is no file; it is no longer there, and the result is no worse.\n", "utf-8"
    )
    assert check(project, "--write").returncode == 0
    assert "wire" not in (project / "scripts" / "english.toml").read_text("utf-8")
