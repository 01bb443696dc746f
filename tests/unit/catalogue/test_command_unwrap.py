"""What only starts another program, taken off a command line."""

from __future__ import annotations

import pytest

from dragoman.catalogue.command_unwrap import readings, runs_anything
from dragoman.catalogue.launch import program_name


@pytest.mark.parametrize(
    ("argv", "plain"),
    [
        ("npx a b", "a b"),
        ("npx -y -p x a b", "a b"),
        ("npx -- a b", "a b"),
        ("npx @s/a@1.2 b", "@s/a b"),
        ("npx a@latest b", "a b"),
        ("npm exec -- a b", "a b"),
        ("npm --silent exec a b", "a b"),
        ("npm install a", "npm install a"),
        ("npm run a b", "npm run a b"),
        ("yarn dlx a b", "a b"),
        ("bun x a b", "a b"),
        ("pipx run a b", "a b"),
        ("uvx --from p a b", "a b"),
        ("node x.js b", "x.js b"),
        ("node --require x a b", "a b"),
        ("node x.js a b", "x.js a b"),
        ("env A=1 B=2 a b", "a b"),
        ("env -u X a b", "a b"),
        ("env -i npx a b", "a b"),
        ("/usr/bin/env node x.js b", "x.js b"),
        ("timeout 5 a b", "a b"),
        ("timeout -s KILL 5 a b", "a b"),
        ("sudo -E env X=1 a b", "a b"),
        ("sudo -n -u me a b", "a b"),
        ("nohup a b", "a b"),
        ("cmd /c a b", "a b"),
        ("cmd /c npx -y a b", "a b"),
        ("sh script.sh b", "sh script.sh b"),
        ("x a b", "x a b"),
        ("npx -y x a b", "x a b"),
        ("env", ""),
        ("npx", "npx"),
        ("node", "node"),
        ("cmd /c", "cmd /c"),
        ("", ""),
    ],
)
def test_what_only_starts_a_program_is_taken_off(argv: str, plain: str) -> None:
    assert readings(argv.split()) == [tuple(plain.split())]


@pytest.mark.parametrize(
    "line",
    [
        "a b 2>/dev/null",
        "a b 2>&1 | tee log",
        "a b; true",
        "a b &",
        "(a b)",
        "{ a b; }",
        "if x; then a b; fi",
        "x\na b\ny",
        "X=1 a b",
        "cd /x && exec a b",
        "npx -y a b",
        "a 'b'",
        "sh -c 'a b'",
    ],
)
def test_every_command_of_a_shells_line_is_among_the_readings(line: str) -> None:
    assert ("a", "b") in readings(["sh", "-c", line])
    assert ("a", "b") in readings(["bash", "-lc", line])
    assert ("a", "b") not in readings(["sh", "-c", "x a b"])


def test_what_cannot_be_read_or_never_ends_is_left_as_it_is() -> None:
    assert readings(["sh", "-c", ""]) == [("sh", "-c", "")]
    assert readings(["sh", "-c", "a é"]) == [("sh", "-c", "a é")]
    assert readings(["env"] * 50)[0][0] == "env"
    assert readings([]) == [()]


@pytest.mark.parametrize(
    ("program", "name"),
    [("/a/b/qwen", "qwen"), ("C:\\x\\Qwen.CMD", "Qwen"), ("tool.js", "tool"), ("a.b", "a.b")],
)
def test_a_program_is_called_by_its_file_without_folder_and_suffix(program: str, name: str) -> None:
    assert program_name(program) == name


@pytest.mark.parametrize(
    ("program", "anything"),
    [
        ("python", True),
        ("/usr/bin/python3.12", True),
        ("C:\\py\\Python.EXE", True),
        ("npx", True),
        ("env", True),
        ("bash", True),
        ("lua5.4", True),
        ("gemini", False),
        ("python-agent", False),
        ("my-agent3", False),
    ],
)
def test_a_program_that_runs_any_command_is_recognised(program: str, anything: bool) -> None:
    assert runs_anything(program) is anything
