"""Run a command of the dragoman on another machine, and show its output here.

A delegation survives the connection: it is started once, and after a reconnect its output continues
where it stopped. Other commands are short and end with the connection.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from dragoman.broker import host_protocol as protocol
from dragoman.broker.client.ssh import HostConnection
from dragoman.broker.client.ssh_command import Host
from dragoman.broker.protocol import decode_as
from dragoman.cli import read_input
from dragoman.cli.command_loop import CommandLoop, perform
from dragoman.cli.error_messages import in_json
from dragoman.cli.host_run import HostMessages, host_of
from dragoman.cli.output.terminal import put_err, put_relayed, silence, wants_colour, width_of
from dragoman.errors import ConnectionLost, DragomanError, HostUnavailable, InvalidAnswer
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.host_link import HostLink
from dragoman.store.records import new_job_id
from dragoman.wire.messages import Notification

LASTING: Final = ("delegate",)
"""Commands that continue when the connection is lost."""

INTERRUPT_TIMEOUT: Final = 10.0
"""Seconds for the response to an interrupt."""

INTERRUPT_INTERVAL: Final = 0.1
"""Seconds before the next try to interrupt a command that has not started on the host yet."""

READING: Final = ("delegate",)
"""Commands whose piped input is read here and sent to the host."""


def run_there(name: str, words: Sequence[str]) -> int:
    """Run a command line, given without `--host`, on a host in the user's settings. Returns its
    exit code."""
    host = host_of(name)
    live = CommandLoop()
    command = next(word for word in words if not word.startswith("-"))
    notice = _say_nothing if in_json(words) else _notice
    piped = ""
    if command in READING and "--no-stdin" not in words and read_input.is_piped():
        piped = read_input.read_added(None, on_wait=notice).piped or ""

    async def work() -> int:
        asked = protocol.HostCommand(
            argv=list(words),
            cwd=host.settings.workspace,
            stdin=piped,
            columns=width_of(sys.stdout),
            colour=wants_colour(sys.stdout),
            id=new_job_id() if command in LASTING else "",
        )
        return await _Relayed(host, live, asked, notice).run()

    return perform(live, work)


def _notice(text: str) -> None:
    put_err(f"dragoman: {text}\n")


def _say_nothing(text: str) -> None:
    """Ignore a notice: with `--json-strict` nothing is written to stderr."""


class _Relayed:
    """A command on a host, and how much of its output has been written here."""

    def __init__(
        self,
        host: Host,
        live: CommandLoop,
        asked: protocol.HostCommand,
        notice: Callable[[str], None] = _notice,
    ) -> None:
        self._host = host
        self._live = live
        self._asked = asked
        self._offsets = [0, 0]
        self._unwritten: OSError | None = None
        """The first error in writing the output; None if there was none."""
        self._main = asyncio.current_task()
        self._tasks = TaskOwner("the command")
        self._notice = notice
        self._link = HostLink(host, on_notice=notice, on_stderr=HostMessages(host, notice).show)

    async def run(self) -> int:
        self._live.listen(self._interrupted)
        try:
            if self._asked.id:
                code = await self._link.keep_trying(self._once)
            else:
                code = await self._once(await self._link.connection())
            if self._unwritten is not None:
                raise self._unwritten
            return code
        except HostUnavailable as error:
            if self._asked.id and error.may_have_run:
                error.remedy = (
                    "if it was started, it continues there: list its jobs with "
                    f"`dragoman --host {self._host.name} jobs list`"
                )
            raise
        except ConnectionLost as error:
            raise HostUnavailable(
                self._host.name,
                f"the connection was lost: {error}",
                passing=True,
                may_have_run=error.may_have_run,
            ) from error
        finally:
            try:
                await self._tasks.aclose()
            finally:
                await self._link.aclose()

    async def _once(self, opened: HostConnection) -> int:
        opened.listen(self._told)
        self._asked.after = (self._offsets[0], self._offsets[1])
        ended = await opened.ask(protocol.COMMAND, self._asked, protocol.CommandEnded, timeout=None)
        return ended.code

    def _told(self, notification: Notification) -> None:
        if notification.method != protocol.OUTPUT:
            return
        try:
            output = decode_as(notification.params, protocol.Output, protocol.OUTPUT)
        except InvalidAnswer as error:
            self._notice(f"part of the output is missing: {error}")
            return
        if output.offset <= self._offsets[output.is_error]:
            return
        self._link.progressed()
        self._offsets[output.is_error] = output.offset
        stream = sys.stderr if output.is_error else sys.stdout
        try:
            put_relayed(stream, output.text)
            stream.flush()
        except OSError as error:
            # The reader is gone or the disk is full. Ends the command, as it would end here.
            silence(stream)
            if self._unwritten is None:
                self._unwritten = error
                self._live.press()

    def _interrupted(self, count: int) -> None:
        if count > 1 and self._main is not None:
            self._leave(self._main)
            return
        self._tasks.start(self._interrupt(), "interrupt the command")

    def _leave(self, main: asyncio.Task[Any]) -> None:
        if self._asked.id:
            name = self._host.name
            self._notice(
                "if it was started, it continues there: list its jobs with "
                f"`dragoman --host {name} jobs list`, and cancel one with "
                f"`dragoman --host {name} jobs cancel JOB`"
            )
        main.cancel()

    async def _interrupt(self) -> None:
        try:
            while True:
                opened = await self._link.connection()
                told = await opened.ask(
                    protocol.INTERRUPT, {}, protocol.CommandInterrupted, timeout=INTERRUPT_TIMEOUT
                )
                if told.interrupted:
                    return
                # The command has not started yet, or has already ended. In the second case, this
                # task is cancelled when the command's result arrives.
                await asyncio.sleep(INTERRUPT_INTERVAL)
        except DragomanError as error:
            self._notice(f"could not interrupt the command: {error}")
            if self._main is not None:
                self._leave(self._main)
