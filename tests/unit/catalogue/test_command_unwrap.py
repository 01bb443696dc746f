"""What only starts another program, taken off a command line."""

from __future__ import annotations

import shlex

import pytest

from dragoman.catalogue.command_unwrap import program_name, readings, runs_anything, unwrap


@pytest.mark.parametrize(
    ("argv", "plain"),
    [
        ("npx a b", "a b"),
        ("npx -y -p x a b", "a b"),
        ("npx -- a b", "a b"),
        ("npx @s/a@1.2 b", "@s/a b"),
        ("npx a@latest b", "a b"),
        ("npm exec -- a b", "a b"),
        ("npm install a", "npm install a"),
        ("yarn dlx a b", "a b"),
        ("bun x a b", "a b"),
        ("bun script.js b", "script.js b"),
        ("env A=1 B=2 a b", "a b"),
        ("env -i npx a b", "a b"),
        ("/usr/bin/env node x.js b", "x.js b"),
        ("uvx --from p a b", "a b"),
        ("timeout 5 a b", "a b"),
        ("sudo -E env X=1 a b", "a b"),
        ("cmd /c a b", "a b"),
        ("sh script.sh b", "sh script.sh b"),
        ("env", ""),
        ("npx", "npx"),
        ("", ""),
    ],
)
def test_what_only_starts_a_program_is_taken_off(argv: str, plain: str) -> None:
    assert unwrap(argv.split()) == tuple(plain.split())


@pytest.mark.parametrize(
    "argv",
    [
        "npx -c 'a b'",
        "npx --call='a b'",
        "npm --silent exec a b",
        "yarn a b",
        "bun run a b",
        "deno run -A npm:a b",
        "node --require x a b",
        "env -u X a b",
        "env -S 'a b'",
        "env '-Sa b'",
        "timeout -s KILL 5 a b",
        "sudo -u me a b",
        "mise exec tool@22 -- a b",
        "script -qc 'a b' /dev/null",
        "sh -c 'a b 2>/dev/null'",
        "sh -c 'a b 2>&1 | tee log'",
        "sh -c 'a b; true'",
        "sh -c 'a b &'",
        "sh -c '(a b)'",
        "sh -c '{ a b; }'",
        "sh -c 'if x; then a b; fi'",
        "sh -c 'x\na b\ny'",
        "sh -c 'exec \"$@\"' sh a b",
        "sh -c '$0 b' a",
        "bash -c 'eval \"a b\"'",
        "cmd /c 'a b'",
        "powershell -NoProfile -Command a b",
        "sh -c \"sh -c 'a b'\"",
        "npm run a b",
        "npm --prefix x run-script a b",
        "pnpm run a b",
        "corepack pnpm a b",
        "direnv exec . a b",
        "direnv exec /x npx -y a b",
        "flock -n lock a b",
        "cross-env X=1 a b",
        "poetry run a b",
        "conda run a b",
        "xargs a b",
        "sh -c '`a b`'",
        "sh -c 'x `a b` y'",
        "sh -c 'x \"$(y $(a b))\"'",
        "sh -c 'exec `which a` b'",
        "sh -c '\"$(command -v a)\" b'",
        "sh -c 'PATH=x $(readlink -f $(which a)) b'",
    ],
)
def test_what_may_be_started_is_among_the_readings(argv: str) -> None:
    assert ("a", "b") in readings(shlex.split(argv))


@pytest.mark.parametrize(
    "argv",
    [
        *(
            "x a b",
            "node x.js a b",
            "npx -y x a b",
            "env X=1 x a b",
            "env -i x a b",
            "sh -c 'x a b'",
        ),
        *(
            "direnv exec a x b",
            "npm run x a b",
            "npm ci a b",
            "poetry run x a b",
        ),
    ],
)
def test_the_arguments_of_a_program_are_not_taken_for_one(argv: str) -> None:
    assert ("a", "b") not in readings(shlex.split(argv))


def test_what_cannot_be_read_or_never_ends_is_left_as_it_is() -> None:
    assert readings(["sh", "-c", "a 'b"]) == [("sh", "-c", "a 'b")]
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
def test_a_program_that_runs_whatever_it_is_told_is_known_as_one(
    program: str, anything: bool
) -> None:
    assert runs_anything(program) is anything
