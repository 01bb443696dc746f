"""Find the program inside a command line: what ``npx``, ``env``, ``node`` or ``sh -c`` would start.

Looks only at the words of the command line, not at files. `catalogue.launch` finds the peer that
the program belongs to.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
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
    "pnpm": ("dlx", "exec", "run"),
    "yarn": ("dlx", "exec", "run"),
    "npm": ("exec", "x", "run", "run-script"),
    "bun": ("x", "run"),
    "deno": ("run",),
    "uv": ("run",),
}
"""Programs that run another program, with the word that makes them do it."""

WORDLESS: Final = frozenset({"yarn", "pnpm", "bun", "deno"})
"""Runners that run a program of the project without any such word."""

SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "fish", "cmd", "powershell", "pwsh"})

PREFIXES: Final = frozenset(
    {
        *("env", "nohup", "nice", "ionice", "time", "timeout", "setsid", "stdbuf", "unbuffer"),
        *("sudo", "doas", "su", "runuser", "command", "exec", "builtin", "busybox", "winpty"),
        *(
            "taskset",
            "chrt",
            "unshare",
            "firejail",
            "systemd-run",
            "caffeinate",
            "arch",
            "xvfb-run",
        ),
        *("script", "strace", "ltrace", "chronic", "mise", "fnm", "volta", "asdf", "nvm", "nodenv"),
        *(
            "dotenv",
            "dotenvx",
            "op",
            "doppler",
            "direnv",
            "cross-env",
            "corepack",
            "flock",
            "setarch",
        ),
        *(
            "watch",
            "xargs",
            "rlwrap",
            "chpst",
            "eatmydata",
            "proxychains",
            "proxychains4",
            "torsocks",
        ),
        *(
            "poetry",
            "pdm",
            "hatch",
            "rye",
            "pixi",
            "conda",
            "mamba",
            "micromamba",
            "pipenv",
            "bundle",
        ),
        # Words of a shell that stand before a command.
        *("if", "then", "elif", "else", "while", "until", "do", "{", "!"),
    }
)
"""Programs and words that only change how the one behind them runs."""

SUBCOMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("fnm", "asdf", "nvm", "nodenv", "direnv", "bundle"), ("exec",)),
    **dict.fromkeys(("volta", "op", "doppler", "dotenv", "dotenvx"), ("run",)),
    **dict.fromkeys(("poetry", "pdm", "hatch", "rye", "pixi", "pipenv"), ("run",)),
    **dict.fromkeys(("conda", "mamba", "micromamba"), ("run",)),
    "mise": ("exec", "x"),
}
"""What stands between some of these and the program."""

ARGUMENTS: Final[Mapping[str, int]] = {"direnv": 1, "flock": 1, "setarch": 1}
"""How many words stand before the program that are neither options nor it."""

INTERPRETERS: Final = frozenset(
    {
        *("python", "pypy", "pyston", "ruby", "perl", "php", "lua", "luajit", "java", "dotnet"),
        *("mono", "node", "nodejs", "bun", "deno", "tsx", "ts-node", "rscript", "julia", "escript"),
        *("go", "cargo", "poetry", "pdm", "hatch", "conda", "mise", "nix", "make", "just"),
        *("docker", "podman", "ssh", "wsl", "busybox"),
    }
)
"""Programs that run whatever they are told: their name says nothing about what that is."""

VALUED: Final = frozenset(
    {
        *("-p", "--package", "--from", "--with", "--python", "--prefix", "--registry", "--cache"),
        *("-w", "--workspace", "-C", "--dir", "--cwd", "--filter", "--node-options"),
        *("-r", "--require", "--import", "--loader", "--experimental-loader", "--env-file"),
    }
)
"""Options of runners and of node that take the next word."""

CALLS: Final = ("-c", "--call", "-S", "--split-string", "--command", "-qc")
"""Options that take a whole command line in one word."""

ALONE: Final = frozenset(
    {"-i", "-E", "-n", "-f", "-q", "-w", "-y", "--yes", "--quiet", "--ignore-environment", "-"}
)
"""Options of such programs that take no word, whatever else they mean."""

MAX_DEPTH: Final = 8
"""Programs that start one another. Nobody writes more, and every look has to end."""


def unwrap(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line without what only starts it: ``npx``, ``env``, ``node``, ``sh -c``.

    A package that is run becomes its bare name with any version cut off.
    """
    return readings(argv)[0]


def readings(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """Every command line that this one may start, the likeliest first; at least itself.

    There are several if a shell is told to run several, or if it cannot be known here whether a
    word belongs to the option before it.
    """
    return list(dict.fromkeys(map(tuple, _readings(list(argv), MAX_DEPTH))))


def _readings(words: list[str], depth: int) -> Iterator[list[str]]:
    inner = _inner(words) if words and depth else []
    if not inner:
        yield words
    for each in inner:
        yield from _readings(each, depth - 1)


_SUBSTITUTION: Final = re.compile(r"`([^`]*)`|\$\(([^()]*)\)")
_LOOKUP: Final = re.compile(
    r"\s*(?:which|command\s+-v|type\s+-[pP]|whence|echo|realpath|readlink\s+-f)\s+([^\s;&|]+)\s*"
)


def is_substituted(word: str) -> bool:
    """Whether a word waits for a shell to put the output of a command in its place."""
    return word.startswith("`") or "$(" in word


def _inner(words: list[str]) -> list[list[str]]:
    """What a command line starts, if all that it does is to start something."""
    name = program_name(words[0]).lower()
    if words[0].endswith((".js", ".mjs", ".cjs")):
        return []  # A program of somebody's own, whatever it is called.
    if name in SHELLS:
        return _told_to_shell(words[1:])
    if name == "eval":
        return _commands(" ".join(words[1:]), ())
    if name in PREFIXES:
        return [*_behind_prefix(name, words[1:]), *_called(words[1:])]
    runs = name in RUNNERS
    if not runs and name not in ("node", "nodejs"):
        return []
    called = _called(words[1:])
    if called:
        return called
    rest = words[1:]
    if runs and RUNNERS[name]:
        past = _past_options(rest)
        if past and past[0] in RUNNERS[name]:
            rest = past[1:]
        elif name not in WORDLESS:
            return []
    rest = _past_options(rest)
    return [[_bare(rest[0]) if runs else rest[0], *rest[1:]]] if rest else []


def _called(words: list[str]) -> list[list[str]]:
    """The command lines in the values of options such as ``npx -c "…"``."""
    found: list[list[str]] = []
    for number, word in enumerate(words):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if option in CALLS and not equals:
            value = next(iter(words[number + 1 :]), "")
        elif word.startswith("-S"):
            value = value if equals else word[2:]
        elif option not in CALLS:
            continue
        # A single number or name is the value of another option that looks alike.
        if len(value.split()) > 1:
            found += _commands(value, ())
    return found


def _told_to_shell(words: list[str]) -> list[list[str]]:
    """The commands that a shell is told to run, the last first; none if it is told a file."""
    for number, word in enumerate(words[:-1]):
        rest = words[number + 1 :]
        if word.lower() in ("/c", "/k") or "-command".startswith(word.lower()) and len(word) > 2:
            return _commands(" ".join(rest), ()) if len(rest) == 1 else [rest]
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return _commands(rest[0], rest[1:])
    return []


def _commands(script: str, args: Sequence[str]) -> list[list[str]]:
    """The simple commands of a shell's script, the last first.

    This is no shell: it is enough to see what people write into one line.
    """
    script, inner = _substituted(script)
    lexer = shlex.shlex(script, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        parts = list(lexer)
    except ValueError:
        return []
    commands: list[list[str]] = [[]]
    skip = False
    for part in parts:
        if set(part) <= set("();<>|&\n"):
            # A redirection has a number before it, maybe, and a file behind it.
            skip = "<" in part or ">" in part
            if skip and commands[-1][-1:] and commands[-1][-1].isdigit():
                commands[-1].pop()
            elif not skip:
                commands.append([])
        elif skip:
            skip = False
        else:
            commands[-1] += _positional(part, args)
    # Assignments may stand before the program, as behind `env`.
    found = [["env", *command] for command in reversed(commands) if command]
    return [*found, *(command for text in inner for command in _commands(text, args))]


def _substituted(script: str) -> tuple[str, list[str]]:
    """A script without commands inside of words, and those commands. One that only looks up a
    program, such as ``which``, is that program."""
    inner: list[str] = []

    def put(found: re.Match[str]) -> str:
        text = found[1] if found[1] is not None else found[2]
        looked_up = _LOOKUP.fullmatch(text.replace('"', ""))
        if looked_up is not None:
            return looked_up[1]
        inner.append(text)
        return "$_"

    for _ in range(MAX_DEPTH):
        # Those inside of others come first.
        script, count = _SUBSTITUTION.subn(put, script)
        if not count:
            break
    return script, inner


def _positional(word: str, args: Sequence[str]) -> Sequence[str]:
    """A word of a script, or the arguments of the shell that it stands for."""
    if word in ("$@", "$*", "${@}", "${*}"):
        return args[1:]
    if len(word) == 2 and word[0] == "$" and word[1].isdigit():
        return args[int(word[1]) : int(word[1]) + 1]
    return (word,)


def _behind_prefix(name: str, words: list[str]) -> list[list[str]]:
    """What may come behind the options, settings and numbers of a program such as ``env``."""
    found = [words[words.index("--") + 1 :]] if "--" in words else []
    subcommands = SUBCOMMANDS.get(name, ())
    arguments = ARGUMENTS.get(name, 0)
    before = ""
    while words:
        word = words[0]
        if word == "--":
            break
        passed = word.startswith("-") or "=" in word or word[:1].isdigit() or word in subcommands
        if not passed and arguments:
            arguments -= 1
        elif not passed:
            found.append(words)
            if not before.startswith("-") or "=" in before or before in ALONE:
                break
            # It may be the value of the option before it.
        before = word
        words = words[1:]
    return found or [[]]


def _past_options(words: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        if words[0] == "--":
            return words[1:]
        words = words[2:] if words[0] in VALUED else words[1:]
    return words


def _bare(package: str) -> str:
    """A package without its version: ``@google/gemini-cli@0.61.0`` is ``@google/gemini-cli``."""
    package = package.removeprefix("npm:")
    head, at, _ = package[1:].partition("@")
    return package[:1] + head if at else package


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
