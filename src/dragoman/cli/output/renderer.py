"""`Renderer`, the base class of the output formats, and `TurnReport` with its one-line summary.

The formats are in `turn_text` (people), `jsonl` (programs) and `quiet` (answer only); `show_as`
chooses one. Writing stops when the output is closed.
"""

from __future__ import annotations

import abc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TextIO, TypeAlias

from msgspec import Struct

from dragoman.catalogue.enforcement import NOT_ENFORCED
from dragoman.cli.output.escape import one_line
from dragoman.cli.output.terminal import held, put, put_data, put_lines, silence

if TYPE_CHECKING:
    from dragoman.catalogue.descriptor import Credentials
    from dragoman.client.results import Result
    from dragoman.errors import DragomanError
    from dragoman.events import model
    from dragoman.events.parts import Cost, Usage

Format: TypeAlias = Literal["text", "json", "quiet"]

MAX_STDERR_LINE_SIZE: Final = 64 * 1024
"""Maximum number of bytes kept of an incomplete stderr line."""


class PassedVariables(Struct, frozen=True):
    """The variables of this process that are passed to an agent, besides the usual ones."""

    names: Sequence[str]
    settings: Sequence[str] = ()
    """Those of `names` that come from the setting `peer.NAME.env`."""
    option: bool = True
    """Whether the command has --env."""


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
    """The model and mode that the agent reported, which may differ from the requested ones; None if
    it reported none."""
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
    permissions: str = ""
    """The preset of the permission policy; empty if it is unknown."""
    ignored_servers: Sequence[str] = ()
    """Names of MCP servers that were passed to the agent but that it ignores."""


def cut_notice(report: TurnReport) -> str:
    """Return a notice that the result text was cut, and how to print all of it."""
    return (
        f"the answer is longer than {len(report.result.text)} characters and was cut there;"
        f" `dragoman sessions show {report.session_key} --format quiet` prints all of it"
    )


def summary(report: TurnReport, seen: Mapping[str, Usage]) -> str:
    """Format the outcome, time, model, tokens, context, cost and denials of a turn on one line.
    `seen` has the usage from the events of the turn, by scope. Unknown values are omitted."""
    parts = [report.result.outcome.value, duration(report.seconds)]
    if report.model:
        parts.append(one_line(report.model))
    used = report.result.usage or seen.get("turn")
    if used is not None and (told := tokens(used)):
        parts.append(told)
    for usage in (used, seen.get("context"), seen.get("session")):
        if usage is not None and usage.context_used is not None and usage.context_size:
            share = 100 * usage.context_used / usage.context_size
            parts.append(f"context {share:.0f} % of {usage.context_size:,}")
            break
    for usage in (used, *seen.values()):
        if usage is not None and usage.cost is not None:
            parts.append(cost(usage.cost))
            break
    if report.result.denials:
        count = len(report.result.denials)
        parts.append(f"{count} permission{'s' if count > 1 else ''} denied")
        if report.result.approvals:
            parts.append(f"{report.result.approvals} approved")
    if report.unenforced:
        parts.append(NOT_ENFORCED)
    return ", ".join(parts)


def tokens(usage: Usage) -> str:
    """Format the tokens in and out, or the sum if only that is known; empty if nothing is known."""
    parts = []
    if usage.input_tokens is not None:
        parts.append(f"{usage.input_tokens:,} in")
    if usage.output_tokens is not None:
        parts.append(f"{usage.output_tokens:,} out")
    if parts:
        return " + ".join(parts) + " tokens"
    total = usage.total_tokens
    return "" if total is None else f"{total:,} {'token' if total == 1 else 'tokens'}"


def cost(cost: Cost) -> str:
    """Format a cost with its unit."""
    return money(cost.amount, cost.unit)


def money(amount: float, unit: str | None) -> str:
    """Format an amount of a currency, or of the peer's own unit."""
    digits = 2 if amount >= 1 else 4 if amount else 0
    return f"{amount:,.{digits}f} {one_line(unit or '')}".rstrip()


def duration(seconds: float) -> str:
    """Format seconds; as minutes and seconds from one minute on."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


class StderrLines:
    """Splits what a program writes to its stderr into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that these bytes complete. A line that is too long is returned in
        pieces."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_STDERR_LINE_SIZE:
            lines.append(self._rest)
            self._rest = b""
        return [line.decode("utf-8", "replace") for line in lines]

    def end(self) -> list[str]:
        """Return the last line, as a list, if it has no newline; otherwise an empty list."""
        rest, self._rest = self._rest, b""
        return [rest.decode("utf-8", "replace")] if rest else []


class Renderer(abc.ABC):
    """Base class of the output formats. Renders the events and results of turns as they happen."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.on_broken: Callable[[], None] | None = None
        """Callback, called once when the output was closed by its reader or can no longer be
        written; None if there is none."""
        self._stderr = StderrLines()
        self.broken = False
        self.lost = False
        """Whether output was lost because of a write error."""
        self.tells_jobs = True
        """Whether to print the ids of jobs. A chat does not."""
        self.asks_forms = False
        """Whether the agent's questions are asked at the terminal."""
        self.peer = ""
        """The name of the known peer being run; empty for another program."""
        self.credentials: Credentials | None = None
        """What the known peer's descriptor says about a login; None for another program."""
        self.passed: PassedVariables | None = None
        """The variables that are passed to the agent; None if unknown."""
        self._flushing = False

    @property
    def login(self) -> str:
        """How to log in to the peer; empty if that is unknown."""
        if self.credentials is None:
            return ""
        # Imported here: only a failed turn needs it.
        from dragoman.cli.error_messages import login_of

        return login_of(self.credentials, os.environ)

    @abc.abstractmethod
    def event(self, event: model.Event) -> None:
        """Handle an event of a turn, usually by showing it."""

    def began(self, job: str, session_key: str) -> None:  # noqa: B027 - most have no use for it
        """Handle the start of a turn as the job `job` in the stored session `session_key`."""

    def doing(self, what: str) -> None:  # noqa: B027 - most have no use for it
        """Set the current activity, such as "starting codex"; empty for none.

        A terminal shows it in a status line, with the time since the first activity, until the turn
        ends.
        """

    @abc.abstractmethod
    def ended(self, report: TurnReport) -> None:
        """Show the end of a turn."""

    @abc.abstractmethod
    def failed(self, error: DragomanError) -> None:
        """Show an error that is not the result of a turn, such as one that kept a turn from
        starting."""

    def submitted(self, job: str, session_key: str) -> None:
        """Show that a turn was submitted to a broker as the job `job`. No further output
        follows."""
        self.write(f"{job}\n")
        self.flush()

    def notice(self, text: str) -> None:
        """Show a notice for people on stderr. Strict JSON output omits it."""
        put_lines(self.err, f"dragoman: {text}\n")

    def agent_stderr(self, data: bytes) -> None:
        """Show the lines of the agent's stderr that these bytes complete."""
        for line in self._stderr.feed(data):
            self.stderr_line(line.rstrip())

    def agent_stderr_ended(self) -> None:
        """Show the last line of the agent's stderr, if it has no newline."""
        for line in self._stderr.end():
            self.stderr_line(line.rstrip())

    def stderr_line(self, line: str) -> None:
        put(self.err, f"agent: {line}\n")

    def write_error(self, error: DragomanError) -> None:
        """Write the message for an error to stderr."""
        from dragoman.cli import error_messages

        put_lines(
            self.err,
            error_messages.message(error, peer=self.peer, login=self.login, passed=self.passed),
        )

    def write_failure(self, report: TurnReport) -> None:
        """Write to stderr why a turn did not succeed, and what to do. Writes nothing if it
        succeeded."""
        from dragoman.cli import error_messages

        failure = error_messages.of_report(report, login=self.login, passed=self.passed)
        if failure is not None:
            put_lines(self.err, failure)

    def write(self, text: str) -> None:
        """Write text for people to `out`. In an event loop it is buffered: everything written in
        one loop iteration is sent at once."""
        self._write(put, text)

    def write_lines(self, text: str) -> None:
        """Like `write`, for whole lines; they are wrapped at words on a terminal."""
        self._write(put_lines, text)

    def write_data(self, text: str) -> None:
        """Like `write`, for machine-readable output, which is escaped only on a terminal."""
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
            # Imported here: commands without an event loop print as well.
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
    """Return the renderer for a format. Each module is loaded when needed."""
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
