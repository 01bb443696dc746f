"""Lines for a shell, read without running them."""

from __future__ import annotations

import pytest

from dragoman.hub.policy.globs import UNKNOWN
from dragoman.hub.policy.shell import ANYTHING, MAX_LINE_SIZE, Command, read_line


def words(line: str) -> list[tuple[str, ...]]:
    return [command.words for command in read_line(line, posix=True).commands]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("ls -l  src", [("ls", "-l", "src")]),
        ("a && b || c; d & e | f |& g\nh", [(name,) for name in "abcdefgh"]),
        ("'a b' \"c d\" e\\ f", [("a b", "c d", "e f")]),
        ("a 'b'\"c\"d", [("a", "bcd")]),
        ("a \"\" ''", [("a", "", "")]),
        ("a 'x\ny'", [("a", "x\ny")]),
        ("a \\\n b", [("a", "b")]),
        ("a b#c # d", [("a", "b#c")]),
        ('a "\\$x \\n"', [("a", "$x \\n")]),
        ("(a; b)", [("a",), ("b",)]),
        ("{ a; }", [("a",), (":",)]),
        ("if a; then b; fi", [("a",), ("b",), (":",)]),
        ("a 2>&1 >/dev/null", [("a",)]),
        ("A=1 b", [("b",)]),
        ("a $x", [("a", UNKNOWN)]),
        ("a b$x", [("a", f"b{UNKNOWN}")]),
        ('a "${x:-y} $1"', [("a", f"{UNKNOWN} {UNKNOWN}")]),
        ("a $((1 + 2))", [("a", UNKNOWN)]),
        ("a $(b c)", [("b", "c"), ("a", UNKNOWN)]),
        ("a `b`", [("b",), ("a", UNKNOWN)]),
        ("a <(b)", [("b",), ("a", UNKNOWN)]),
        ("a *.py", [("a", f"{UNKNOWN}.py")]),
        ("[ -f x ] && [[ y ]]", [("[", "-f", "x", "]"), ("[[", "y", "]]")]),
        ("[a]", [(f"{UNKNOWN}a]",)]),
        ("a $ b", [("a", "$", "b")]),
        ("a\r\nb", [("a",), ("b",)]),
    ],
)
def test_a_line_is_the_commands_that_it_runs(line: str, expected: list[tuple[str, ...]]) -> None:
    assert words(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        *("a 'b", 'a "b', "a $(b", "a `b", "a ${b", "a \\", "a <<X\nb\nX", "a() { b; }", "a >"),
        *("for x in y; do a; done", "case a in b) c;; esac", "a\rb", "a\x00b"),
        *("a $((`b`))", "a ${x:-$(b)}", "a > > b", "x" * (MAX_LINE_SIZE + 1)),
        "$(" * 10 + "a" + ")" * 10,
    ],
)
def test_what_is_not_understood_could_be_anything(line: str) -> None:
    assert ANYTHING in read_line(line, posix=True).commands


def test_what_came_before_is_still_seen() -> None:
    assert read_line("rm x; a 'b", posix=True).commands == [
        Command(("rm", "x")),
        Command(("a",)),
        ANYTHING,
    ]


@pytest.mark.parametrize("line", ["a > b", "A=1 a", "a >> b", "a &> b", "! a", "(a)", "a <<< b"])
def test_what_is_not_in_the_words_taints_the_command(line: str) -> None:
    assert [command.tainted for command in read_line(line, posix=True).commands] == [True]


def test_a_variable_or_a_redirection_alone_is_a_command() -> None:
    assert read_line("PATH=x", posix=True).commands == [Command((":",), tainted=True)]
    assert read_line("> x", posix=True).commands == [Command((":",), tainted=True)]


def test_files_that_are_written_and_read_are_told() -> None:
    line = read_line("a >b 2>>c <d &>e 3<>f >&g 2>&1 $(h > i)", posix=True)
    assert sorted(line.writes) == ["b", "c", "e", "f", "g", "i"]
    assert line.reads == ["d"]


def test_a_line_for_another_shell_is_not_understood() -> None:
    assert read_line("r^m x", posix=False).commands == [ANYTHING]
