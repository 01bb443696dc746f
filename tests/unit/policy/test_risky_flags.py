"""Words that go beyond what a program is known for."""

from __future__ import annotations

import shlex

import pytest

from dragoman.policy.globs import UNKNOWN
from dragoman.policy.risky_flags import beyond, runs_others, sed_only_prints


def places(line: str) -> set[int]:
    """The places in a command, in which `?` stands for what nobody knows."""
    words = [word.replace("?", UNKNOWN) for word in shlex.split(line)]
    return set(beyond(words[0], words))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # Whole words, with a value, cut short.
        ("sort --output=x y", {1}),
        ("sort --o x y", {1}),
        ("rg --pre=x y", {1}),
        ("rg --pre x y", {1}),
        ("make SHELL=/x", {1}),
        ("make SHELL:=/x", {1}),
        ("go vet -vettool=x", {2}),
        # Letters, alone and behind others.
        ("sort -o x y", {1}),
        ("sort -uox y", {1}),
        ("tar xIf x y", {1}),
        ("tar -xvIx -f y", {1}),
        ("curl -sSLo x y", {1}),
        ("rsync -avze x a b", {1}),
        ("man -aPx ls", {1}),
        ("date -us x", {1, 2}),
        ("date 010100002030", {1}),
        ("make CC=x all", {1}),
        ("make all CC:=x", {2}),
        ("file -bC", {1}),
        ("less '+!x' y", {1}),
        ("tree -R -H .", {1}),
        ("sdiff -o x a b", {1}),
        ("diff3 --diff-program=x a b c", {1}),
        ("go env -w GOFLAGS=-toolexec=x", {2}),
        ("pnpm -c exec x", {1}),
        # git
        ("git archive --remote=ext::x HEAD", {2}),
        ("git log --ext-diff", {2}),
        ("git log -p --textc", {3}),
        ("git -c a=b log", {1, 2}),
        ("git -ca=b log", {1}),
        ("git --git-dir x log", {1, 2}),
        ("git --git-dir=x log", {1}),
        ("git -C ../x log", {1, 2}),
        ("git grep -nOx y", {2}),
        ("git grep -Ox y", {2}),
        ("git archive -ox HEAD", {2}),
        ("git cat-file --filters x", {2}),
        ("git config a b", {1, 2, 3}),
        ("git bisect run x", {2, 3}),
        ("git fetch ext::x", {2}),
        ("git fetch EXT::x", {2}),
        ("git clone other::x", {2}),
        ("git merge-index x y", {1, 2, 3}),
        ("git submodule--helper foreach x", {1, 2, 3}),
        ("git log ?", {2}),
        ("git log --? x", {2}),
        ("git log --grep -- ?", {4}),
        # Finders, with the program.
        ("find . -exec rm {} +", {2, 3}),
        ("find . -fprintf x y", {2}),
        ("find ? -name x", {1}),
        ("fd -Hx rm", {1, 2}),
        # Languages.
        ("sed s/a/b/e f", {1, 2}),
        ("sed -n 1p -e 'w x' f", {1, 2, 3, 4, 5}),
        ("awk 'BEGIN { system(\"x\") }'", {1}),
        ("awk -f x y", {1}),
        ("gawk -F : '{ print > \"x\" }' y", {3}),
        ("awk ? y", {1}),
        # Files that are written by their place, and brackets that a shell looks into.
        ("uniq a b", {2}),
        ("xxd -c 8 a b", {4}),
        ("test -v 'a[$(x)]'", {2}),
        ("printf -v PATH x", {1}),
        # The last word of the command before is in `_`.
        ("test -v 'a[_]'", {2}),
        ("test -e ?", {2}),
        ("test _ -eq 1", {1}),
        ("test -t _", {2}),
        ("printf %d _ 1", {2}),
        ("printf %*s _ 1", {2}),
        ("printf %d ?", {2}),
    ],
)
def test_a_word_that_goes_beyond_is_found_at_its_place(line: str, expected: set[int]) -> None:
    assert places(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "sort -t o -k 2 x",
        "date -d tomorrow +%s",
        "date -u",
        "make -j4 all",
        "sort -ko x",
        "rg --pretty --no-config x",
        "tar tf x",
        "tar -tvf If.tar",
        "curl -XPOST -H a:o x",
        "rsync -av a b",
        "git log --oneline --no-ext-diff -c -n 3",
        "git log -- ?",
        "git diff --stat -- ?",
        "git add ?",
        "git config --get user.name",
        "git grep -e O x",
        "git -C sub log",
        "find . -xdev -executable -name x",
        "fd -e xX x",
        "sed -n 1,5p ?x",
        "awk -F: -v x=1 '$1 >= 3 || /a/ { print $2 }' ?",
        "uniq -f 1 a",
        "test -v a",
        "test 1 -lt 2",
        "printf %5d 1",
        "printf %s _",
        "git log -S std::x",
        "[ a = b ]",
        "printf '%s[]' ? -v",
        "less +/x y",
        "ls -o x",
        "go test ?",
    ],
)
def test_an_ordinary_command_has_no_such_word(line: str) -> None:
    assert places(line.replace("?x", "x")) == set()


def test_what_only_writes_or_only_may_be_an_option_runs_nothing_for_certain() -> None:
    for line in ("sort -o x", "curl -o x y", "uniq a b", "printf -v X y"):
        assert not runs_others(line.split()[0], line.split()), line
    assert not runs_others("rg", ("rg", "x", UNKNOWN))
    assert not runs_others("git", ("git", "log", UNKNOWN))
    for line in ("sort --compress-program=x y", "rg --pre x y", "git log --ext-diff"):
        assert runs_others(line.split()[0], line.split()), line


def test_sed_prints_only_with_nothing_behind_the_files() -> None:
    assert sed_only_prints(("-n", "1,$p", "f", "g"))
    assert not sed_only_prints(("-n", "1p", "f", "-i"))
    assert not sed_only_prints(("-n", "1p", UNKNOWN))
