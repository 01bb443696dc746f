"""Patterns of commands, by both of their readings."""

from __future__ import annotations

import pytest

from dragoman.policy.command_patterns import pattern_words, perhaps, surely, unnamed
from dragoman.policy.globs import UNKNOWN
from dragoman.policy.shell_parser import ShellCommand


@pytest.mark.parametrize(
    ("pattern", "argv", "fits"),
    [
        ("git status", ("git", "status"), True),
        ("git status", ("git", "status", "-s"), False),
        ("git status *", ("git", "status"), True),
        ("git status *", ("git", "status", "-s", "x"), True),
        ("git *", ("git",), True),
        ("git * x", ("git", "log", "x"), True),
        ("git * x", ("git", "x"), False),
        ("npm run test:*", ("npm", "run", "test:unit"), True),
        ("npm run test:*", ("npm", "run", "test"), False),
        ("*", ("anything", "at", "all"), True),
        ("git *", ("/x/git", "status"), False),
        ("/usr/bin/git *", ("/usr/bin/git", "status"), True),
        ("git *", ("git", "-c", "x=y", "log"), False),
        ("sudo *", ("sudo", "rm"), True),
        ("echo *", ("echo", UNKNOWN), True),
        ("echo x", ("echo", UNKNOWN), False),
        ("git 'a b'", ("git", "a b"), True),
        # What goes beyond a program's name has to be named.
        ("git log *", ("git", "log", "-p", "--ext-diff"), False),
        ("git log --ext-diff *", ("git", "log", "--ext-diff", "-p"), True),
        ("git log --* *", ("git", "log", "--ext-diff"), False),
        ("git diff --output=*", ("git", "diff", "--output=x"), True),
        ("git diff --output=* *", ("git", "diff", "--output=x", "--ext-diff"), False),
        ("git -c * log", ("git", "-c", "core.pager=x", "log"), False),
        ("git -c core.pager=cat log *", ("git", "-c", "core.pager=cat", "log"), True),
        ("git config *", ("git", "config", "alias.x", "!y"), False),
        ("sort -o *", ("sort", "-o", "x"), True),
        ("sort *", ("sort", "-o", "x"), False),
        ("sed -n ?p *", ("sed", "-n", "wp", "x"), False),
        ("sed -i s/a/b/ x", ("sed", "-i", "s/a/b/", "x"), True),
        ("find . -exec grep *", ("find", ".", "-exec", "grep", "x", "{}", "+"), True),
        ("find . -exec *", ("find", ".", "-exec", "rm", "{}", "+"), False),
        ("find . -exec grep *", ("find", ".", "-exec", "grep", "x", ";", "-delete"), False),
        ("awk *", ("awk", "{ print $1 }", "x"), True),
        ("awk *", ("awk", 'BEGIN { system("x") }'), False),
        # The same inside of another program, as far as the pattern reaches.
        ("sudo git log *", ("sudo", "git", "log"), True),
        ("sudo git log *", ("sudo", "git", "log", "--output=x"), False),
        ("xargs grep *", ("xargs", "grep", "x"), True),
        ("xargs sort *", ("xargs", "sort"), False),
        ("uv run pytest *", ("uv", "run", "pytest", "-q"), True),
        ("uv *", ("uv", "run", "pytest"), False),
        ("uv run sort *", ("uv", "run", "sort", "-o", "x"), False),
        ("npm exec prettier *", ("npm", "exec", "prettier", "-c", "rm x"), False),
        ("pnpm install *", ("pnpm", "install", "x"), True),
        ("pnpm lint *", ("pnpm", "lint", "x"), True),
        ("pnpm sort *", ("pnpm", "sort", "-o", "x"), False),
        ("pnpm *", ("pnpm", "install", "x"), True),
        ("pnpm *", ("pnpm", "lint", "x"), False),
        ("perf *", ("perf", "stat", "make"), False),
        ("perf stat *", ("perf", "stat", "make"), True),
        ("kubectl --kubeconfig=x *", ("kubectl", "--kubeconfig=x", "exec", "a", "rm"), False),
        ("eval *", ("eval", "x"), False),
        # A star covers an option only if it is known to be harmless.
        ("pytest *", ("pytest", "-q", "-k", "a or b", "--", "tests"), True),
        ("pytest *", ("pytest", "-p", "evil"), False),
        ("pytest -p no:cacheprovider *", ("pytest", "-p", "no:cacheprovider", "-x"), True),
        ("pytest -* *", ("pytest", "-pevil"), False),
        ("tool *", ("tool", "a", "-"), True),
        ("tool *", ("tool", "-v"), False),
        ("tool * x", ("tool", "-v", "x"), False),
        ("tool *", ("tool", UNKNOWN), False),
        ("tool *", ("tool", f"src/{UNKNOWN}"), True),
        ("git add *", ("git", "add", UNKNOWN), False),
        ("git add *", ("git", "add", "--", UNKNOWN), True),
        ("git *", ("git", "-C", "sub", "status"), False),
        ("git *", ("git", "--no-pager", "log", "-n3"), True),
        ("python -m pytest *", ("python", "-m", "pytest", "-q"), True),
        ("python -m pytest *", ("python", "-m", "pytest", "-pevil"), False),
        ("python *", ("python", "-c", "x"), False),
        ("uv run pytest *", ("uv", "run", "pytest", "--unheard-of"), False),
        ("sudo *", ("sudo", "-u", "me", "rm"), False),
    ],
)
def test_an_allowance_fits_exactly(pattern: str, argv: tuple[str, ...], fits: bool) -> None:
    assert surely((pattern,), ShellCommand(argv)) is fits


def test_the_word_that_a_pattern_does_not_name_is_reported() -> None:
    assert unnamed(("git *", "sort *"), ShellCommand(("sort", "-o", "x"))) == "-o"
    assert unnamed(("sort -o *",), ShellCommand(("sort", "-o", "x"))) is None
    assert unnamed(("git *",), ShellCommand(("sort", "-o", "x"))) is None
    assert unnamed(("xargs sort *",), ShellCommand(("xargs", "sort"))) is None, "it stands nowhere"
    assert unnamed(("sort *",), ShellCommand(("sort", "-o", "x"), tainted=True)) is None


def test_a_tainted_command_fits_no_allowance() -> None:
    assert not surely(("*", "git *"), ShellCommand(("git", "status"), tainted=True))


@pytest.mark.parametrize(
    ("pattern", "argv", "fits"),
    [
        ("rm", ("rm", "-rf", "x"), True),
        ("rm", ("/bin/rm",), True),
        ("rm", ("rmdir",), False),
        ("rm -rf", ("rm", "-rf", "x"), True),
        ("rm -rf", ("rm", "x"), False),
        ("git push", ("git", "-C", "x", "--no-pager", "push"), True),
        ("git push", ("git", "commit", "-m", "push"), False),
        ("git push *", ("git", "push"), True),
        ("git p*", ("git", "pull"), True),
        ("git push", ("git", UNKNOWN), True),
        ("git push", ("git", f"pu{UNKNOWN}"), True),
        ("git push", ("git", f"lo{UNKNOWN}"), False),
        ("git push", ("git", f"-{UNKNOWN}"), True),
        ("git push", ("echo", UNKNOWN), False),
        ("git push", (UNKNOWN, "x"), True),
        ("git push", (f"x{UNKNOWN}", "push"), True),
        ("git push", ("git",), False),
        ("*", ("anything",), True),
    ],
)
def test_a_denial_fits_whatever_may_be_meant(
    pattern: str, argv: tuple[str, ...], fits: bool
) -> None:
    assert perhaps((pattern,), ShellCommand(argv), "/") is fits


def test_quotes_in_a_pattern_keep_words_together() -> None:
    assert pattern_words("git commit 'a b' *") == ("git", "commit", "a b", "*")
