from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman.scout.gitignore import IgnoreFile, translate


@pytest.mark.parametrize(
    ("lines", "path", "is_folder", "expected"),
    [
        ("*.log", "a.log", False, True),
        ("*.log", "x/y/a.log", False, True),
        ("*.log", "a.txt", False, None),
        ("/dist", "dist", True, True),
        ("/dist", "x/dist", True, None),
        ("build/", "x/build", True, True),
        ("build/", "build", False, None),
        ("a/b", "a/b", False, True),
        ("a/b", "x/a/b", False, None),
        ("**/c", "x/y/c", False, True),
        ("a/**/d", "a/d", False, True),
        ("a/**/d", "a/x/y/d", False, True),
        ("a/**", "a/x/y", False, True),
        ("*.log\n!keep.log", "keep.log", False, False),
        ("!keep.log\n*.log", "keep.log", False, True),
        ("# comment", "# comment", False, None),
        (r"\#x", "#x", False, True),
        ("a?c", "abc", False, True),
        ("a?c", "a/c", False, None),
        ("[ab].c", "b.c", False, True),
        ("[!ab].c", "b.c", False, None),
        ("[z-a]", "b", False, None),
        ("trailing   ", "trailing", False, True),
        ("", "x", False, None),
        ("a[", "a[", False, True),
    ],
)
def test_lines_mean_what_they_mean_to_git(
    lines: str, path: str, is_folder: bool, expected: bool | None
) -> None:
    name = path.rpartition("/")[2]
    assert IgnoreFile(lines).decide(path, name, is_folder=is_folder) is expected


def test_a_pattern_of_many_stars_is_not_slow() -> None:
    ignored = IgnoreFile("*" * 60 + "a\n" + "**/" * 40 + "x\n" + "*a" * 12)
    name = "b" * 200
    assert ignored.decide(name, name, is_folder=False) is None


def test_an_empty_file_says_nothing() -> None:
    assert not IgnoreFile("\n# only words\n\n")
    assert IgnoreFile("x")


def test_stars_do_not_cross_folders() -> None:
    assert translate("*.c") == r"[^/]*\.c"


NAMES = st.sampled_from(["a", "b", "ab", "a.log", "b.log", "build"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
PATTERNS = st.builds(
    lambda bang, head, body, tail: f"{bang}{head}{body}{tail}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.lists(
        st.sampled_from(["a", "b", "*", "?", "*.log", "build", "**"]), min_size=1, max_size=3
    ).map("/".join),
    st.sampled_from(["", "/"]),
)


@settings(max_examples=40)
@example(["a", "/**", "!b"], {"a", "a/a", "b/ab"})
@given(st.lists(PATTERNS, min_size=1, max_size=4), st.sets(PATHS, min_size=3, max_size=12))
def test_the_walk_keeps_the_files_that_git_keeps(patterns: list[str], paths: set[str]) -> None:
    from tempfile import TemporaryDirectory
    from threading import Event

    from dragoman.scout.file_walk import Walk

    with TemporaryDirectory() as root:
        environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", "init", "-q", root], check=True, env=environment)
        Path(root, ".gitignore").write_text("\n".join(patterns) + "\n")
        for path in sorted(paths):
            where = Path(root, path)
            if any(parent.is_file() for parent in where.parents) or where.is_dir():
                continue
            where.parent.mkdir(parents=True, exist_ok=True)
            where.touch()
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--others", "--exclude-standard"],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        ).stdout.split("\0")[:-1]
        assert sorted(Walk(root).files(Event())) == sorted(listed)
