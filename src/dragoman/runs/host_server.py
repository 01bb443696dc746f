"""Serve one command from another machine on stdio: `dragoman broker stdio`, started by ssh.

Submits prompts, follows jobs, relays their questions, and runs commands of this dragoman. When the
connection ends, jobs continue in their brokers, a submission in progress is finished, and this
process exits. The caller, `cli.broker_stdio`, turns a prompt into a run.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker import host_protocol as protocol
from dragoman.broker.client.question_watch import Watched, answer_question, watch_questions
from dragoman.broker.error_codec import refusal
from dragoman.broker.protocol import JobWanted, QuestionAnswer, Settled, ShownQuestion, read
from dragoman.errors import ConnectionLost, DragomanError, FileFailed, RemoteError, UnknownJob
from dragoman.paths import Paths
from dragoman.rpc import Connection, ConnectionSettings, End, boundary
from dragoman.rpc.responder import Ignore
from dragoman.rpc.tasks import TaskOwner, finish, in_thread
from dragoman.runs import host_commands
from dragoman.runs.host_submission import find_sent
from dragoman.runs.job_events import EventCursor, attempts_of, follow_job, start_in
from dragoman.runs.jobs import address_of, cancel_job, find_job, job_id_of
from dragoman.transports.base import Stream
from dragoman.version import __version__
from dragoman.wire import codes
from dragoman.wire.messages import Notification, Request

log: Final = logging.getLogger("dragoman.host")

SUBMIT_GRACE: Final = 300.0
"""Seconds to finish a submission after the connection has ended: its agent may have to start."""

WATCH_INTERVAL: Final = 0.5
"""Seconds to wait before watching a broker's questions again after the watch was lost."""

WATCH_FAILURES: Final = 4
"""Failures in a row after which the user is notified that questions cannot be shown. A broker that
is starting or ending may refuse a few times."""

Submit = Callable[[protocol.HostPrompt], Coroutine[Any, Any, protocol.HostSubmitted]]


class HostServer(Ignore):
    """Serves one connection, on the remote side."""

    def __init__(self, submit: Submit, *, paths: Paths, program: tuple[str, ...]) -> None:
        self._submit = submit
        self._paths = paths
        self._program = program
        """The command line of this dragoman."""
        self._tasks = TaskOwner("host server")
        self._submissions: dict[str, asyncio.Task[protocol.HostSubmitted | DragomanError]] = {}
        self._unwanted: set[str] = set()
        """Jobs that were cancelled while they were submitted."""
        self._questions: dict[str, str] = {}
        """The address of the broker that a question comes from, by the question's id."""
        self._commands: dict[str, host_commands.RunningCommand] = {}
        self._greeted = False
        self._methods: Mapping[str, Callable[[Request], Any]] = {
            protocol.HELLO: self._hello,
            protocol.PING: self._ping,
            protocol.SUBMIT: self._submit_prompt,
            protocol.FOLLOW: self._follow,
            protocol.ANSWER: self._answer,
            protocol.CANCEL: self._cancel,
            protocol.COMMAND: self._command,
            protocol.INTERRUPT: self._interrupt,
        }

    async def serve(self, stream: Stream) -> None:
        """Serve until the other side closes the connection or is silent for too long."""
        self._connection = connection = Connection(
            stream,
            End.AGENT,
            self,
            settings=ConnectionSettings(max_line_size=protocol.MAX_LINE_SIZE),
            trace=False,
            name="host",
        )
        connection.start()
        # Output of a shell that does not end with a line break must not be part of our first
        # message.
        stream.write(b"\n")
        connection.tasks.start(self._end_if_silent(), "end a silent connection")
        # The last step added runs first, and a step that fails does not skip the others.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._tasks.aclose)
            closing.push_async_callback(self._finish_submissions)
            closing.push_async_callback(connection.aclose)
            await connection.wait_ended()

    async def _end_if_silent(self) -> None:
        connection, loop = self._connection, asyncio.get_running_loop()
        received, since = connection.received, loop.time()
        while connection.failure is None:
            await asyncio.sleep(min(protocol.PING_INTERVAL, protocol.SILENCE_TIMEOUT))
            if connection.received != received:
                received, since = connection.received, loop.time()
            elif loop.time() - since >= protocol.SILENCE_TIMEOUT:
                connection.fail(ConnectionLost("no message from the other side"))

    async def _finish_submissions(self) -> None:
        # After reconnecting, the other side submits them again with the same ids and gets the jobs.
        left = list(self._submissions.values())
        if left:
            await asyncio.wait(left, timeout=SUBMIT_GRACE)

    # -- requests

    def request(self, request: Request) -> Any:
        handler = self._methods.get(request.method)
        if handler is None:
            raise boundary.method_not_found(request.method)
        if not self._greeted and request.method != protocol.HELLO:
            raise RemoteError(-32600, f"send {protocol.HELLO} first")
        return _guarded(handler, request)

    def notification(self, notification: Notification) -> None:
        """Ignore notifications: the pings of older versions only have to arrive."""

    async def _hello(self, request: Request) -> protocol.Greeting:
        hello = read(request.params, protocol.HostHello)
        # A different protocol number is answered too, so that the other side can explain it.
        self._greeted = hello.protocol == protocol.PROTOCOL
        os.environ.update(
            {name: value for name, value in hello.environment.items() if name in protocol.LIMITS}
        )
        return protocol.Greeting(
            protocol=protocol.PROTOCOL,
            version=__version__,
            user=_user(),
            home=str(Path.home()),
        )

    async def _ping(self, request: Request) -> dict[str, Any]:
        return {}

    async def _submit_prompt(self, request: Request) -> protocol.HostSubmitted:
        prompt = read(request.params, protocol.HostPrompt)
        task = self._submissions.get(prompt.job)
        if task is None:
            task = self._tasks.start(self._submitted(prompt), f"submit {prompt.job}")
            self._submissions[prompt.job] = task
            task.add_done_callback(lambda _: self._submissions.pop(prompt.job, None))
        # The submission continues even if the connection ends.
        try:
            submitted = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise RemoteError(
                codes.REQUEST_CANCELLED, "the job was cancelled before it was started"
            ) from None
        if isinstance(submitted, DragomanError):
            raise submitted
        return submitted

    async def _submitted(
        self, prompt: protocol.HostPrompt
    ) -> protocol.HostSubmitted | DragomanError:
        try:
            return await self._submit(prompt)
        except DragomanError as error:
            return error
        except asyncio.CancelledError:
            if prompt.job in self._unwanted:
                await finish(self._take_back(prompt.job))
            raise

    async def _take_back(self, job: str) -> None:
        """Cancel a job whose submission was cancelled, if its prompt was sent before that."""
        if await find_sent(job, paths=self._paths) is not None:
            try:
                await cancel_job(job, paths=self._paths)
            except DragomanError as error:
                log.warning("%s could not be cancelled: %s", job, error)

    async def _cancel(self, request: Request) -> dict[str, Any]:
        job = read(request.params, JobWanted).job
        task = self._submissions.get(job)
        if task is not None:
            self._unwanted.add(job)
            task.cancel()
            await asyncio.wait([task], timeout=SUBMIT_GRACE)
        try:
            return {"cancelled": await cancel_job(job, paths=self._paths)}
        except UnknownJob:
            # The job was cancelled before it was started.
            return {"cancelled": task is not None}

    async def _answer(self, request: Request) -> protocol.AnswerTaken:
        answer = read(request.params, QuestionAnswer)
        address = self._questions.get(answer.id)
        if address is None:
            return protocol.AnswerTaken(False)
        result = msgspec.json.decode(answer.result)
        got = await answer_question(address, answer.id, answer.digest, result)
        return protocol.AnswerTaken(got)

    # -- following a job

    async def _follow(self, request: Request) -> Any:
        asked = read(request.params, protocol.Follow)
        after = None if asked.after is None else EventCursor.parse(asked.after)
        # In a thread: another process may hold the store.
        id = await in_thread(
            str(self._paths.state), lambda _: job_id_of(asked.job, paths=self._paths)
        )
        if id != asked.job:
            self._connection.post(protocol.FOLLOWING, JobWanted(id))
        job = await find_job(id, paths=self._paths, require_answer=True)
        attempts = attempts_of(job, after=after, paths=self._paths)
        try:
            async for record, attempt in attempts:
                watching = None
                if asked.answers and attempt.endpoint is not None and attempt.state != "ended":
                    address = address_of(attempt.endpoint, self._paths)
                    watch = self._watch(address, attempt.endpoint, attempt.id)
                    watching = self._connection.tasks.start(watch, f"questions of {attempt.id}")
                lines = follow_job(
                    record, attempt, start=start_in(attempt, after), paths=self._paths
                )
                try:
                    await self._send_lines(lines, record.key, record.peer_session_id)
                finally:
                    if watching is not None:
                        watching.cancel()
                    await lines.aclose()
                after = None
        finally:
            await attempts.aclose()
        return await find_job(id, paths=self._paths)

    async def _send_lines(self, lines: Any, key: str, session_id: str) -> None:
        connection = self._connection
        async for number, line in lines:
            message = protocol.HostLines(key, session_id, number, [Raw(line)])
            waiting = connection.tell(protocol.LINES, message)
            if waiting is not None:
                await waiting

    async def _watch(self, address: str, broker: str, job: str) -> None:
        """Relay the questions of a job while it is followed."""
        shown: set[str] = set()
        failures = 0

        def connected(watched: Watched) -> None:
            nonlocal failures
            failures = 0

        def asked(question: ShownQuestion) -> None:
            # An older broker also shows questions of other jobs.
            if question.job != job or question.id in shown:
                return
            shown.add(question.id)
            self._questions[question.id] = address
            self._connection.post(protocol.QUESTION, question)

        def settled(over: Settled) -> None:
            if over.id in shown:
                self._questions.pop(over.id, None)
                self._connection.post(protocol.SETTLED, over)

        while True:
            try:
                await watch_questions(
                    address,
                    broker,
                    answers=True,
                    job=job,
                    on_question=asked,
                    on_settled=settled,
                    on_connected=connected,
                )
            except DragomanError as error:
                failures += 1
                if failures == WATCH_FAILURES:
                    text = f"questions of job {job} cannot be shown: {error}; trying again"
                    self._connection.post(protocol.NOTICE, protocol.HostNotice(text))
            await asyncio.sleep(WATCH_INTERVAL)

    # -- commands

    async def _command(self, request: Request) -> protocol.CommandEnded:
        asked = read(request.params, protocol.HostCommand)

        def put(offset: int, text: str, is_error: bool) -> Awaitable[None] | None:
            message = protocol.Output(offset, text, is_error)
            return self._connection.tell(protocol.OUTPUT, message)

        command = host_commands.RunningCommand(self._program, asked, paths=self._paths)
        name = asked.id or str(request.id)
        self._commands[name] = command
        try:
            return protocol.CommandEnded(await command.run(put))
        finally:
            del self._commands[name]

    async def _interrupt(self, request: Request) -> dict[str, Any]:
        commands = list(self._commands.values())
        for command in commands:
            command.interrupt()
        # On a new connection, the command may not have been requested yet.
        return {"interrupted": bool(commands)}


async def _guarded(handler: Callable[[Request], Any], request: Request) -> Any:
    """Run a handler and convert our errors to protocol errors."""
    try:
        return await handler(request)
    except RemoteError:
        raise
    except DragomanError as error:
        raise refusal(error) from error
    except OSError as error:
        # For example a full disk or missing permissions. The other side shows the error.
        what = error.filename or "the disk"
        raise refusal(FileFailed(str(what), error.strerror or str(error))) from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
