"""Run commands for a peer in the workspace and keep their output.

Starts a command without a tty and without input, keeps the end of its output and its exit status,
and leaves no process behind when the terminal is released. `dragoman.transports.process.stream`
starts and ends processes; `scrollback` keeps the output. No protocol is used here.
"""

from __future__ import annotations

import asyncio
import ntpath
import os
import re
import secrets
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dragoman.client.services.scrollback import Scrollback
from dragoman.client.services.workspace import Workspace
from dragoman.errors import (
    ArgumentInvalid,
    SpawnError,
    TerminalUnknown,
    TooManyTerminals,
    UsageError,
)
from dragoman.rpc.tasks import all_ended, in_thread
from dragoman.transports.pipes import open_read_pipe
from dragoman.transports.process import windows
from dragoman.transports.process.child import ChildProcess, ShutdownTimes
from dragoman.transports.process.environment import build_environment, find_program
from dragoman.transports.process.stream import spawn_ends, start_child

OUTPUT_SIZE: Final = 1024 * 1024
"""Number of output bytes to keep if the peer sets no limit: more than a model reads."""

MAX_OUTPUT_SIZE: Final = 16 * 1024 * 1024
"""Maximum number of output bytes to keep, whatever the peer requests, because they take our
memory."""

MAX_TERMINALS: Final = 64
"""Maximum number of terminals. A peer that forgets to release them gets an error, and we do not
run out of descriptors."""

REST_SIZE: Final = 1024 * 1024
"""Number of bytes still read from a pipe before it is abandoned: the maximum pipe size on Linux."""

TIMES: Final = ShutdownTimes(terminate_timeout=1.0)
"""Shutdown times of a command. It gets only one second to clean up after SIGTERM, because the peer
waits meanwhile."""

_SHELL_SIGNS: Final = re.compile(r"[\s|&;<>()$`\"'*?\[\]{}#~=%!^\\]")
"""Characters that mark a command as a shell line rather than the name of a program."""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a command ended: with a code, by a signal ("SIGKILL"), or for an unknown reason."""

    exit_code: int | None
    signal: str | None


class TerminalOutput(NamedTuple):
    """The current output of a terminal. `exit_status` is None until the command has ended and all
    its output has arrived."""

    output: str
    truncated: bool
    exit_status: ExitStatus | None


class Terminals:
    """The terminals of one session. Must be closed: `aclose` ends commands that still run.

    Background processes of a command end with it: half a second after its exit if they hold the
    output open, at once otherwise. The working directory is inside the workspace, but a command can
    go anywhere the user can: terminals are not a sandbox, and the permission policy decides whether
    a peer may use them.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        output_size: int = OUTPUT_SIZE,
        max_output_size: int = MAX_OUTPUT_SIZE,
        max_terminals: int = MAX_TERMINALS,
        inherit: Iterable[str] = (),
        times: ShutdownTimes = TIMES,
    ) -> None:
        """`inherit` names additional environment variables (or patterns) to pass to commands."""
        self._workspace = workspace
        self._output_size = output_size
        self._max_output_size = max_output_size
        self._max_terminals = max_terminals
        self._inherit = tuple(inherit)
        self._times = times
        self._terminals: dict[str, _Terminal] = {}
        self._leaving: set[_Terminal] = set()  # Released, but perhaps still ending.
        self._closed = False

    async def create(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        output_byte_limit: int | None = None,
    ) -> str:
        """Start a command and return the id of its terminal at once.

        Without `args`, a command that is not a program but looks like a shell line is run by the
        shell: some peers send an argument list, others a line. The command's environment consists
        of our allow-listed variables, those that this object's `inherit` names, and `env`, which
        takes precedence. Its directory is `cwd`, or the first root.
        """
        env = dict(env or {})
        _require_sane(command, args, env)
        limit_size = self._output_size
        if output_byte_limit is not None:
            if isinstance(output_byte_limit, bool) or output_byte_limit < 0:
                raise ArgumentInvalid(
                    f"the output limit must be 0 or more bytes, not {output_byte_limit!r}"
                )
            limit_size = min(output_byte_limit, self._max_output_size)
        self._require_room()
        where = self._workspace.roots[0] if cwd is None else cwd

        def prepare(_: object) -> tuple[list[str], str]:
            folder = str(self._workspace.resolve_folder(where))
            environment = build_environment(inherit=self._inherit, extra=env)
            return command_line(command, args, environment=environment, folder=folder), folder

        argv, folder = await in_thread(os.fspath(where), prepare)
        # Nothing below awaits, so a cancellation cannot lose the started command.
        self._require_room()
        terminal = _Terminal(limit_size)
        terminal.start(argv, folder, env, self._inherit, self._times)
        terminal_id = secrets.token_hex(8)
        self._terminals[terminal_id] = terminal
        return terminal_id

    def output(self, terminal_id: str) -> TerminalOutput:
        """Return the output so far, and how the command ended if it has. Never waits."""
        terminal = self._find(terminal_id)
        kept = terminal.scrollback
        return TerminalOutput(kept.text(), kept.truncated, terminal.exit_status)

    async def wait_for_exit(self, terminal_id: str) -> ExitStatus:
        """Wait until the command has ended and all its output has arrived.

        Only the caller knows how long a command may run, so the caller sets the timeout. Killing or
        releasing the terminal ends the wait.
        """
        return await self._find(terminal_id).wait()

    async def kill(self, terminal_id: str) -> None:
        """End the command and all its processes. The terminal and its output stay."""
        await self._find(terminal_id).shutdown()

    async def release(self, terminal_id: str) -> None:
        """Forget the terminal, after ending its command if it still runs."""
        terminal = self._find(terminal_id)
        del self._terminals[terminal_id]
        self._leaving.add(terminal)
        await terminal.shutdown()

    async def aclose(self) -> None:
        """End every command. No process is left afterwards, even if this is cancelled."""
        self._closed = True
        ending = [*self._terminals.values(), *self._leaving]
        self._terminals.clear()
        self._leaving.update(ending)
        await all_ended(*(terminal.shutdown() for terminal in ending))

    def _find(self, terminal_id: str) -> _Terminal:
        try:
            return self._terminals[terminal_id]
        except KeyError:
            raise TerminalUnknown(terminal_id) from None

    def _require_room(self) -> None:
        if self._closed:
            raise UsageError("the terminals of this session are closed")
        self._leaving = {terminal for terminal in self._leaving if not terminal.gone}
        if len(self._terminals) + len(self._leaving) >= self._max_terminals:
            raise TooManyTerminals(self._max_terminals)


class _Terminal:
    """One command and its output."""

    def __init__(self, limit_size: int) -> None:
        self.scrollback = Scrollback(limit_size)
        self.gone = False
        """Whether no process of the command is left."""
        self._ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self._output_ended = False

    def start(
        self,
        argv: Sequence[str],
        folder: str,
        env: Mapping[str, str],
        inherit: Iterable[str],
        times: ShutdownTimes,
    ) -> None:
        with spawn_ends() as ends:
            ends += os.pipe()
            ends.append(os.open(os.devnull, os.O_RDONLY))
            reading, writing, nothing = ends
            child = start_child(
                argv,
                stdin=nothing,
                stdout=writing,
                stderr=writing,
                cwd=folder,
                env=env,
                inherit=inherit,
                times=times,
            )
        os.close(writing)
        os.close(nothing)
        self._child: ChildProcess = child
        self._pipe = open_read_pipe(reading, self.scrollback.feed, self._on_output_end)
        child.on_exit = self._settle
        child.on_gone = self._on_gone
        self._pipe.start()

    @property
    def exit_status(self) -> ExitStatus | None:
        """How the command ended; None until all its output has arrived."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> ExitStatus:
        await asyncio.wait((self._ended,))
        return self._ended.result()

    async def shutdown(self) -> None:
        await self._child.shutdown()

    def _on_output_end(self, _: OSError | None) -> None:
        self._output_ended = True
        self.scrollback.end()
        self._child.output_ended()
        self._settle()

    def _on_gone(self) -> None:
        """Called when the command and everything it left behind are gone.

        What is in the pipe is read once more; a pipe that is still open is abandoned.
        """
        self.gone = True
        if not self._output_ended:
            self._pipe.deliver_available(REST_SIZE)
        if not self._output_ended:
            self._pipe.close()
            self._on_output_end(None)
        self._settle()

    def _settle(self) -> None:
        """Report the exit once the output is complete, because peers read it right afterwards."""
        if self._output_ended and (self._child.exited or self.gone) and not self._ended.done():
            self._ended.set_result(_status_of(self._child))


def command_line(
    command: str,
    args: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: str,
    platform: str = sys.platform,
) -> list[str]:
    """Return the argument list for a peer's command: a program, always if there are `args`, or a
    line for the shell.

    A command with shell characters is a program only if it exists and, except on Windows, starts
    like a path. A checkout can contain a directory `cat a` with a program `b`, so `cat a/b` is
    treated as a shell line.
    """
    if args or not _SHELL_SIGNS.search(command):
        return [command, *args]
    if platform != "win32" and not command.startswith(("/", "./", "../")):
        return ["/bin/sh", "-c", command]
    try:
        if platform == "win32":
            files = windows.RealFiles()
            windows.find_program(command, environment=environment, folder=folder, files=files)
        else:
            find_program(command, environment=environment, folder=folder)
    except SpawnError:
        if platform == "win32":
            shell = ntpath.join(environment.get("SYSTEMROOT", "C:\\Windows"), "System32", "cmd.exe")
            return [shell, "/d", "/s", "/c", command]
        return ["/bin/sh", "-c", command]
    return [command]


def _status_of(child: ChildProcess) -> ExitStatus:
    if child.signal is None:
        return ExitStatus(child.exit_code, None)
    try:
        return ExitStatus(None, signal.Signals(child.signal).name)
    except ValueError:
        return ExitStatus(None, f"SIG{child.signal}")


def _require_sane(command: str, args: Sequence[str], env: Mapping[str, str]) -> None:
    if not command:
        raise ArgumentInvalid("the command is empty")
    if isinstance(args, str):
        raise ArgumentInvalid("the arguments must be a list, not a string")
    for name in env:
        if not name or "=" in name:
            raise ArgumentInvalid(f"{name!r} is not the name of an environment variable")
    for text in (command, *args, *env.keys(), *env.values()):
        if "\0" in text:
            raise ArgumentInvalid(f"{text[:200]!r} contains a NUL byte")
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise ArgumentInvalid(f"{text[:200]!r} is not valid Unicode") from None
