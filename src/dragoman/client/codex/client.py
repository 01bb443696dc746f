"""The connection to a `codex app-server`.

Owns the handshake, calls with the retries that are safe, and the way of every message to its
thread. It does not know turns (`peer` does) and does not decide about approvals
(`dragoman.client.permissions` does).
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

import dragoman
from dragoman.client.budgets import Budgets
from dragoman.client.codex import approvals
from dragoman.client.permissions import Answer, Permit, Question, deny_all
from dragoman.dialects.codex import meaning, shapes
from dragoman.errors import InvalidAnswer, ProtocolMismatch, RemoteError
from dragoman.events import model
from dragoman.events.place import Place
from dragoman.rpc import Connection, End, Settings, boundary
from dragoman.transports.base import Stream
from dragoman.wire import codes
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.client.codex.peer import CodexConversation

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.client")

OVERLOADED_TRIES: Final = 5
OVERLOADED_DELAY: Final = 0.25
"""The first wait after "overloaded", doubled each time and jittered. Such a call was refused before
anything ran, so sending it again is safe."""

NEVER_USED: Final = (
    "account/rateLimits/updated",
    "app/list/updated",
    "autoApprovalReview/strictReviewRequired",
    "externalAgentConfig/import/completed",
    "externalAgentConfig/import/progress",
    "fs/changed",
    "fuzzyFileSearch/sessionCompleted",
    "fuzzyFileSearch/sessionUpdated",
    "mcpServer/event/stream/notification",
    "mcpServer/startupStatus/updated",
    "model/safetyBuffering/updated",
    "project/changed",
    "remoteControl/status/changed",
    "skills/changed",
    "thread/attachment/updated",
    "thread/goal/cleared",
    "thread/goal/updated",
    "thread/prediction/updated",
    "thread/project/updated",
    "thread/queue/changed",
    "thread/readState/changed",
    "thread/realtime/closed",
    "thread/realtime/error",
    "thread/realtime/item/completed",
    "thread/realtime/item/started",
    "thread/realtime/item/transcript/delta",
    "thread/realtime/itemAdded",
    "thread/realtime/outputAudio/delta",
    "thread/realtime/sdp",
    "thread/realtime/started",
    "thread/realtime/transcript/delta",
    "thread/realtime/transcript/done",
    "turn/moderationMetadata",
)
"""Notifications that no conversation needs; the server is asked not to send them."""

AnswerQuestions: TypeAlias = Callable[
    [shapes.UserInputRequest], Awaitable[dict[str, Sequence[str]]]
]
"""Answers the server's questions to its user: by question id, the chosen or written answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexOptions:
    """How the client behaves and what it asks of the server."""

    permit: Permit = deny_all
    answer_questions: AnswerQuestions | None = None
    """Without it questions are answered with nothing."""
    approval_policy: str = "on-request"
    sandbox: str = "read-only"
    """What runs without being asked about. The default only reads: with a wider sandbox the server
    also marks the folder as trusted in its user's configuration."""
    name: str = "dragoman"
    title: str | None = None
    budgets: Budgets = Budgets()
    on_noise: Callable[[Noise | Stray], None] | None = None
    max_line_size: int = DEFAULT_MAX_LINE_SIZE


class CodexClient:
    """One connection to an app-server. `start` it before use, `aclose` it after."""

    def __init__(self, stream: Stream, options: CodexOptions | None = None) -> None:
        self.options = options or CodexOptions()
        self.budgets = self.options.budgets
        self.server = shapes.InitializeResponse(user_agent="")
        self.conversations: dict[str, CodexConversation] = {}
        self.on_event: Callable[[model.Event], None] | None = None
        self._early: dict[str, list[model.Event]] = {}
        self.connection = Connection(
            stream,
            End.CLIENT,
            self,
            settings=Settings(jsonrpc=False, max_line_size=self.options.max_line_size),
        )
        self.numbers = itertools.count(1)
        self.source = model.Source(meaning.DIALECT, self.connection.name)
        self._place = Place(self.source, self.numbers, None)

    # -- life

    async def start(self) -> None:
        """Begin to read and shake hands."""
        self.connection.start()
        params = {
            "clientInfo": {
                "name": self.options.name,
                "title": self.options.title or self.options.name,
                "version": dragoman.__version__,
            },
            "capabilities": {"optOutNotificationMethods": list(NEVER_USED)},
        }
        raw = await self.connection.call("initialize", params, timeout=self.budgets.initialize)
        try:
            self.server = msgspec.json.decode(raw, type=shapes.InitializeResponse)
        except msgspec.DecodeError as error:
            raise ProtocolMismatch(f"this is no Codex app-server: {error}") from error
        await self.connection.notify("initialized")

    async def aclose(self) -> None:
        await self.connection.aclose()

    # -- calls

    async def ask(
        self, method: str, params: Any, result: type[T], *, timeout: float | None = None
    ) -> T:
        """Call a method and decode its result; "overloaded" is retried, nothing else is."""
        budget = self.budgets.request if timeout is None else timeout
        for attempt in itertools.count(1):
            try:
                raw = await self.connection.call(method, params, timeout=budget)
                break
            except RemoteError as error:
                if error.code != codes.OVERLOADED or attempt >= OVERLOADED_TRIES:
                    raise
            delay = OVERLOADED_DELAY * 2 ** (attempt - 1)
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
        return self.decode(method, raw, result)

    def decode(self, method: str, raw: Raw, result: type[T]) -> T:
        try:
            return msgspec.json.decode(raw, type=result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidAnswer(f"the answer to {method} is malformed: {error}") from error

    async def models(self) -> list[shapes.Model]:
        """The models that can be chosen."""
        response = await self.ask("model/list", {}, shapes.ModelListResponse)
        return [entry for entry in response.data if not entry.hidden]

    async def account(self) -> shapes.GetAccountResponse:
        """Whether somebody is logged in. Never logs in."""
        return await self.ask("account/read", {}, shapes.GetAccountResponse)

    # -- events

    def emit(self, event: model.Event, size: int) -> None:
        """Hand an event to its conversation and to whoever watches."""
        if self.on_event is not None:
            self.on_event(event)
        if event.session is None:
            return
        conversation = self.conversations.get(event.session)
        if conversation is not None:
            conversation.deliver(event, size)
        else:
            # Some notifications come before the answer that tells the thread's id.
            self._early.setdefault(event.session, []).append(event)

    def adopt(self, conversation: CodexConversation) -> None:
        self.conversations[conversation.id] = conversation
        for event in self._early.pop(conversation.id, ()):
            conversation.deliver(event, 0)
        self._early.clear()

    def place(self, thread_id: str | None, turn_id: str | None = None) -> Place:
        place = Place(self.source, self.numbers, thread_id)
        place.turn = turn_id
        return place

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        pass

    def notification(self, notification: Notification) -> None:
        size = len(notification.line)
        for event in meaning.of_notification(
            notification.method, notification.params, self._place, notification.line
        ):
            self.emit(event, size)

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)
        if self.options.on_noise is not None:
            self.options.on_noise(noise)

    def request(self, request: Request) -> Any:
        # Every request is answered, also those we know nothing of, or the turn would wait for ever.
        try:
            approval = approvals.APPROVALS.get(request.method)
            if approval is not None:
                return self._approve(approval(request.params), request)
            if request.method == "item/tool/requestUserInput":
                asked = msgspec.json.decode(request.params, type=shapes.UserInputRequest)
                return self._answer_questions(asked, request)
            if request.method == "mcpServer/elicitation/request":
                wanted = msgspec.json.decode(request.params, type=shapes.ElicitationRequest)
                return self._decline(wanted, request)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise boundary.invalid_params(error) from error
        raise boundary.method_not_found(request.method)

    # -- questions

    async def _approve(self, approval: approvals.Approval, request: Request) -> Any:
        request_id = str(request.id)
        place = self.place(approval.thread_id, approval.turn_id)
        self.emit(
            model.PermissionAsked(
                *place.base(request.method, request.line),
                request_id,
                approval.options,
                approval.title,
                approval.description,
                approval.kind,
                approval.item_id,
            ),
            len(request.line),
        )
        conversation = self.conversations.get(approval.thread_id)
        question = approval.question()
        answer = Answer.CANCEL
        if conversation is not None:
            answer = await conversation.asking(self._decide(question), request.id, Answer.CANCEL)
        option_id, reply = approval.reply(answer)
        if conversation is not None:
            conversation.answered(question, answer)
        self.emit(
            model.PermissionAnswered(
                *place.base(request.method, None),
                request_id,
                answer.allows,
                option_id,
                "cancel" if answer is Answer.CANCEL else "caller",
            ),
            0,
        )
        return reply

    async def _decide(self, question: Question) -> Answer:
        answer = self.options.permit(question)
        return await answer if inspect.isawaitable(answer) else answer

    async def _answer_questions(self, asked: shapes.UserInputRequest, request: Request) -> Any:
        place = self.place(asked.thread_id, asked.turn_id)
        message = "; ".join(str(question.get("question", "")) for question in asked.questions)
        self.emit(
            model.InputAsked(
                *place.base(request.method, request.line),
                str(request.id),
                "questions",
                message,
                asked.questions,
                None,
                asked.item_id,
            ),
            len(request.line),
        )
        answers: dict[str, Sequence[str]] = {}
        conversation = self.conversations.get(asked.thread_id)
        answering = self.options.answer_questions
        if answering is not None and conversation is not None:
            answers = await conversation.asking(_awaited(answering(asked)), request.id, {})
        self.emit(
            model.InputAnswered(
                *place.base(request.method, None),
                str(request.id),
                "accept" if answers else "decline",
            ),
            0,
        )
        return {"answers": {name: {"answers": list(given)} for name, given in answers.items()}}

    async def _decline(self, wanted: shapes.ElicitationRequest, request: Request) -> Any:
        """A form of an MCP server behind the server: shown as an event, and declined."""
        place = self.place(wanted.thread_id)
        self.emit(
            model.InputAsked(
                *place.base(request.method, request.line),
                str(request.id),
                wanted.mode or "other",
                wanted.message,
                wanted.requested_schema,
                wanted.url,
            ),
            len(request.line),
        )
        self.emit(
            model.InputAnswered(*place.base(request.method, None), str(request.id), "decline"),
            0,
        )
        return {"action": "decline"}


async def _awaited(work: Awaitable[T]) -> T:
    return await work
