"""Find the program inside a command line: what ``npx``, ``env``, ``node`` or ``sh -c`` would start.

Looks only at the words of the command line, not at files. `catalogue.launch` finds the peer that
the program belongs to, and `policy.shell_parser` reads the line for a shell.
"""

from __future__ import annotations

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
    "bun": ("x",),
    "npm": ("exec", "x"),
    "pipx": ("run",),
    "pnpm": ("dlx", "exec"),
    "yarn": ("dlx", "exec"),
}
"""Programs that run a package by its name, with the word that makes them do it."""

PREFIXES: Final = frozenset({"command", "env", "exec", "nice", "nohup", "sudo", "time", "timeout"})
"""Programs and words of a shell that only change how the program behind them runs."""

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh"})

VALUED: Final = frozenset(
    {
        *("-p", "--package", "--from", "--with", "--python", "--prefix", "--registry", "--cache"),
        *("-r", "--require", "--import", "--loader", "--experimental-loader", "--env-file"),
        *("-u", "-g", "-C", "-s", "-k", "-n"),
    }
)
"""Options of all of these that take the next word."""

ALONE: Final[Mapping[str, frozenset[str]]] = {"sudo": frozenset({"-k", "-n", "-s"})}
"""Options that take none at this program."""

NAMELESS: Final = frozenset(
    {"cargo", "dotnet", "escript", "go", "java", "just", "make", "mono", "wsl"}
)
"""Programs that run whatever they are told, beside those that the policy knows."""

MAX_DEPTH: Final = 8
"""Programs that start one another: every look has to end."""


def readings(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """The command lines that this one starts, the likeliest first; at least itself.

    There are several if a shell is told to run several. A package that is run becomes its bare name
    with any version cut off.
    """
    return list(dict.fromkeys(_readings(tuple(argv), MAX_DEPTH)))


def _readings(words: tuple[str, ...], depth: int) -> list[tuple[str, ...]]:
    inner = _inner(words) if words and depth else []
    if not inner:
        return [words]
    return [found for each in inner for found in _readings(each, depth - 1)]


def _inner(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """What a command line starts, if all that it does is to start something."""
    if words[0].endswith((".js", ".mjs", ".cjs")):
        return []  # A program of its own, whatever it is called.
    name, rest = program_name(words[0]).lower(), words[1:]
    if name in SHELLS:
        return _told_to_shell(rest)
    if name == "cmd":
        return [rest[1:]] if len(rest) > 1 and rest[0].lower() in ("/c", "/k") else []
    if name in PREFIXES:
        return [_behind_options(name, rest, settings=True)]
    if name == "node":
        behind = _behind_options(name, rest)
        return [behind] if behind else []
    if name not in RUNNERS:
        return []
    behind = _behind_options(name, rest)
    if RUNNERS[name]:
        if not behind or behind[0] not in RUNNERS[name]:
            return []
        behind = _behind_options(name, behind[1:])
    return [(_bare(behind[0]), *behind[1:])] if behind else []


def _told_to_shell(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The commands that a shell is told to run, the last first; none if it is told a file."""
    from dragoman.policy.shell_parser import find_commands

    for option, line in zip(words, words[1:], strict=False):
        if option.startswith("-") and not option.startswith("--") and option.endswith("c"):
            return find_commands(line)[::-1]
    return []


def _behind_options(
    name: str, words: tuple[str, ...], *, settings: bool = False
) -> tuple[str, ...]:
    """What comes behind options, and with `settings` also behind ``A=1`` and numbers."""
    while words:
        word = words[0]
        if word == "--":
            return words[1:]
        if word.startswith("-"):
            takes_next = word in VALUED and word not in ALONE.get(name, ())
            words = words[2:] if takes_next else words[1:]
        elif settings and ("=" in word or word[0:1].isdigit()):
            words = words[1:]
        else:
            break
    return words


def _bare(package: str) -> str:
    """A package without its version: ``@google/gemini-cli@0.61.0`` is ``@google/gemini-cli``."""
    head, at, _ = package[1:].partition("@")
    return package[:1] + head if at else package


def runs_anything(program: str) -> bool:
    """Whether a program is known for what it is told to run, and not for itself."""
    from dragoman.policy.command_expansion import SUBRUNNERS, is_runner

    name = program_name(program).lower()
    return is_runner(name) or any(name in names for names in (NAMELESS, RUNNERS, SUBRUNNERS))


def program_name(program: str) -> str:
    """What people call a program: its file's name without folder and suffix."""
    name = PurePath(program.replace("\\", "/")).name
    lower = name.lower()
    for suffix in SUFFIXES:
        if lower.endswith(suffix):
            return name[: -len(suffix)]
    return name
