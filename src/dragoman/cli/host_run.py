"""`run --host` and `jobs watch --host`: submit a prompt on another machine and show its job here.

The job's events are shown with the usual renderer and continue after a reconnect, permission
requests are answered at this terminal, and Ctrl-C cancels the turn on the host. If the host stays
unreachable, the error names the command that shows the job later. `runs.host_link` has the
connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dragoman.broker.client.ssh_command import Host, host_named
from dragoman.broker.host_protocol import HostPrompt, PromptImage
from dragoman.cli import read_input
from dragoman.cli.command_loop import CommandLoop, perform
from dragoman.cli.exit_codes import ExitCode, of_result
from dragoman.cli.output.renderer import Renderer, StderrLines, TurnReport, show_as
from dragoman.cli.output.terminal import is_interactive
from dragoman.cli.permission_flags import TerminalApprover
from dragoman.cli.prompt_options import COMMANDS
from dragoman.cli.prompt_session import NOT_BEGUN, inquire_at
from dragoman.cli.run_plan import log_for, session_settings, shown_as
from dragoman.client.permissions import Denial, add_denial
from dragoman.config import load_config
from dragoman.errors import CallCancelled, CallTimeout, DragomanError, HostUnavailable, UsageError
from dragoman.events import fold
from dragoman.events.view import View
from dragoman.paths import find_paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.host_link import FollowedJob, HostLink
from dragoman.runs.host_questions import form_result, is_permission, permission_result
from dragoman.runs.job_events import EventCursor
from dragoman.runs.model_choice import model_in_use
from dragoman.store.history import result_of
from dragoman.store.records import JobRecord, new_job_id

if TYPE_CHECKING:
    from dragoman.broker.protocol import ShownQuestion
    from dragoman.cli.shared_options import ListFormat

HERE: Final = frozenset(
    {"peer", "prompt", "file", "image", "no_stdin", "cwd", "host", "session", "no_wait"}
) | {"format", "json_strict", "verbose"}
"""Options that are used on this side or have their own field in the request."""

REFUSED: Final = {
    **dict.fromkeys(
        ("command", "mcp_config", "dialect", "any_version", "env"), "configure the peer on the host"
    ),
    "cold": "an agent on a host always runs in a broker",
    "trace": "to write a trace, run the command on the host",
}
"""Options that name files, variables or programs of this machine, or that work without a broker,
each with the reason or what to do instead."""


def run(host: str, *, peer: str | None, **given: Any) -> int:
    """Run `dragoman run --host`: one turn on the host. Returns its exit code."""
    show, there = prepared(host, given)
    try:
        prompt = prompt_of(there, peer=peer, show=show, **given)
    except DragomanError as error:
        return failed(show, error)
    live = CommandLoop()

    async def work() -> int:
        async with HostTurns(there, live, show) as turns:
            if given["no_wait"]:
                live.listen(turns.interrupted)
                submitted = await turns.submit(prompt)
                if live.interrupts:
                    if turns.cancelled:
                        show.notice(f"{submitted.job} was cancelled")
                    return live.interrupt_code
                show.submitted(submitted.job, submitted.session)
                return int(show.lost)
            report = await turns.turn(prompt)
            return report.exit_code or int(show.lost)

    try:
        return perform(live, work)
    except CallCancelled:
        # An interrupt arrived while the prompt was being submitted.
        show.notice(NOT_BEGUN)
        return live.interrupt_code
    except DragomanError as error:
        return failed(show, error)


def watch_job(host: str, job: str, *, after: str | None, format: ListFormat) -> int:
    """Run `dragoman jobs watch --host`: show a job on the host from its beginning, or from a
    cursor, to its end. Its questions can be answered here. Returns the exit code of the job."""
    from dragoman.cli.stored_sessions import show_for
    from dragoman.cli.watch import show_end, show_events

    show = show_for(format)
    there = host_of(host)
    cursor = None if after is None else EventCursor.parse(after)
    live = CommandLoop()

    async def work() -> int:
        main = asyncio.current_task()
        assert main is not None

        def leave(count: int) -> None:
            main.cancel()

        live.listen(leave)
        async with HostTurns(there, live, show) as turns:
            followed = FollowedJob(turns.link, job, after=cursor, ask=turns.asks)
            try:
                await show_events(followed.events(), show)
            except HostUnavailable as error:
                if not followed.begun:
                    raise
                raise left_running(there, followed.job, error) from error
            finally:
                show.flush()
            if followed.ended is None:
                return ExitCode.FAILED
            return show_end(followed.ended, show)

    return perform(live, work)


def failed(show: Renderer, error: DragomanError) -> int:
    from dragoman.cli import error_messages

    show.failed(error)
    return int(error_messages.exit_code(error))


def host_of(name: str) -> Host:
    """Return a host from the user's settings. Raises `UsageError` if there is none."""
    return host_named(name, load_config(Path.cwd(), find_paths()).settings.hosts)


def prepared(host: str, given: dict[str, Any]) -> tuple[Renderer, Host]:
    """Set up the log, and return the renderer for the options in `given` and the host of this name.
    An error in the settings, or an unknown host, is shown and ends the process with its exit code
    (`SystemExit`). Raises `UsageError` if the format options contradict each other."""
    strict, verbose = given["json_strict"], given["verbose"]
    asked = shown_as(given["format"], strict=strict)
    log_for(strict=strict, verbose=verbose)
    try:
        config = load_config(Path.cwd(), find_paths(), flags={"format": given["format"]})
        there = host_named(host, config.settings.hosts)
    except DragomanError as error:
        raise SystemExit(failed(show_as(asked or "text", strict=strict), error)) from None
    return show_as(asked or config.settings.format, strict=strict, verbose=verbose), there


def prompt_of(
    host: Host,
    *,
    peer: str | None,
    show: Renderer,
    prompt: Sequence[str] = (),
    file: Path | None = None,
    image: Sequence[Path] = (),
    no_stdin: bool = True,
    **given: Any,
) -> HostPrompt:
    """Build the prompt for the host from the options of `run`, and read the files and the piped
    input that belong to it. Raises `UsageError` if an option is invalid or cannot be used with
    --host, and `InputTimeout` if the input does not end in time."""
    options = options_for_host(given)
    words, began_at = list(prompt), time.monotonic()
    if [*([] if peer is None else [peer]), *words][-1:] == [read_input.STDIN]:
        words, file = words[:-1], file or Path(read_input.STDIN)
    timeout = given.get("timeout")
    added = read_input.read_added(file, no_stdin=no_stdin, timeout=timeout, on_wait=show.notice)
    if timeout is not None:
        options["timeout"] = read_input.remaining(timeout, time.monotonic() - began_at)
    images = [read_input.read_image(path) for path in image]
    return HostPrompt(
        job=new_job_id(),
        peer=peer,
        words=words,
        file=added.file,
        piped=added.piped,
        dashed=added.dashed,
        images=[PromptImage(each.data, each.mime_type) for each in images],
        cwd=folder_for_host(host, given.get("cwd")),
        session=given.get("session"),
        is_asked=is_interactive(),
        options=options,
    )


def folder_for_host(host: Host, cwd: Path | None) -> str | None:
    """Return the directory to work in, a path on the host: the one that --cwd names, or else the
    one in the host's settings. None if there is neither."""
    return host.settings.workspace if cwd is None else str(cwd)


def options_for_host(given: dict[str, Any]) -> dict[str, Any]:
    """Return those of the given options that are sent to the host, with a system prompt that is
    read from its file here. Raises `UsageError` if an option is invalid or cannot be used with
    --host."""
    initial = {option.name: option.initial for option in COMMANDS["run"]} | {"command": None}
    chosen = {name: value for name, value in given.items() if value != initial.get(name)}
    for name, why in REFUSED.items():
        if name in chosen:
            what = "a command line after --" if name == "command" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{what} cannot be used with --host: {why}")
    options = {name: value for name, value in chosen.items() if name not in HERE}
    options.pop("agent_stderr", None)
    if options.keys() & {"system_prompt", "allow_tool", "max_turns"}:
        # Checks the values, and reads a system prompt from a file on this machine.
        wanted = session_settings(given["system_prompt"], given["allow_tool"], given["max_turns"])
        if wanted.system_prompt:
            options["system_prompt"] = wanted.system_prompt
    return options


class HostTurns:
    """Runs the turns of one command on a host: submits prompts, shows events, asks questions and
    handles interrupts. Use with ``async with``."""

    def __init__(self, host: Host, live: CommandLoop, show: Renderer) -> None:
        self.host = host
        self.show = show
        self.link = HostLink(
            host, on_notice=show.notice, on_stderr=HostMessages(host, show.notice).show
        )
        self.asks = self._ask if is_interactive() else None
        self.job: str | None = None
        """The id of the running job; None if none is running."""
        self.cancelled = ""
        """The id of the last job that was cancelled, or is being cancelled; empty if there is
        none."""
        self._live = live
        self._approver = TerminalApprover(live)
        self._denials: list[Denial] = []
        self._tasks = TaskOwner("the command")
        self._main = asyncio.current_task()

    async def __aenter__(self) -> HostTurns:
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._tasks.aclose()
        finally:
            await self.link.aclose()

    async def submit(self, prompt: HostPrompt) -> Any:
        """Submit a prompt and return the host's answer, a `HostSubmitted`. From then on the prompt
        runs on the host independently of this process."""
        self.job = prompt.job
        self.show.doing(f"starting on {self.host.name}")
        try:
            submitted = await self.link.submit(prompt)
        except (HostUnavailable, CallTimeout) as error:
            if not error.may_have_run:
                raise
            raise HostUnavailable(
                self.host.name,
                f"the start of the job was not confirmed: {_problem(error)}",
                remedy=f"check whether it was started with `dragoman jobs result {prompt.job} "
                f"--host {self.host.name}`",
                may_have_run=True,
            ) from error
        for notice in submitted.notices:
            self.show.notice(notice)
        if self.cancelled == prompt.job:
            # After a reconnect, the cancel may have arrived before the host had created the job.
            # Cancel the job again.
            await self._cancel(prompt.job)
        return submitted

    async def turn(self, prompt: HostPrompt) -> TurnReport:
        """Run one prompt to its end and show the result."""
        began_at = time.monotonic()
        self._denials.clear()
        self._live.listen(self.interrupted)
        self.show.on_broken = self._output_closed
        try:
            submitted = await self.submit(prompt)
            self.show.began(prompt.job, submitted.session)
            followed = FollowedJob(self.link, prompt.job, ask=self.asks)
            view = View()
            try:
                # Also if the renderer raises, the tasks that follow the job end here.
                async with aclosing(followed.events()) as events:
                    async for _, event in events:
                        fold.apply_settings(view, event)
                        self.show.event(event)
            except HostUnavailable as error:
                raise left_running(self.host, prompt.job, error, may_have_run=True) from error
        finally:
            self.job = None
        assert followed.ended is not None
        report = self._report(followed.ended, submitted, view, time.monotonic() - began_at)
        if not self.show.broken:
            for notice in followed.ended.notices:
                self.show.notice(notice)
            self.show.ended(report)
        return report

    def _report(self, job: JobRecord, submitted: Any, view: View, seconds: float) -> TurnReport:
        from msgspec.structs import replace

        result = replace(result_of(job), denials=tuple(self._denials))
        interrupted = self._live.interrupts > 0 and not result.ok
        code = of_result(result)
        if interrupted:
            code = self._live.interrupt_code
        return TurnReport(
            peer=submitted.peer,
            session=submitted.session,
            result=result,
            seconds=seconds,
            exit_code=code,
            model=model_in_use(view),
            mode=view.mode,
            interrupted=interrupted,
            job=job.id,
            session_key=submitted.session,
            permissions=submitted.permissions,
        )

    # -- questions

    async def _ask(self, shown: ShownQuestion) -> Any:
        """Ask the user an agent's question or permission request at this terminal, and return the
        answer."""
        if not is_permission(shown):
            return await form_result(shown, inquire_at(self._live))
        result, denial = await permission_result(shown, self._approver)
        if denial is not None:
            add_denial(self._denials, denial)
        return result

    # -- stopping

    def interrupted(self, count: int) -> None:
        """Callback for interrupts, called with their number. The first one cancels the job on the
        host. The second one, or one without a running job or after the terminal was closed, ends
        this command."""
        if self.job is None or count > 1 or self._live.hung_up:
            self._leave()
            return
        if not self.show.broken:
            self.show.notice("cancelling; press Ctrl-C again to quit immediately")
        self.cancelled = self.job
        self._tasks.start(self._cancel(self.job), "cancel the job")

    def _output_closed(self) -> None:
        """Callback for output that can no longer be written: cancel the turn, as Ctrl-C does."""
        if self.job is not None:
            self._live.press()

    async def _cancel(self, job: str) -> None:
        try:
            await self.link.cancel(job)
        except DragomanError as error:
            self.cancelled = ""
            self.show.notice(f"could not cancel job {job}: {error}")
            self._leave()

    def _leave(self) -> None:
        if self._main is not None:
            self._main.cancel()


class HostMessages:
    """Shows what ssh and the remote shell write to stderr."""

    def __init__(self, host: Host, notice: Callable[[str], object]) -> None:
        self._name = host.name
        self._notice = notice
        self._lines = StderrLines()

    def show(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if text := line.strip():
                self._notice(f"{self._name}: {text}")


def left_running(
    host: Host, job: str, error: DragomanError, *, may_have_run: bool = False
) -> HostUnavailable:
    """Return the error for a host that stays unreachable while a job runs there. `may_have_run`:
    whether this command submitted the job."""
    return HostUnavailable(
        host.name,
        f"{_problem(error)}; the job continues there",
        remedy=f"follow it with `dragoman jobs watch {job} --host {host.name}`",
        # Following a job changes nothing and can be repeated; a prompt must not be.
        passing=not may_have_run and error.retryable,
        may_have_run=may_have_run,
    )


def _problem(error: DragomanError) -> str:
    return error.problem if isinstance(error, HostUnavailable) else str(error)
