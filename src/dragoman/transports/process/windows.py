"""Start and end programs on Windows: PATHEXT, `.cmd` files, quoting for cmd.exe, process handles.

Parses the `.cmd` shims of npm, pnpm and yarn and starts their target without a shell. `FileLookup`
makes this testable on every system. Does not end a whole process tree: there is no job object, so
CTRL_BREAK reaches the group, but a forced end only the direct child.
"""

from __future__ import annotations

import ntpath
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dragoman.errors import ProgramNotFound, SpawnError
from dragoman.transports.process.child import Handle

CREATE_NEW_PROCESS_GROUP = 0x00000200
CREATE_NO_WINDOW = 0x08000000

CREATION_FLAGS = CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW
"""Start the child in its own process group, so that CTRL_BREAK reaches it and not us, and without a
flashing console window.
"""

DEFAULT_PATHEXT = ".COM;.EXE;.BAT;.CMD"

SHIM_SIZE = 64 * 1024
"""Maximum number of bytes read from a batch file: a shim has a few hundred."""

SHIM_DEPTH = 4
"""Maximum length of a chain of shims: yarn puts one in front of npm's."""

UNSAFE_IN_BATCH = re.compile(r'[%"\r\n\0]')
"""Characters that no quoting protects from cmd.exe: a percent sign is expanded inside quotes too, a
quote ends them, and a line break ends the command. They turn arguments into commands."""

PLAIN_ARGUMENT = re.compile(r"[A-Za-z0-9_\-./\\:@+]+")
"""Arguments that cmd.exe and the program take literally, without quotes."""

PROG = "%_prog%"
"""How npm's shims name the program that an earlier line chose."""

SHIM_SETTING = re.compile(r'\s*@?set\s+"(?P<name>_prog|NODE_PATH)=(?P<value>[^"]*)"\s*', re.I)
"""The two settings of a shim that affect what it starts."""

SHIM_PADDING = re.compile(
    r"""\s*@?(
        | echo\ off | setlocal | endlocal | \( | \) | \)\s*else\s*\(
        | goto\ start | :start | :find_dp0 | call\ :find_dp0 | exit\ /b.* | rem\b.* | ::.*
        | set\ dp0=%~dp0 | set\ PATHEXT=%PATHEXT:;\.JS;=;% | title\ %COMSPEC%
        | goto\ \#_undefined_\#\ 2>NUL
        | if\ exist\ "[^"]*"\ \( | if\ not\ defined\ NODE_PATH\ \(
    )\s*""",
    re.I | re.X,
)
"""Other lines of known shims. A batch file that does anything else is not treated as a shim."""


class FileLookup(Protocol):
    """The file system operations needed here."""

    def is_file(self, path: str) -> bool:
        """Return whether this path is a file."""

    def read_text(self, path: str) -> str:
        """Return the beginning of a file as text, or an empty string if it cannot be read."""


class RealFiles:
    """The file system of this machine."""

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def read_text(self, path: str) -> str:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read(SHIM_SIZE)
        except OSError:
            return ""


@dataclass(frozen=True, slots=True)
class CreateProcessPlan:
    """The arguments for CreateProcess. `environment` has only variables to add to the child's
    own."""

    program: str
    command_line: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shim:
    """The command that a batch file starts: a program, the arguments before ours, and NODE_PATH."""

    program: str
    arguments: tuple[str, ...] = ()
    node_path: str = ""


def plan_command(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: str | os.PathLike[str] | None = None,
    files: FileLookup | None = None,
) -> CreateProcessPlan:
    """Return how to start a command: directly where possible, else safely quoted through cmd.exe.
    Raises `SpawnError` if neither is possible."""
    files = files or RealFiles()
    found = find_program(argv[0], environment=environment, folder=folder, files=files)
    arguments = list(argv[1:])
    extra: dict[str, str] = {}
    program = found
    for _ in range(SHIM_DEPTH):
        if not _is_batch(program):
            break
        shim = read_shim(program, environment=environment, files=files)
        if shim is None:
            line = batch_command_line(program, arguments, text=files.read_text(program))
            return CreateProcessPlan(_cmd_exe(environment), line, extra)
        program = shim.program
        arguments[:0] = shim.arguments
        if shim.node_path:
            before = _variable(environment, "NODE_PATH")
            extra["NODE_PATH"] = f"{shim.node_path};{before}" if before else shim.node_path
    extension = ntpath.splitext(program)[1].lower()
    if extension not in (".exe", ".com"):
        raise SpawnError(f"{found} cannot be started: {program} is not a program")
    return CreateProcessPlan(program, subprocess.list2cmdline([program, *arguments]), extra)


def find_program(
    program: str,
    *,
    environment: Mapping[str, str],
    folder: str | os.PathLike[str] | None = None,
    files: FileLookup,
) -> str:
    """Return the path of the file that a command name resolves to. Searches the directories of PATH
    in order, with each ending in PATHEXT; a name with a directory is resolved against `folder`.
    Raises `ProgramNotFound`.

    Unlike cmd.exe, it skips the current directory, where anyone may have put a program of that
    name, and relative entries of PATH. A file without an extension is not used: it is npm's script
    for Unix shells.
    """
    pathext = _variable(environment, "PATHEXT") or DEFAULT_PATHEXT
    extensions = [extension.lower() for extension in pathext.split(";") if extension]
    given = ntpath.splitext(program)[1].lower()
    endings = ["", *extensions] if given in extensions else extensions
    if "\\" in program or "/" in program or ntpath.splitdrive(program)[0]:
        places = [ntpath.abspath(os.fspath(folder)) if folder else ""]
    else:
        path = _variable(environment, "PATH")
        places = [place.strip('"') for place in path.split(";") if ntpath.isabs(place.strip('"'))]
    for place in places:
        for ending in endings:
            path = ntpath.normpath(ntpath.join(place, program + ending))
            if files.is_file(path):
                return path
    raise ProgramNotFound(program, f"looked in {';'.join(places)} for {';'.join(endings)}")


def read_shim(path: str, *, environment: Mapping[str, str], files: FileLookup) -> Shim | None:
    """Return what a batch file starts, if starting one program is all it does; else None."""
    text = files.read_text(path)
    folder = ntpath.dirname(path)
    commands: list[list[str]] = []
    programs: list[str] = []
    node_path = ""
    for line in text.splitlines():
        if setting := SHIM_SETTING.fullmatch(line):
            if setting["name"].lower() == "_prog":
                programs.append(_expand(setting["value"], folder))
            elif "%" not in setting["value"]:
                node_path = setting["value"]
        elif "%*" in line:
            words = _started_by(line, folder)
            if words is None:
                return None
            commands.append(words)
        elif not SHIM_PADDING.fullmatch(line):
            return None
    # The branches (a node.exe next to the shim, or else the one on PATH) start the same script.
    if len({tuple(words[1:]) for words in commands}) != 1:
        return None
    arguments = commands[0][1:]
    names = [name for words in commands for name in (programs if words[0] == PROG else words[:1])]
    if any("%" in word for word in (*names, *arguments)):
        return None
    for word in arguments:
        if ntpath.isabs(word) and not files.is_file(word):
            raise SpawnError(f"{path} starts {word}, which does not exist")
    program = _first_program(names, path, environment, files)
    return None if program is None else Shim(program, tuple(arguments), node_path)


def batch_command_line(script: str, arguments: Sequence[str], *, text: str = "") -> str:
    """Return the command line for a batch file that is not a shim.

    Raises `SpawnError` if an argument cannot be quoted safely.
    """
    # A batch file that enables delayed expansion would expand exclamation marks as well.
    delayed = "enabledelayedexpansion" in text.lower()
    for word in (script, *arguments):
        if UNSAFE_IN_BATCH.search(word) or (delayed and "!" in word):
            raise SpawnError(
                f"{script} is a batch file, and {word!r} cannot be passed to cmd.exe safely"
            )
    words = [f'"{script}"', *map(_quote_for_batch, arguments)]
    return f'cmd.exe /d /e:on /v:off /s /c "{" ".join(words)}"'


def _started_by(line: str, folder: str) -> list[str] | None:
    """Return the words of the one command that a line passes all our arguments to, or None if
    unclear."""
    head, star, tail = line.rpartition("%*")
    if not star or tail.strip():
        return None
    *before, command = re.split(r"\|\||&&?", head)
    if not all(SHIM_PADDING.fullmatch(part) for part in before):
        return None
    words: list[str] = []
    for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', command.strip().removeprefix("@")):
        if re.search(r'[<>|^&()"]', bare):
            return None
        words.append(_expand(quoted or bare, folder))
    return words or None


def _expand(word: str, folder: str) -> str:
    """Replace `%~dp0` or `%dp0%` in a word by the directory of the shim."""
    for spelling in ("%~dp0", "%dp0%"):
        if spelling in word:
            return ntpath.normpath(word.replace(spelling, folder + "\\"))
    return word


def _first_program(
    names: Sequence[str], shim: str, environment: Mapping[str, str], files: FileLookup
) -> str | None:
    """Return the path of the first of `names` that is found next to the shim or on PATH. If none
    is, raise `ProgramNotFound` if the last one is node or an absolute path, else return None."""
    for name in names:
        try:
            return find_program(name, environment=environment, files=files)
        except ProgramNotFound:
            continue
    if ntpath.isabs(names[-1]) or names[-1].lower() in ("node", "node.exe"):
        raise ProgramNotFound(names[-1], f"{shim} needs it")
    # A built-in command of the shell, such as echo.
    return None


def _quote_for_batch(word: str) -> str:
    if PLAIN_ARGUMENT.fullmatch(word):
        return word
    # The program behind the batch file treats a backslash before a quote as an escape.
    backslashes = len(word) - len(word.rstrip("\\"))
    return f'"{word}{chr(92) * backslashes}"'


def _is_batch(path: str) -> bool:
    return ntpath.splitext(path)[1].lower() in (".cmd", ".bat")


def _variable(environment: Mapping[str, str], name: str) -> str:
    """Return the variable with this upper-case name, in any case as on Windows; empty if not
    set."""
    for known, value in environment.items():
        if known.upper() == name:
            return value
    return ""


def _cmd_exe(environment: Mapping[str, str]) -> str:
    """Return the system's cmd.exe.

    COMSPEC is ignored: it may name another shell with other quoting.
    """
    root = _variable(environment, "SYSTEMROOT") or "C:\\Windows"
    return ntpath.join(root, "System32", "cmd.exe")


class WindowsHandle(Handle):
    """A child identified by its Popen object, whose open handle keeps the pid from being reused."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:  # noqa: TID251 - only a type
        super().__init__(popen.pid)
        self._popen = popen

    def signal_group(self, number: int) -> None:
        """Send a signal.

        SIGTERM becomes CTRL_BREAK for the group; any other signal ends the direct child.
        """
        if self._popen.returncode is not None:
            return
        polite = getattr(signal, "CTRL_BREAK_EVENT", None)
        try:
            if number == signal.SIGTERM and polite is not None:
                self._popen.send_signal(polite)
            else:
                self._popen.kill()
        except OSError:
            # It is already ending, or has no console to be signalled through.
            return

    def status(self) -> tuple[int | None, int | None] | None:
        code = self._popen.poll()
        return None if code is None else (code, None)

    def wait(self) -> None:
        self._popen.wait()

    def reap(self) -> None:
        self._popen.poll()
