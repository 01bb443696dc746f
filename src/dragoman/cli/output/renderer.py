"""`Renderer`, the base class of the output formats, and `TurnReport`, the summary of a turn.

The formats are `text` (people), `jsonl` (programs) and `quiet` (answer only); `show_as` chooses
one. Writing stops when the output is closed.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from msgspec import Struct

from dragoman.cli.output.terminal import held, put, put_data, put_lines, silence

if TYPE_CHECKING:
    from dragoman.client.results import Result
    from dragoman.errors import DragomanError
    from dragoman.events import model

Format: TypeAlias = Literal["text", "json", "quiet"]


class TurnReport(Struct, frozen=True, kw_only=True):
    """The report of a finished turn."""

    peer: str
    """The peer's name or command line."""
    session: str
    result: Result
    seconds: float
    exit_code: int
    model: str | None = None
    mode: str | None = None
    """The model and mode that the agent reported, not the requested ones."""
    interrupted: bool = False
    job: str = ""
    session_key: str = ""
    """The key of the stored session."""
    context: str = "new"
    """How the session was opened: new, live, restored or fresh."""
    unenforced: str = ""
    """Why the policy could not be enforced; empty if it was."""
    violations: tuple[str, ...] = ()
    """Files that changed in the turn without an allowed request."""
    ignored_servers: Sequence[str] = ()
    """Names of MCP servers that were passed to the agent but that it does not use."""


def cut_notice(report: TurnReport) -> str:
    """A notice that the text of the result was cut, and how to print all of it."""
    return (
        f"the answer is longer than {len(report.result.text)} characters and was cut there;"
        f" `dragoman sessions show {report.session_key} --format quiet` prints all of it"
    )


class Renderer(abc.ABC):
    """Base class: renders events as they happen."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.on_broken: Callable[[], None] | None = None
        """Called once when the output has been closed by its reader."""
        self._stderr_rest = b""
        self.broken = False
        self.lost = False
        """Whether output was lost because of a write error."""
        self.tells_jobs = True
        """Whether to print the job id; not in a conversation."""
        self._flushing = False

    @abc.abstractmethod
    def event(self, event: model.Event) -> None:
        """Something happened."""

    def began(self, job: str, session_key: str) -> None:  # noqa: B027 - most have no use for it
        """A turn begins as this job."""

    def doing(self, what: str) -> None:  # noqa: B027 - most have no use for it
        """Set what is being waited for, such as "starting codex"; empty for nothing. A terminal
        shows it in a status line, with the time since the first one, until the turn ends."""

    @abc.abstractmethod
    def ended(self, report: TurnReport) -> None:
        """Show the end of a turn."""

    @abc.abstractmethod
    def failed(self, error: DragomanError) -> None:
        """Show an error: no turn was run, or no further one."""

    def submitted(self, job: str, session_key: str) -> None:
        """Show that a turn was left to a broker as this job; there is no further output."""
        self.write(f"{job}\n")
        self.flush()

    def notice(self, text: str) -> None:
        """Show a notice for people; JSON output omits it."""
        put_lines(self.err, f"dragoman: {text}\n")

    def agent_stderr(self, data: bytes) -> None:
        """Show lines of the agent's stderr, if requested."""
        *lines, self._stderr_rest = (self._stderr_rest + data).split(b"\n")
        for line in lines:
            self.stderr_line(line.decode("utf-8", "replace").rstrip())

    def stderr_line(self, line: str) -> None:
        put(self.err, f"agent: {line}\n")

    def write(self, text: str) -> None:
        """Buffer output for stdout: everything written in one loop iteration is sent at once."""
        self._write(put, text)

    def write_lines(self, text: str) -> None:
        """`write` for whole lines, which a terminal gets folded at words."""
        self._write(put_lines, text)

    def write_data(self, text: str) -> None:
        """`write` for machine-readable output."""
        self._write(put_data, text)

    def _write(self, by: Callable[[TextIO, str], None], text: str) -> None:
        if self.broken:
            return
        try:
            by(self.out, text)
        except OSError as error:
            self._break(error)
            return
        if not self._flushing:
            # Imported here: commands without an event loop print, too.
            import asyncio

            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
                return
            self._flushing = True
            loop.call_soon(self.flush)

    def draw(self, text: str) -> None:
        """Write to a terminal at once and unchanged: for rows that are redrawn in place."""
        if self.broken:
            return
        try:
            held.draw(self.out, text)
        except OSError as error:
            self._break(error)

    def flush(self) -> None:
        self._flushing = False
        if self.broken:
            return
        try:
            self.out.flush()
        except OSError as error:
            self._break(error)

    def _break(self, error: OSError) -> None:
        self.broken = True
        silence(self.out)
        if not isinstance(error, BrokenPipeError):
            # A closed pipe is not an error; a full disk is.
            self.lost = True
            self.notice(f"the output cannot be written: {error.strerror or error}")
        if self.on_broken is not None:
            self.on_broken()


def show_as(format: Format, *, strict: bool = False, verbose: bool = False) -> Renderer:
    """The renderer for a format. Each module is loaded when needed."""
    match format:
        case "json":
            from dragoman.cli.output.jsonl import JsonLines

            return JsonLines(strict=strict)
        case "quiet":
            from dragoman.cli.output.quiet import Quiet

            return Quiet()
        case "text":
            from dragoman.cli.output.turn_text import TextShow

            return TextShow(verbose=verbose)
