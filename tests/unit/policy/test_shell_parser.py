"""Lines for a shell, read without running them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dragoman.policy import shell_parser
from dragoman.policy.globs import UNKNOWN
from dragoman.policy.shell_parser import (
    ANYTHING,
    MAX_LINE_SIZE,
    ShellCommand,
    find_commands,
    read_line,
)


def words(line: str) -> list[tuple[str, ...]]:
    return [command.words for command in read_line(line, posix=True).commands]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("\n", []),
        ("ls -l  src", [("ls", "-l", "src")]),
        ("a && b || c; d & e | f\ng\n", [(name,) for name in "abcdefg"]),
        ("a |\nb &&\nc", [("a",), ("b",), ("c",)]),
        ("'a.b' \"c d\"", [("a.b", "c d")]),
        ("a 'b'\"c\"d", [("a", "bcd")]),
        ('a "" \'\' " "', [("a", "", "", " ")]),
        ("a 'x\ny'", [("a", "x\ny")]),
        ("a b#c", [("a", "b#c")]),
        ("a '$x \\n `b` {c} (d) <e !f'", [("a", "$x \\n `b` {c} (d) <e !f")]),
        ("a \"fix (b) {c} <d> ~ # 'e' | f; g\"", [("a", "fix (b) {c} <d> ~ # 'e' | f; g")]),
        ("a 2> /dev/null >> /dev/null", [("a",)]),
        ("a 2>/dev/null | b -3 x=y --z=1", [("a",), ("b", "-3", "x=y", "--z=1")]),
        ("a *.py", [("a", f"{UNKNOWN}.py")]),
        ("a x[bc]? '*'", [("a", f"x{UNKNOWN}bc]{UNKNOWN}", "*")]),
        ("a HEAD~1 @ %x ^y a+b:c,d", [("a", "HEAD~1", "@", "%x", "^y", "a+b:c,d")]),
        ("/usr/bin/a ./b", [("/usr/bin/a", "./b")]),
    ],
)
def test_a_line_is_the_commands_that_it_runs(line: str, expected: list[tuple[str, ...]]) -> None:
    assert words(line) == expected


HIDDEN = [
    "git status \\\r\ntouch P",
    "git status -- ${x:-{}; touch P; echo }",
    'git status -- "$(git status # )\n touch P)"',
    "git status -- `git status \\\\\\; touch P`",
    "git status -- $((echo a); touch P)",
    "git status -- ${x:-<(touch P)}",
    "git status &>/dev/null touch P",
    'git status -- "${x:-\'}"; touch P; echo "\'}"',
]
"""Lines in which some shell finds a second command that another reader overlooks."""


@pytest.mark.parametrize(
    "line",
    [
        *HIDDEN,
        # Characters.
        *("a\rb", "a\r\nb", "a\x00b", "a\tb", "a \x1b", "a é", "a 'é'", "a \u00a0b", "a \x7f"),
        # Quotes.
        *("a 'b", 'a "b', "a 'b' \"", 'a "$b"', 'a "`b`"', 'a "\\n"', 'a "b!"', "a 'b'\\''c'"),
        # What has a meaning beyond words.
        *("a $b", "a \\b", "a `b`", "! a", "a b!", "{ a; }", "(a)", "a {b,c}", "a <b", "a <<X\nX"),
        *("a <(b)", "a ~", "a ~/b", "a =b", "a # b", "a;#b", "#a", "a $'b'", "a b{c", "a b)"),
        # Operators.
        *("a &> b", "a >& b", "a 2>&1", "a |& b", "a >| b", "a ;; b", "a ;& b", "a &| b", "a <> b"),
        *("a>b", "a2>b", "a b2>c", "a 12>b", "'a'2>b"),
        # Redirections that are not at the end, and none at all.
        *("a > b c", "a > b > c d", "> b a", "a >", "a > ; b", "a > > b"),
        # Constructs and words of the shell.
        *("if a; then b; fi", "for x in y; do a; done", "while a; do b; done", "case a in esac"),
        *("function a", "a[b c]=d rm x", "A=1", "A=1 b", "A+=1 b", "[ -f x ]", "[[ x ]]", "a == b"),
        *("time a", "coproc a", "exec a", "eval a", "source a", ". a", "command a", "builtin a"),
        *(
            "trap a EXIT",
            "alias a=b",
            "do a",
            "then a",
            "done",
            "noglob a",
            "label: rm x",
            "repeat 3 a",
            "'eval' a",
        ),
        *(
            "- a",
            "%1",
            ": a",
            "a; | b",
            "a & & b",
            "*",
            "/bin/r? x",
            "'a b' c",
            "export A=1",
            "jobs -x a",
        ),
        "x" * (MAX_LINE_SIZE + 1),
    ],
)
def test_any_other_line_is_an_unknown_command(line: str) -> None:
    read = read_line(line, posix=True)
    assert read.commands == [ANYTHING]
    assert read.problem


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("a > b", ["b"]),
        ("a >> b && c 2> d", ["d", "b"]),
        ("a > *", [UNKNOWN]),
        ("a > /dev/null", []),
        ("> x", ["x"]),
        ("a &> b", [UNKNOWN]),
        ("a $(b > c)", [UNKNOWN]),
        ("a $b", []),
    ],
)
def test_files_that_are_written_are_reported(line: str, writes: list[str]) -> None:
    assert sorted(read_line(line, posix=True).writes) == sorted(writes)


def test_a_redirection_taints_its_command() -> None:
    assert read_line("a > b", posix=True).commands == [ShellCommand(("a",), tainted=True)]
    assert read_line("> x", posix=True).commands == [ShellCommand((":",), tainted=True)]
    assert read_line("a > /dev/null", posix=True).commands == [ShellCommand(("a",))]


def test_a_line_for_another_shell_is_an_unknown_command() -> None:
    assert read_line("git status", posix=False).commands == [ANYTHING]


def test_without_the_grammar_every_line_is_an_unknown_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("tree_sitter", "tree_sitter_bash"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            shell_parser._parser.cache_clear()
            read = read_line("git status", posix=True)
        shell_parser._parser.cache_clear()
        assert read.commands == [ANYTHING] and "tree-sitter-bash" in read.problem


def test_a_long_chain_of_commands_is_read() -> None:
    assert len(words("a&&" * 6_000 + "b")) == 6_001


def test_the_grammar_is_loaded_when_a_command_is_judged_and_not_before() -> None:
    code = (
        "import sys\n"
        "from dragoman.policy import Act, Policy, judge\n"
        "judge(Policy(), Act(kind='read', paths=('a',), workspace='/'))\n"
        "before = 'tree_sitter' in sys.modules\n"
        "judge(Policy(), Act(kind='execute', line='ls', workspace='/'))\n"
        "print(before, 'tree_sitter' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", []),
        ("A=1 a 'b c' \"d\" >x", [("a", "b c", "d")]),
        ("(a b); { c; } && exec d | e &", [("a", "b"), ("c",), ("exec", "d"), ("e",)]),
        ("x $(a b)", [("x", "$(a b)"), ("a", "b")]),
        ("a é", []),
        ("x" * (MAX_LINE_SIZE + 1), []),
    ],
)
def test_commands_are_found_also_where_a_line_is_not_read(
    line: str, found: list[tuple[str, ...]]
) -> None:
    assert find_commands(line) == found
