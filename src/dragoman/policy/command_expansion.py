"""Tables of programs that run other programs (sudo, env, sh -c, xargs) and of read-only programs.

Expands a command into the commands inside it: ``env A=1 rm x`` and ``sh -c 'rm x'`` both contain
``rm x``, and code for an interpreter counts as an unknown command. `policy.command_patterns`
matches the results. Commands that a program reads from a file are not covered.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from dragoman.policy.globs import UNKNOWN
from dragoman.policy.harmless_options import doubtful
from dragoman.policy.risky_flags import beyond, runs_others
from dragoman.policy.shell_parser import ANYTHING, ASSIGNMENT, MAX_DEPTH, ShellCommand, read_line

MAX_INNER: Final = 200
"""Maximum number of words in one command that may each begin another command."""

SHELLS: Final = frozenset(
    "sh bash zsh dash ksh ksh93 mksh oksh pdksh ash rbash yash posh hush osh".split()
)
OTHER_SHELLS: Final = frozenset(
    "cmd powershell pwsh csh tcsh fish nu xonsh elvish rc es ion sash".split()
)
"""Shells whose language is not that of POSIX shells."""

RUNNERS: Final = frozenset(
    """
    arch builtin bunx busybox bwrap caffeinate capsh catchsegv ccache cgexec chpst chronic chroot
    chrt command cpulimit dbus-run-session doas dotenv dotenvx dumb-init eatmydata entr env exec
    fakeroot faketime firejail flock gdb genv gnice gosu gtimeout hyperfine ionice linux32
    linux64 ltrace mosh nice nix-shell nohup npx nsenter numactl parallel pipx pkexec pnpx
    prlimit proot proxychains proxychains4 rlwrap run0 runuser screen script setarch setpriv setsid
    setuidgid sg softlimit ssh sshpass start-stop-daemon stdbuf strace su su-exec sudo
    systemd-nspawn systemd-run taskset time timeout tini tmux torify torsocks toybox trap trickle
    unbuffer unshare uvx valgrind watch watchexec xargs xterm xvfb-run
    """.split()
)
"""Programs that take another command in their arguments."""

LOADER: Final = re.compile(r"ld[-.].*\.so[\d.]*")
"""The dynamic loader, which can be called as a program."""

_RUN: Final = frozenset({"run", "exec"})
SUBRUNNERS: Final = {
    "bun": frozenset({"x", "exec", "run"}),
    "bundle": _RUN,
    "conda": _RUN,
    "direnv": _RUN,
    "docker": _RUN,
    "hatch": _RUN,
    "kubectl": frozenset({"run", "exec", "debug"}),
    "mamba": _RUN,
    "mise": frozenset({"exec", "x"}),
    "nix": frozenset({"run", "shell", "develop"}),
    "npm": frozenset({"exec", "x", "explore"}),
    "pdm": _RUN,
    "perf": frozenset({"stat", "record", "trace"}),
    "pipenv": _RUN,
    "pnpm": frozenset({"exec", "dlx"}),
    "podman": _RUN,
    "poetry": _RUN,
    "rye": _RUN,
    "uv": frozenset({"run", "tool"}),
    "yarn": frozenset({"exec", "dlx", "run"}),
}
"""Programs that take another command after one of these words."""

OWN_SUBCOMMANDS: Final = {
    "pnpm": frozenset(
        """
        add approve-builds audit bin c cache config create dedupe deploy doctor env fetch get help i
        import init install install-test it la licenses link list ll ln ls outdated pack patch
        patch-commit patch-remove prune publish rb rebuild remove rm root run run-script self-update
        set setup start stop store t test un uninstall unlink up update upgrade version view
        whoami why
        """.split()
    ),
    "yarn": frozenset(
        """
        add audit autoclean bin cache check config constraints create dedupe explain global help
        import info init install licenses link list login logout npm outdated owner pack patch
        patch-commit plugin publish rebuild remove search set tag test unlink unplug up upgrade
        upgrade-interactive version versions why
        """.split()
    ),
}
"""The subcommands of programs that run any other word as a command: ``pnpm eslint`` is ``pnpm exec
eslint``."""

LINE_OPTIONS: Final = re.compile(
    r"-[A-Za-z]*[cS].+|-S$|--(session-)?command=|--split-string|--?i?ex$|--?(init-)?eval-command$"
)
"""Options of `RUNNERS` that take a whole command line in one word."""

FEEDERS: Final = frozenset({"xargs", "parallel", "find", "fd", "fdfind"})
"""Programs that add their own arguments to the command they run."""

FINDERS: Final = {
    "find": frozenset({"-exec", "-execdir", "-ok", "-okdir"}),
    "fd": frozenset({"-x", "-X", "--exec", "--exec-batch"}),
    "fdfind": frozenset({"-x", "-X", "--exec", "--exec-batch"}),
}

INTERPRETERS: Final = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|wish|osascript|rscript|julia"
    r"|irb|ghci|groovy|scala|jshell|guile|emacs|vim|nvim|vi|ex|ed|m4|bc|dc|expect|tsx|ts-node)"
    r"[\d.]*"
)
CODE_OPTIONS: Final = re.compile(r"-[A-Za-z]*[ceErpn]|--(eval|print|exec|command|execute|expr).*")
ALWAYS_CODE: Final = re.compile(r"ed|ex|vim?|nvim|emacs|osascript|deno|m4|bc|dc")

CODE: Final = frozenset(
    {"source", ".", "eval", "mapfile", "readarray", "complete", "enable", "crontab", "at", "batch"}
)
"""Shell commands that run their arguments or their input."""

READERS: Final = frozenset(
    """
    basename cat cd cmp comm cut date df diff dirname du echo egrep fgrep file find grep head ls nl
    printf pwd readlink realpath rg sed stat tail test true uname wc whereis which
    """.split()
)
"""Programs that only read and print, except for the words in `risky_flags`."""
SYSTEM_FOLDERS: Final = ("/bin/", "/usr/bin/")

PATH_MOVERS: Final = frozenset(
    "rm rmdir unlink shred mv cp chmod chown chgrp ln rsync tar zip trash truncate install".split()
)
"""Programs that can change a whole directory by its name."""


def name_of(word: str) -> str:
    """Return the name of a program without path and extension."""
    base = re.split(r"[/\\]", word)[-1].casefold()
    return re.sub(r"\.(exe|cmd|bat|com|ps1)$", "", base)


def unfolded(command: ShellCommand, depth: int = 0) -> list[ShellCommand]:
    """Return a command and all other commands that it would visibly run. `ANYTHING` stands for
    those that cannot be determined."""
    found = [command]
    for inner in _inner(command.words):
        if inner is ANYTHING or depth >= MAX_DEPTH or len(found) > MAX_INNER:
            found.append(ANYTHING)
            if depth >= MAX_DEPTH or len(found) > MAX_INNER:
                break
        else:
            found += unfolded(inner, depth + 1)
    return found


def is_runner(word: str) -> bool:
    """Return whether the purpose of this program is to run other programs or code. A pattern that
    names such a program accepts that."""
    return name_of(word) in RUNNERS or is_interpreter(word)


def is_interpreter(word: str) -> bool:
    """Return whether this program is an interpreter that takes code."""
    name = name_of(word)
    return name in SHELLS or name in OTHER_SHELLS or INTERPRETERS.fullmatch(name) is not None


def runs_behind(words: Sequence[str]) -> int | None:
    """Return the index of the word after which another command begins, such as ``exec`` in ``npm
    exec``, or None.

    Covers only `SUBRUNNERS` and `OWN_SUBCOMMANDS`: programs whose main purpose is something else.
    """
    name = name_of(words[0])
    behind = SUBRUNNERS.get(name, frozenset())
    found = next((at for at, word in enumerate(words) if at and word in behind), None)
    if found is None and name in OWN_SUBCOMMANDS:
        places = (at for at, word in enumerate(words) if at and not word.startswith("-"))
        first = next(places, None)
        if first is not None and words[first] not in OWN_SUBCOMMANDS[name]:
            return first - 1
    return found


def _inner(words: Sequence[str]) -> Iterator[ShellCommand]:
    name, rest = name_of(words[0]), words[1:]
    if UNKNOWN in words[0]:
        return
    if name in SHELLS:
        yield from _of_shell(rest)
    elif name in OTHER_SHELLS or name in CODE:
        yield ANYTHING
        if name == "eval":
            yield from _lines([" ".join(rest)])
    elif name in FINDERS:
        yield from _of_finder(name, rest)
    elif name in RUNNERS or LOADER.fullmatch(name):
        yield from _suffixes(name, rest)
        yield from _lines([word for word in rest if re.search(r"[\s;&|<>$`]", word)])
    elif INTERPRETERS.fullmatch(name):
        if ALWAYS_CODE.fullmatch(name) or not rest or "-" in rest or _has_code(rest):
            yield ANYTHING
        else:
            yield from _behind(name, words)
    elif runs_others(name, words):
        yield ANYTHING
    else:
        yield from _behind(name, words)


def _behind(name: str, words: Sequence[str]) -> Iterator[ShellCommand]:
    """Yield what one of `SUBRUNNERS` or `OWN_SUBCOMMANDS` runs."""
    at = runs_behind(words)
    behind = words[at + 1 :] if at is not None else ()
    yield from _suffixes(name, behind)
    yield from _lines([word for word in behind if re.search(r"[\s;&|<>$`]", word)])


def _has_code(rest: Sequence[str]) -> bool:
    """Return whether an interpreter is given code in the options before the script's name."""
    previous = "-"
    for word in rest:
        if CODE_OPTIONS.match(word) or UNKNOWN in word:
            return True
        if word == "-m" or not (word.startswith("-") or previous.startswith("-")):
            return False
        previous = word
    return False


def _of_shell(rest: Sequence[str]) -> Iterator[ShellCommand]:
    takes_line = any(re.match(r"-[A-Za-z]*c", word) for word in rest)
    lines = [word for word in rest if not word.startswith(("-", "+"))]
    if not takes_line or not lines:
        # A script, or standard input.
        yield ANYTHING
    yield from _lines(lines)


def _lines(texts: Sequence[str]) -> Iterator[ShellCommand]:
    for text in texts:
        if UNKNOWN in text:
            yield ANYTHING
        else:
            yield from read_line(text, depth=1).commands


def _of_finder(name: str, rest: Sequence[str]) -> Iterator[ShellCommand]:
    for at, word in enumerate(rest):
        if word in FINDERS[name] and rest[at + 1 :]:
            yield ShellCommand((*rest[at + 1 :], UNKNOWN))
        elif word == "-delete":
            yield ShellCommand(("rm", UNKNOWN))
        elif runs_others(name, (name, word)):
            yield ANYTHING


def _suffixes(name: str, rest: Sequence[str]) -> Iterator[ShellCommand]:
    if len(rest) > MAX_INNER:
        yield ANYTHING
        return
    if any(LINE_OPTIONS.match(word) for word in rest):
        yield ANYTHING
    added = (UNKNOWN,) if name in FEEDERS else ()
    for at, word in enumerate(rest):
        if not word.startswith("-") and not ASSIGNMENT.match(word):
            yield ShellCommand((*rest[at:], *added), tainted=True)


def only_reads(commands: Sequence[ShellCommand]) -> bool:
    """Return whether none of these commands can do more than read and print. False if there are no
    commands."""
    return bool(commands) and all(_reads(command) for command in commands)


def _reads(command: ShellCommand) -> bool:
    word = command.words[0]
    name = name_of(word)
    if command.tainted or name not in READERS:
        return False
    if word != name and word not in {folder + name for folder in SYSTEM_FOLDERS}:
        return False
    if name == "find" and any(UNKNOWN in each for each in command.words):
        return False
    return not beyond(name, command.words) and not any(doubtful(name, command.words))


@dataclass(slots=True)
class ProgramRuns:
    """Everything that an act would run, and the files that it writes by redirection."""

    told: list[ShellCommand] = field(default_factory=list)
    """The commands as written."""
    every: list[ShellCommand] = field(default_factory=list)
    """These commands, and the commands inside them."""
    writes: list[str] = field(default_factory=list)
    problem: str = ""
    """Why a line counts as an unknown command; empty if it was parsed."""


def running(
    argv: Sequence[str] | None, line: str | None, *, hidden: bool, tainted: bool
) -> ProgramRuns:
    """Return what an act runs, and the files that it writes by redirection. `argv` is its command
    as words, and `line` its command as a shell line; each may be None. `hidden` and `tainted` are
    those of the `Act`."""
    found = ProgramRuns()
    if argv:
        found.told.append(ShellCommand(tuple(argv), tainted))
        found.writes += _written(argv)
    if line is not None:
        read = read_line(line)
        found.writes += read.writes
        found.problem = read.problem
        found.told += [
            each if each is ANYTHING else ShellCommand(each.words, each.tainted or tainted)
            for each in read.commands
        ]
    if hidden or not (found.told or argv is None and line is None):
        found.told.append(ANYTHING)
    found.every = [inner for command in found.told for inner in unfolded(command)]
    return found


def _written(argv: Sequence[str]) -> list[str]:
    """Return the files that the shell lines among these words write to. Empty if the program is not
    a shell."""
    if name_of(argv[0]) not in SHELLS:
        return []
    return [
        target
        for word in argv[1:]
        if not word.startswith("-") and UNKNOWN not in word
        for target in read_line(word).writes
    ]


def spelled(words: Sequence[str]) -> str:
    """Return words as a shell command line for display, with ``…`` for a word that is not
    completely known."""
    return " ".join("…" if UNKNOWN in word else shlex.quote(word) for word in words)


def real_name(word: str, folder: str) -> str:
    """Return the name of the program that a path resolves to, following links."""
    if "/" not in word and os.sep not in word:
        return name_of(word)
    try:
        return name_of(os.path.realpath(os.path.join(folder, os.path.expanduser(word))))
    except (OSError, ValueError):
        return name_of(word)
