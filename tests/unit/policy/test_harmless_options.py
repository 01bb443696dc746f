"""Options that a star may cover."""

from __future__ import annotations

import shlex

import pytest

from dragoman.policy.globs import UNKNOWN
from dragoman.policy.harmless_options import TABLES, doubtful, has_table, table
from dragoman.policy.risky_flags import beyond


def places(line: str) -> list[int]:
    """The places of doubtful words in a command, in which `?` stands for what nobody knows."""
    words = [word.replace("?", UNKNOWN) for word in shlex.split(line)]
    return list(doubtful(words[0], words))


@pytest.mark.parametrize(
    "line",
    [
        "pytest -q -xvs -k 'a or b' -kx --maxfail=1 -- tests",
        "git status -sb --porcelain=v2 -uno",
        "git --no-pager log --oneline -n 3 -5 --stat -- ?",
        "git commit -am x",
        "ls -la ? -anything",
        "find . -name x -not -path y -print0",
        "rg -n -A3 x -- ?",
        "cat - x",
        "sort -rn -k2",
        "tar xzf a.tgz",
        "npm install @types/node",
        "git log @ @~1",
        "echo @x",
    ],
)
def test_harmless_options_are_known(line: str) -> None:
    assert places(line) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pytest -p x", [1]),
        ("pytest -qp x", [1]),
        ("pytest --maxfai=1", [1]),
        ("git -c a=b status --unheard-of", [1, 4]),
        ("git unheard-of -v", [2]),
        ("git log ?", [2]),
        ("git log --?", [2]),
        ("git log --grep -- ?", [4]),
        ("find . -namex", [2]),
        ("mypy @options", [1]),
        ("tool @options", [1]),
        ("tar cPf a.tar x", [1]),
        ("find -- -delete", [2]),
        ("tool -v --x a -- ?", [1, 2, 5]),
    ],
)
def test_other_options_are_in_doubt(line: str, expected: list[int]) -> None:
    assert places(line) == expected


def test_no_option_is_both_harmless_and_beyond() -> None:
    for key in TABLES:
        known = table(key)
        assert known is not None and has_table(key)
        options = [f"-{letter}" for letter in known.letters + known.valued] + sorted(known.names)
        for option in options:
            words = (*key.split(), option, "x")
            assert len(key.split()) not in beyond(words[0], words) or key in (
                "sed",  # `-n` alone is no script that only prints.
                "git config",  # Reading is told by the first word.
            ), (key, option)
