"""The program inside of a command line: what ``npx``, ``env``, ``node`` or ``sh -c`` would start.

Owns the words that only start another program. It looks at words and at no file, and knows no peer:
`launching` does.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

SUFFIXES: Final = (".exe", ".cmd", ".bat", ".ps1", ".js", ".mjs", ".cjs")
"""What a program's name may end with beside the name that people know it by."""

RUNNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "npx": (),
    "bunx": (),
    "pnpx": (),
    "uvx": (),
    "pipx": ("run",),
    "pnpm": ("dlx", "exec"),
    "yarn": ("dlx", "exec"),
    "npm": ("exec", "x"),
    "bun": ("x",),
    "uv": ("run",),
}
"""Programs that run another program, with the word that makes them do it."""

SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "fish", "cmd", "powershell", "pwsh"})

PREFIXES: Final = frozenset(
    {"env", "nohup", "nice", "time", "timeout", "sudo", "command", "exec", "setsid", "stdbuf"}
)
"""Programs and words that only change how the one behind them runs."""

INTERPRETERS: Final = frozenset(
    {
        *("python", "pypy", "pyston", "ruby", "perl", "php", "lua", "luajit", "java", "dotnet"),
        *("mono", "node", "nodejs", "bun", "deno", "tsx", "ts-node", "rscript", "julia", "escript"),
        *("go", "cargo", "poetry", "pdm", "hatch", "conda", "mise", "nix", "make", "just"),
        *("docker", "podman", "ssh", "wsl", "busybox"),
    }
)
"""Programs that run whatever they are told: their name says nothing about what that is."""

VALUED: Final = frozenset({"-p", "--package", "-c", "--call", "--from", "--with", "--python"})
"""Options of runners that take the next word."""


def unwrap(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line without what only starts it: ``npx``, ``env``, ``node``, ``sh -c``.

    A package that is run becomes its bare name with any version cut off.
    """
    words = list(argv)
    while words:
        name = program_name(words[0])
        if name in SHELLS and (script := _script(words[1:])) is not None:
            words = script
            continue
        if name in PREFIXES:
            words = _past_prefix(words[1:])
            continue
        if name in ("node", "bun", "deno", "nodejs") and not (
            name in RUNNERS and words[1:2] and words[1] in RUNNERS[name]
        ):
            rest = _past_options(words[1:])
            if not rest:
                break
            words = rest
            continue
        if name in RUNNERS:
            subcommands = RUNNERS[name]
            rest = words[1:]
            if subcommands:
                if not rest or rest[0] not in subcommands:
                    break
                rest = rest[1:]
            rest = _past_options(rest)
            if not rest:
                break
            words = [_bare(rest[0]), *rest[1:]]
            continue
        break
    return tuple(words)


def _script(words: list[str]) -> list[str] | None:
    """The last command of what a shell is told to run; None if it is told a file, or nothing."""
    for number, word in enumerate(words[:-1]):
        if word.lower() in ("/c", "/k"):
            return words[number + 1 :]
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            try:
                lexer = shlex.shlex(words[number + 1], posix=True, punctuation_chars=True)
                lexer.whitespace_split = True
                parts = list(lexer)
            except ValueError:
                return None
            command: list[str] = []
            for part in parts:
                command = [] if set(part) <= set(lexer.punctuation_chars) else [*command, part]
            # Assignments may stand before the program, as behind `env`.
            return ["env", *command] if command else None
    return None


def _past_prefix(words: list[str]) -> list[str]:
    """What comes behind the options, settings and numbers of a program such as ``env``."""
    while words and (words[0].startswith("-") or "=" in words[0] or words[0][:1].isdigit()):
        words = words[1:]
    return words


def _past_options(words: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        if words[0] == "--":
            return words[1:]
        words = words[2:] if words[0] in VALUED else words[1:]
    return words


def _bare(package: str) -> str:
    """A package without its version: ``@google/gemini-cli@0.61.0`` is ``@google/gemini-cli``."""
    head, at, _ = package[1:].partition("@")
    return package[0] + head if at else package


def runs_anything(program: str) -> bool:
    """Whether a program is known for what it is told to run, and not for itself."""
    name = program_name(program).lower()
    # A version may stand behind the name: python3, python3.12, lua5.4.
    bare = name.rstrip("0123456789.-")
    return any(
        each in names
        for names in (INTERPRETERS, RUNNERS, SHELLS, PREFIXES)
        for each in (name, bare)
    )


def program_name(program: str) -> str:
    """What people call a program: its file's name without folder and suffix."""
    name = PurePath(program.replace("\\", "/")).name
    lower = name.lower()
    for suffix in SUFFIXES:
        if lower.endswith(suffix):
            return name[: -len(suffix)]
    return name
