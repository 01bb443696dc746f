"""Show the questions of a run in the console, which can answer them in place of the caller.

A broker shows the questions of its sessions itself. A run without a broker starts listening on a
socket at its first question, and the console finds the socket by its directory. A caller that
cannot ask the user, such as an MCP host, waits for the console as long as one is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker import protocol, question_sockets
from dragoman.broker.endpoint import console_is_open
from dragoman.broker.server.question_watchers import (
    ANSWER_TIMEOUT,
    GRACE,
    QuestionContent,
    QuestionWatchers,
)
from dragoman.client.acp.inquiries import reply_of
from dragoman.client.inquiries import DECLINED, Inquiry, Reply
from dragoman.client.permissions import Answer, Chosen, Decision, Permit, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import DragomanError
from dragoman.gateway.client_requests import permission_options, request_of, tool_call_of
from dragoman.rpc import Connection, End
from dragoman.rpc.responder import Ignore
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.listener import Listener, listen_unix

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.paths import Paths
    from dragoman.transports.base import Stream
    from dragoman.wire.messages import Request

log: Final = logging.getLogger("dragoman.runs")

LOOK_INTERVAL: Final = 2.0
"""Seconds between two checks of whether a console is still open while a question waits for it. A
killed console sends no message."""

_PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION
_ELICITATION: Final = acp.ELICITATION_CREATE


class RunInbox:
    """Shows the questions of one run to open consoles. Always call `aclose`."""

    def __init__(
        self, paths: Paths, *, peer: str, workspace: Path, place: Callable[[], tuple[str, str]]
    ) -> None:
        self.has_broker = False
        self._paths = paths
        self._about = {"peer": peer, "workspace": str(workspace)}
        self._place = place
        """Callback that returns the session key and the job id."""
        self._watchers = QuestionWatchers()
        self._tasks = TaskOwner("inbox")
        self._listener: Listener | None = None
        self._listening = asyncio.Lock()
        self._closed = False

    async def aclose(self) -> None:
        self._closed = True
        # The last step added runs first, and a step that fails does not skip the others.
        async with contextlib.AsyncExitStack() as closing:
            if self._listener is not None:
                closing.callback(
                    question_sockets.forget_address, self._paths, self._listener.address
                )
                closing.push_async_callback(self._listener.aclose)
            await self._tasks.aclose()

    @property
    def can_ask(self) -> bool:
        """Whether a console that can ask the user is open."""
        return console_is_open(self._paths.runtime)

    async def ask(
        self, question: Question, caller: Permit | None, settle: Callable[[Decision], bool]
    ) -> Decision | None:
        """Ask `caller` for permission and return its answer. Without a caller, wait while a console
        is open, and return None. Unless the run has a broker, the open consoles show the question,
        and an answer from one is passed to `settle`. Implements `policy.approver.Inbox`."""
        if caller is None and not self.can_ask:
            return None
        if self.has_broker:
            # The caller shows the question and reports the answer to the approver.
            return await self._asked(question, caller)
        open_ = _OpenPermission(question, self._place, settle, unattended=caller is None)
        with await self._shown(open_):
            return await self._asked(question, caller)

    async def inquire(self, inquiry: Inquiry) -> Reply:
        """Show a question from the agent (a form, or a URL to visit) in the open consoles, and
        return the reply. The question is declined if no console answers it, or if the run has a
        broker. Implements `dragoman.client.inquiries.Inquire`."""
        if self.has_broker or not self.can_ask:
            return DECLINED
        request = request_of(inquiry, inquiry.session_id)
        if request is None:
            return DECLINED
        open_ = _OpenForm(request, self._place)
        waiting = self._tasks.start(self._while_console(), "wait for the console")
        try:
            with await self._shown(open_):
                either: set[asyncio.Future[Any]] = {open_.reply, waiting}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                return open_.reply.result() if open_.reply.done() else DECLINED
        finally:
            waiting.cancel()

    async def _asked(self, question: Question, caller: Permit | None) -> Decision | None:
        if caller is None:
            await self._while_console()
            return None
        answer = caller(question)
        return await answer if inspect.isawaitable(answer) else answer

    async def _while_console(self) -> None:
        """Wait while a console is open, or was a moment ago, up to the answer timeout."""
        loop = asyncio.get_running_loop()
        seen_at = loop.time()
        give_up_at = seen_at + ANSWER_TIMEOUT
        while (now := loop.time()) < min(give_up_at, seen_at + GRACE):
            if self.can_ask:
                seen_at = now
            await asyncio.sleep(LOOK_INTERVAL)

    # -- watchers

    async def _shown(self, question: _OpenPermission | _OpenForm) -> contextlib.ExitStack:
        """Show a question until the returned context exits."""
        await self._listen()
        self._watchers.opened(question)
        shown = contextlib.ExitStack()
        shown.callback(lambda: self._watchers.settled(question, question.by))
        return shown

    async def _listen(self) -> None:
        # An agent may ask several questions at once.
        async with self._listening:
            if self._listener is not None or self._closed:
                return
            address = ""
            try:
                address = question_sockets.new_address(self._paths)
                listener = await listen_unix(address, self._serve)
                if self._closed:
                    # `aclose` did not wait for it, and nothing else would close it.
                    await listener.aclose()
                else:
                    self._listener = listener
            except (DragomanError, OSError) as error:
                log.warning("the console cannot show this run's questions: %s", error)
            finally:
                if self._listener is None and address:
                    question_sockets.forget_address(self._paths, address)

    async def _serve(self, stream: Stream) -> None:
        watcher = _Watcher(self._watchers, self._about)
        watcher.connection = Connection(stream, End.AGENT, watcher, trace=False)
        try:
            async with watcher.connection:
                await watcher.connection.wait_ended()
        finally:
            self._watchers.left(watcher)


class _Watcher(Ignore):
    """A connected console."""

    connection: Connection

    def __init__(self, watchers: QuestionWatchers, about: dict[str, str]) -> None:
        self._watchers = watchers
        self._about = about

    def request(self, request: Request) -> Any:
        match request.method:
            case protocol.PING:
                return {}
            case protocol.WATCH:
                asked = protocol.read(request.params, protocol.Watch)
                questions = self._watchers.add(self, asked)
                return {"questions": questions, **self._about}
            case protocol.ANSWER:
                answer = protocol.read(request.params, protocol.QuestionAnswer)
                return {"answered": self._watchers.answer(answer)}
            case _:
                return super().request(request)


class _OpenPermission:
    """An open permission request."""

    longest_wait = 0.0

    def __init__(
        self,
        question: Question,
        place: Callable[[], tuple[str, str]],
        settle: Callable[[Decision], bool],
        *,
        unattended: bool,
    ) -> None:
        self.is_unattended = unattended
        self.by = "policy" if unattended else "caller"
        self._question = question
        self._settle = settle
        key, job = place()
        asked = acp.RequestPermissionRequest(
            session_id=question.session_id,
            tool_call=tool_call_of(question),
            options=permission_options(question),
        )
        self.job_id = job
        self._content = QuestionContent(
            question.session_id, key, job, _PERMISSION.name, Raw(acp.encode(asked))
        )

    def content(self) -> QuestionContent:
        return self._content

    def wait(self, timeout: float) -> None:
        """Do nothing: the question ends with the console, or with its caller."""

    def answer(self, result: Raw, kind: str) -> bool:
        chosen = msgspec.json.decode(result)["outcome"].get("optionId")
        decision = Answer(kind) if chosen is None else Chosen(chosen, Answer(kind))
        if not self._settle(decision):
            return False
        self.by = "watcher"
        return True


class _OpenForm:
    """An open question with a form or a URL to visit."""

    is_unattended = True
    longest_wait = 0.0
    by = "policy"

    def __init__(
        self,
        request: acp.ElicitationForm | acp.ElicitationUrl,
        place: Callable[[], tuple[str, str]],
    ) -> None:
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        key, job = place()
        self.job_id = job
        self._content = QuestionContent(
            request.session_id or "", key, job, _ELICITATION.name, Raw(acp.encode(request))
        )

    def content(self) -> QuestionContent:
        return self._content

    def wait(self, timeout: float) -> None:
        """Do nothing: the question ends with the console."""

    def answer(self, result: Raw, kind: str) -> bool:
        if self.reply.done():
            return False
        self.by = "watcher"
        self.reply.set_result(reply_of(_ELICITATION.decode_result(result)))
        return True
