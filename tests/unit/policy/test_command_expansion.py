"""Programs inside of programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.policy.command_expansion import (
    is_runner,
    name_of,
    only_reads,
    real_name,
    running,
    spelled,
    unfolded,
)
from dragoman.policy.globs import UNKNOWN
from dragoman.policy.shell_parser import ANYTHING, ShellCommand, read_line


def inner(*argv: str) -> list[ShellCommand]:
    return unfolded(ShellCommand(argv))[1:]


@pytest.mark.parametrize(
    "argv",
    [
        ("env", "A=1", "rm", "x"),
        ("sudo", "-u", "me", "rm", "x"),
        ("timeout", "5", "nice", "rm", "x"),
        ("sh", "-c", "rm x"),
        ("bash", "-lc", "true; rm x"),
        ("su", "-c", "rm x"),
        ("uv", "run", "rm", "x"),
        ("bun", "x", "rm", "x"),
        ("bun", "--silent", "run", "rm", "x"),
        ("perf", "stat", "-e", "cycles", "rm", "x"),
        ("perf", "record", "-o", "p.data", "--", "rm", "x"),
        ("caffeinate", "-i", "rm", "x"),
        ("npm", "explore", "pkg", "--", "rm", "x"),
        ("npm", "explore", "pkg", "--", "rm x"),
        ("pnpm", "exec", "rm", "x"),
        ("pnpm", "sudo", "rm", "x"),
        ("pnpm", "--filter", "a", "sudo", "rm", "x"),
        ("yarn", "exec", "rm", "x"),
        ("yarn", "exec", "rm x"),
        ("yarn", "sudo", "rm", "x"),
    ],
)
def test_the_program_that_is_run_by_another_is_seen(argv: tuple[str, ...]) -> None:
    assert any(command.words[:2] == ("rm", "x") for command in inner(*argv))


@pytest.mark.parametrize(
    "argv",
    [
        ("bash", "script.sh"),
        ("bash",),
        ("eval", "x"),
        ("python3", "-c", "x"),
        ("python3.12", "-Ic", "x"),
        ("python",),
        ("perl", "-I", "lib", "-e", "x"),
        ("awk", 'BEGIN { system("x") }'),
        ("git", "-c", "a=b", "log"),
        ("git", "-C", "..", "log"),
        ("git", "rebase", "-x", "y"),
        ("tar", "--to-comm=x"),
        ("sed", "s/a/b/e", "f"),
        ("find", ".", "-fprint", "x"),
        ("powershell", "x"),
        ("gdb", "-ex", "shell x"),
        ("gdb", "--eval-command", "shell x"),
        ("bun", "-e", "x"),
        ("source", "x"),
        ("caffeinate", "sh"),
        ("perf", "stat", "sh", "x"),
        ("npm", "explore", "pkg", "--", UNKNOWN + " x"),
        ("pnpm", "node", "-e", "x"),
        ("yarn", "node", "-e", "x"),
    ],
)
def test_what_cannot_be_seen_could_be_anything(argv: tuple[str, ...]) -> None:
    assert ANYTHING in inner(*argv)


@pytest.mark.parametrize(
    "argv",
    [
        ("git", "status"),
        ("git", "-C", "sub", "log"),
        ("git", "commit", "-c", "HEAD"),
        ("python", "-m", "pytest", "-c", "x"),
        ("python", "a.py", "b", "-c"),
        ("tar", "xf", "a.tar"),
        ("sed", "-n", "1,5p", "f"),
        ("find", ".", "-name", "x"),
        ("docker", "rm", "x"),
        ("perf", "report", "rm"),
        ("npm", "rm", "x"),
        ("pnpm", "rm", "x"),
        ("pnpm", "-r", "install"),
        ("yarn",),
        ("yarn", "add", "rm"),
        ("awk", "{ print $1 }", "f"),
        ("sort", "-o", "x", "y"),
        ("rg", "x", UNKNOWN),
        ("echo", "rm"),
    ],
)
def test_an_ordinary_command_is_only_itself(argv: tuple[str, ...]) -> None:
    assert inner(*argv) == []


def test_words_that_are_added_later_are_unknown() -> None:
    assert inner("xargs", "make") == [ShellCommand(("make", UNKNOWN), tainted=True)]
    assert inner("find", ".", "-exec", "rm", "{}", ";")[0].words[-1] == UNKNOWN
    assert ShellCommand(("rm", UNKNOWN)) in inner("find", ".", "-delete")


def test_shells_in_shells_in_shells_end_somewhere() -> None:
    line = "rm x"
    for _ in range(12):
        line = "sh -c '" + line.replace("'", "'\\''") + "'"
    assert ANYTHING in running(None, line[:19_000], hidden=False, tainted=False).every
    assert ANYTHING in inner("env", *["env"] * 500)


def test_a_program_has_a_name_however_it_is_spelled(tmp_path: Path) -> None:
    names = ("rm", "/bin/rm", "RM", "C:\\x\\rm.exe", "./rm")
    assert {name_of(word) for word in names} == {"rm"}
    (tmp_path / "x").symlink_to("/nowhere/rm")
    assert real_name("./x", str(tmp_path)) == "rm"
    assert real_name("x", str(tmp_path)) == "x"


def test_runners_are_known_by_name() -> None:
    assert is_runner("sudo") and is_runner("bash") and is_runner("python3.12")
    assert not is_runner("git") and not is_runner("make")


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("cat a | head -n 3 && ls", True),
        ("/bin/cat a", True),
        ("sed -n 1,20p a", True),
        ("find . -name x", True),
        ("rg x 2>/dev/null", True),
        ("./cat a", False),
        ("/evil/cat a", False),
        ("cat a > b", False),
        ("X=1 cat a", False),
        ("sed -i s/a/b/ c", False),
        ("find . -delete", False),
        ("find $X", False),
        ("find *", False),
        ("date -x", False),
        ("rg x -- -unknown", False),
        ("rg --pre x y", False),
        ("cat a; rm b", False),
        ("date -s x", False),
        ("sed -n 1p -e 'w x' f", False),
        ("test -v 'a[$(rm x)]'", False),
        ("rg x *.py", False),
        ("rg x -- *.py", True),
        ("printf -v PATH x", False),
        ("", False),
    ],
)
def test_reading_is_believed_where_it_can_be_seen(line: str, reads: bool) -> None:
    ran = running(None, line, hidden=False, tainted=False)
    assert only_reads(ran.every) is reads


def test_what_is_hidden_could_be_anything() -> None:
    assert running(None, None, hidden=True, tainted=False).told == [ANYTHING]
    assert running((), None, hidden=False, tainted=False).told == [ANYTHING]
    assert running(None, "", hidden=False, tainted=False).told == [ANYTHING]
    assert running(None, None, hidden=False, tainted=False).told == []


def test_an_environment_beside_the_command_taints_all_of_it() -> None:
    ran = running(("a",), "b", hidden=False, tainted=True)
    assert [(each.words, each.tainted) for each in ran.told] == [(("a",), True), (("b",), True)]


def test_a_shell_among_the_words_writes_files() -> None:
    ran = running(("sh", "-c", "echo x > y"), None, hidden=False, tainted=False)
    assert ran.writes == ["y"]


def test_words_are_shown_as_they_would_be_typed() -> None:
    assert spelled(read_line("git commit -m 'a b' *", posix=True).commands[0].words) == (
        "git commit -m 'a b' …"
    )
