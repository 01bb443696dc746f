"""Real git repositories for tests, made in a moment and unlike anybody's configuration."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "tester",
    "GIT_AUTHOR_EMAIL": "tester@example.org",
    "GIT_COMMITTER_NAME": "tester",
    "GIT_COMMITTER_EMAIL": "tester@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(folder: Path, *args: str) -> str:
    """Run git as a user would, and return what it says."""
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *args],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def make(folder: Path, *, commit: bool = True) -> Path:
    """A repository with two files and, unless told otherwise, a commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    (folder / "src").mkdir()
    (folder / "src" / "b.py").write_text("b = 1\n")
    (folder / ".gitignore").write_text(".env\ncache/\n")
    if commit:
        commit_all(folder)
    return folder


def commit_all(folder: Path, message: str = "everything") -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


def with_submodule(folder: Path) -> Path:
    """A repository with a submodule in `lib`, beside the one that it comes from."""
    origin = make(folder.parent / f"{folder.name}-origin")
    make(folder)
    git(folder, "submodule", "add", "-q", str(origin), "lib")
    commit_all(folder, "a submodule")
    return folder


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder, without what git keeps."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }
