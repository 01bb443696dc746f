"""Analyse a command line: which program it starts, which peer that is, and whether it is wrong.

Finds the program that ``npx``, ``env``, ``node`` or ``sh -c`` would start (`policy.shell_parser`
parses the line for a shell) and refuses command lines that are known not to start an agent
(`WrongLaunch`). Starts nothing. `catalogue.launch` resolves a peer by its name.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace

from dragoman.catalogue.descriptor import PYTHON, Descriptor, Launch, WrongForm
from dragoman.catalogue.launch import LaunchSpec, program_name, spec_for
from dragoman.catalogue.load import BUILT_IN, Catalogue
from dragoman.client.options import AUTO
from dragoman.errors import WrongLaunch
from dragoman.transports.process.environment import which

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
"""Programs that run a package by its name, with the subcommand that does it."""

PREFIXES: Final = frozenset({"command", "env", "exec", "nice", "nohup", "sudo", "time", "timeout"})
"""Programs and shell words that only change how the program after them runs."""

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh"})

VALUED: Final = frozenset(
    {
        *("-p", "--package", "--from", "--with", "--python", "--prefix", "--registry", "--cache"),
        *("-r", "--require", "--import", "--loader", "--experimental-loader", "--env-file"),
        *("-u", "-g", "-C", "-s", "-k", "-n"),
    }
)
"""Options of the programs above that take the next argument as their value."""

ALONE: Final[Mapping[str, frozenset[str]]] = {"sudo": frozenset({"-k", "-n", "-s"})}
"""Exceptions to `VALUED`: options that take no argument with these programs."""

NAMELESS: Final = frozenset(
    {"cargo", "dotnet", "escript", "go", "java", "just", "make", "mono", "wsl"}
)
"""Programs that run other code, so that their name does not say what is started;
`policy.command_expansion` has more of them."""

MAX_DEPTH: Final = 8
"""Maximum number of nested programs to look through, such as ``env sh -c …``, so that the search
ends."""


def readings(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the command lines that this one starts in the end, directly or through other programs,
    the most likely first; only itself if its program starts no other.

    There are several if a shell runs several. A package that is run by its name is returned without
    its version.
    """
    return list(dict.fromkeys(_readings(tuple(argv), MAX_DEPTH)))


def _readings(words: tuple[str, ...], depth: int) -> list[tuple[str, ...]]:
    inner = _inner(words) if words and depth else []
    if not inner:
        return [words]
    return [found for each in inner for found in _readings(each, depth - 1)]


def _inner(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the command lines that a command line starts directly; empty if it starts no other."""
    if words[0].endswith((".js", ".mjs", ".cjs")):
        return []  # It is a separate program, whatever it is called.
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
    """Return the commands in the argument of a shell's ``-c``, the last one first; empty without
    ``-c``."""
    from dragoman.policy.shell_parser import find_commands

    for option, line in zip(words, words[1:], strict=False):
        if option.startswith("-") and not option.startswith("--") and option.endswith("c"):
            return find_commands(line)[::-1]
    return []


def _behind_options(
    name: str, words: tuple[str, ...], *, settings: bool = False
) -> tuple[str, ...]:
    """Return the words after the options; with `settings`, also skip ``A=1`` and numbers."""
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
    """Return a package without its version, such as ``@google/gemini-cli`` for
    ``@google/gemini-cli@0.61.0``."""
    head, at, _ = package[1:].partition("@")
    return package[:1] + head if at else package


def runs_anything(program: str) -> bool:
    """Return whether a program runs other programs (env, npx, sh), so that its own name does
    not say what is started."""
    from dragoman.policy.command_expansion import SUBRUNNERS, is_runner

    name = program_name(program).lower()
    return is_runner(name) or any(name in names for names in (NAMELESS, RUNNERS, SUBRUNNERS))


# -- which peer a command line starts


def describe_command(argv: Sequence[str], catalogue: Catalogue) -> LaunchSpec:
    """Return the launch spec for a command line that a user wrote.

    A program of a known peer gets that peer's environment and settings. Raises `WrongLaunch`, with
    the effect and the fix, for a form that is known to be wrong. Nothing is started, because some
    programs treat a wrong form as a prompt.
    """
    argv = tuple(argv)
    started = _started(argv, catalogue)
    _refuse_wrong(argv, started, catalogue)
    known = _started_so(argv, catalogue)
    if known is not None:
        return spec_for(known, Launch(command=argv), argv)
    for plain, names in started:
        known = _peer_of(names, plain, catalogue)
        if known is not None:
            break
    else:
        return LaunchSpec(command=argv)
    if not _is_launch(known, names, plain[1:]):
        if any(form.dangerous for form in known.wrong_forms):
            right = shlex.join(_usual(known).command)
            raise WrongLaunch(
                shlex.join(argv),
                f"it is not how {known.title} is started as an agent, "
                "and it may send what it reads to its model as a prompt",
                f"`{right}`",
            )
        # It may be an undocumented form: the environment of its program does no harm, and the
        # dialect is detected.
        return replace(spec_for(known, Launch(command=argv), argv), protocol=AUTO, details={})
    return spec_for(known, Launch(command=argv), argv)


def refuse_described(spec: LaunchSpec, catalogue: Catalogue) -> None:
    """Raise `WrongLaunch` if the command line of a peer's launch spec is known to be wrong.
    Built-in peers are not checked, because they were tested."""
    peer = spec.descriptor
    if peer is None or spec.command is None or catalogue.origin(peer.name) == BUILT_IN:
        return
    _refuse_wrong(spec.command, _started(spec.command, catalogue), catalogue)


_Started: TypeAlias = list[tuple[tuple[str, ...], set[str]]]
"""Every interpretation of a command line, with the names that its program may be known by."""


def _started(argv: Sequence[str], peers: Iterable[Descriptor]) -> _Started:
    return [(plain, _all_names(plain, peers)) for plain in readings(argv)]


def wrong_form(argv: Sequence[str], peers: Collection[Descriptor]) -> WrongForm | None:
    """Return the known wrong form that a command line matches, or None.

    A command line that also matches a launch of the peer is not wrong, although it may contain the
    words of a wrong form.
    """
    return _wrong_form(_started(argv, peers), peers)


def _wrong_form(started: _Started, peers: Iterable[Descriptor]) -> WrongForm | None:
    for plain, names in started:
        for peer in peers:
            for form in peer.wrong_forms:
                if form.command[0] in names and _within(form.command[1:], plain[1:]):
                    if not _is_launch(peer, names, plain[1:]):
                        return form
    return None


def _refuse_wrong(argv: Sequence[str], started: _Started, catalogue: Catalogue) -> None:
    form = _wrong_form(started, catalogue)
    if form is not None:
        raise WrongLaunch(shlex.join(argv), form.effect, form.remedy)


def _all_names(plain: Sequence[str], peers: Iterable[Descriptor]) -> set[str]:
    """Return the names that a command line's program may be known by. Empty if the command line
    names no program."""
    names = _names(plain[0]) if plain and plain[0] else set()
    for peer in peers:
        if names & _programs(peer):
            # For a package that is run by its name, the package is the known program.
            names |= _programs(peer)
    return names


def _names(program: str) -> set[str]:
    """Return the names that a program may be known by: its file name (also in lower case, and with
    links resolved), and the package that it is or belongs to."""
    names = {program_name(program), program_name(program).lower(), program}
    file = program if "/" in program or "\\" in program else which(program)
    if file is not None and not runs_anything(program):
        names.add(program_name(os.path.realpath(file)))
        from dragoman.catalogue.npm_package import package_name

        package = package_name(Path(file))
        if package is not None:
            names.add(package)
    return names


def _started_so(argv: Sequence[str], catalogue: Catalogue) -> Descriptor | None:
    """Return the peer that has exactly this command line as a launch, or None."""
    for peer in catalogue:
        if any(launch.command and launch.command == argv for launch in peer.launch):
            return peer
    return None


def _peer_of(names: set[str], plain: Sequence[str], catalogue: Catalogue) -> Descriptor | None:
    """Return the peer that a program belongs to, or None.

    Two peers may share a program, so matching a whole launch is preferred.
    """
    found = [peer for peer in catalogue if names & _programs(peer)]
    exact = [peer for peer in found if _is_launch(peer, names, plain[1:])]
    return next(iter([*exact, *found]), None)


def _programs(peer: Descriptor) -> set[str]:
    """Return the names of a peer's programs and of their package.

    Interpreters are left out: they may run other code, which must not get the credentials.
    """
    commands = (launch.command for launch in peer.launch if launch.command)
    programs = {
        program_name(command[0])
        for command in commands
        if command[0] != PYTHON and not runs_anything(command[0])
    }
    if peer.version.package is not None:
        programs.add(peer.version.package)
    return programs


def _usual(peer: Descriptor) -> Launch:
    return next((launch for launch in peer.launch if not launch.deprecated), peer.launch[0])


def _is_launch(peer: Descriptor, names: set[str], args: Sequence[str]) -> bool:
    """Return whether a program with these names and arguments is a launch of the peer. Other
    arguments may come in between."""
    return bool(names & _programs(peer)) and any(
        launch.command and _within(launch.command[1:], args) for launch in peer.launch
    )


def _within(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether `words` contains all of `wanted`, in this order."""
    rest = iter(words)
    return all(word in rest for word in wanted)
