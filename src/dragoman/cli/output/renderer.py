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
    """A turn that is over."""

    peer: str
    """What it was called by: a peer's name or a command line."""
    session: str
    result: Result
    seconds: float
    exit_code: int
    model: str | None = None
    mode: str | None = None
    """The model and the mode as the agent tells them, not as they were asked for."""
    interrupted: bool = False
    job: str = ""
    session_key: str = ""
    """What the session is stored under."""
    context: str = "new"
    """What the agent knew of the session: new, live, restored or fresh."""
    unenforced: str = ""
    """Why the policy did not restrict the agent; empty if it did."""
    violations: tuple[str, ...] = ()
    """Files that changed in the turn although no request for that was allowed."""
    ignored_servers: Sequence[str] = ()
    """The names of MCP servers that were handed over and that the agent does not use."""


def cut_notice(report: TurnReport) -> str:
    """Says that the text of a result is not all that the agent said, and where all of it is."""
    return (
        f"the answer is longer than {len(report.result.text)} characters and was cut there;"
        f" `dragoman sessions show {report.session_key} --format quiet` prints all of it"
    )


class Renderer(abc.ABC):
    """Shows what happens, as it happens."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.on_broken: Callable[[], None] | None = None
        """Called once when nobody reads the output any more."""
        self._stderr_rest = b""
        self.broken = False
        self.lost = False
        """Whether output that somebody wanted could not be written."""
        self.tells_jobs = True
        """Whether the id of a job is worth a line; in a conversation it is not."""
        self._flushing = False

    @abc.abstractmethod
    def event(self, event: model.Event) -> None:
        """Something happened."""

    def began(self, job: str, session_key: str) -> None:  # noqa: B027 - most have no use for it
        """A turn begins, as this job."""

    def doing(self, what: str) -> None:  # noqa: B027 - most have no use for it
        """What is waited for from now on, such as "starting codex"; empty if nothing is. A terminal
        shows it in a status line, with the time since the first one, until the turn ends."""

    @abc.abstractmethod
    def ended(self, report: TurnReport) -> None:
        """The turn is over."""

    @abc.abstractmethod
    def failed(self, error: DragomanError) -> None:
        """No turn came about, or no more."""

    def submitted(self, job: str, session_key: str) -> None:
        """A turn was left to a broker, as this job: that is all there is to say."""
        self.write(f"{job}\n")
        self.flush()

    def notice(self, text: str) -> None:
        """Something that a person should know; a program has no use for it."""
        put_lines(self.err, f"dragoman: {text}\n")

    def agent_stderr(self, data: bytes) -> None:
        """What the agent wrote to its stderr, line by line, for a person who asked for it."""
        *lines, self._stderr_rest = (self._stderr_rest + data).split(b"\n")
        for line in lines:
            self.stderr_line(line.decode("utf-8", "replace").rstrip())

    def stderr_line(self, line: str) -> None:
        put(self.err, f"agent: {line}\n")

    def write(self, text: str) -> None:
        """Write to stdout, soon: what one turn of the loop writes leaves in one piece."""
        self._write(put, text)

    def write_lines(self, text: str) -> None:
        """`write` for whole lines, which a terminal gets folded at words."""
        self._write(put_lines, text)

    def write_data(self, text: str) -> None:
        """`write` for what programs read."""
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
            # Here and not above: commands that need no loop print, too.
            import asyncio

            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
                return
            self._flushing = True
            loop.call_soon(self.flush)

    def draw(self, text: str) -> None:
        """Write to a terminal at once, without a change: for what is redrawn in place."""
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
            # A reader that goes away has had enough; a full disk has not.
            self.lost = True
            self.notice(f"the output cannot be written: {error.strerror or error}")
        if self.on_broken is not None:
            self.on_broken()


def show_as(format: Format, *, strict: bool = False, verbose: bool = False) -> Renderer:
    """The way of showing that was asked for. Each is loaded when it is needed."""
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
