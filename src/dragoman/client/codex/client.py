"""The connection to a `codex app-server`.

Owns the handshake, calls with the retries that are safe, and the way of every event to its thread.
It does not know turns (`turn` does), and what the server asks is answered in `server_requests`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from dragoman.client.budgets import Budgets
from dragoman.client.codex.server_requests import ServerRequests
from dragoman.client.options import DialectOptions
from dragoman.client.results import explain
from dragoman.dialects import discovery
from dragoman.dialects.codex import shapes, translate
from dragoman.dialects.codex.items import UNREADABLE
from dragoman.errors import (
    CallError,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    ProcessExited,
    ProtocolMismatch,
    RemoteError,
)
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.parts import Capabilities, Limit
from dragoman.rpc import Call, Connection, ConnectionSettings, End
from dragoman.transports.base import Stream
from dragoman.wire import codes, messages
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.client.codex.thread import CodexConversation

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.client")

OVERLOADED_TRIES: Final = 5
OVERLOADED_DELAY: Final = 0.25
"""The first wait after "overloaded", doubled each time and jittered. Such a call was refused before
anything ran, so sending it again is safe."""

EARLY_LIMIT: Final = 1000
"""Events kept for threads whose opening has not been answered yet: a handful is usual."""

NEVER_USED: Final = (
    "account/gatewayOAuth/changed",
    "app/list/updated",
    "autoApprovalReview/strictReviewRequired",
    "command/exec/outputDelta",
    "externalAgentConfig/import/completed",
    "externalAgentConfig/import/progress",
    "fs/changed",
    "fuzzyFileSearch/sessionCompleted",
    "fuzzyFileSearch/sessionUpdated",
    "mcpServer/event/stream/notification",
    "mcpServer/oauthLogin/completed",
    "mcpServer/startupStatus/updated",
    "model/safetyBuffering/updated",
    "process/exited",
    "process/outputDelta",
    "project/changed",
    "remoteControl/status/changed",
    "skills/changed",
    "thread/attachment/updated",
    "thread/environment/connected",
    "thread/environment/disconnected",
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
    "windowsSandbox/setupCompleted",
)
"""Notifications that no conversation needs; the server is asked not to send them."""

ABILITIES: Final = Capabilities(
    load=True,
    resume=True,
    list=True,
    fork=True,
    close=True,
    delete=True,
    image=True,
    audio=True,
    embedded=True,
    mcp_stdio=True,
    mcp_http=True,
    logout=False,
    steer=True,
    set_mode=True,
    set_model=True,
    set_option=True,
    cancel=True,
    permissions=True,
    prompt_acknowledged=True,
)
"""The server does not say what it can do; this is what every version of the protocol can."""

AnswerQuestions: TypeAlias = Callable[
    [shapes.UserInputRequest], Awaitable[dict[str, Sequence[str]]]
]
"""Answers the server's questions to its user: by question id, the chosen or written answers."""

AnswerForm: TypeAlias = Callable[[shapes.ElicitationRequest], Awaitable[dict[str, Any] | None]]
"""Fills in a form of an MCP server behind the server; None declines."""


class CodexOptions(DialectOptions, frozen=True, kw_only=True):
    """How the client behaves and what it asks of the server."""

    answer_questions: AnswerQuestions | None = None
    """Answers questions, in place of `inquire`."""
    answer_form: AnswerForm | None = None
    """Answers forms, in place of `inquire`."""
    approval_policy: str = "on-request"
    sandbox: str = "read-only"
    """What runs without being asked about. The default only reads: with a wider sandbox the server
    also marks the folder as trusted in its user's configuration."""
    experimental: bool = False
    """Whether to use what is not stable in the protocol. It buys being told of settings unasked."""


class CodexClient:
    """One connection to an app-server. `start` it before use, `aclose` it after."""

    def __init__(self, stream: Stream, options: CodexOptions | None = None) -> None:
        self.options = options or CodexOptions()
        self.budgets = self.options.budgets or Budgets()
        self.server = shapes.InitializeResponse(user_agent="")
        self.conversations: dict[str, CodexConversation] = {}
        self.on_event = self.options.on_event
        self._login: shapes.GetAccountResponse | None = None
        self._opening = 0
        self._early: list[model.Event] = []
        limit = self.options.max_line_size
        settings = ConnectionSettings(
            jsonrpc=False, max_line_size=DEFAULT_MAX_LINE_SIZE if limit is None else limit
        )
        self.connection = Connection(stream, End.CLIENT, self, settings=settings)
        self.connection.on_answer = self._answered
        self.connection.on_end = self._lost
        self.numbers = itertools.count(1)
        self.source = model.Source(translate.DIALECT, self.connection.name)
        self._place = EventEnvelope(self.source, self.numbers, None)
        self._questions = ServerRequests(self)

    # -- life

    async def start(self) -> None:
        """Begin to read and shake hands."""
        self.connection.start()
        params = {
            "clientInfo": {
                "name": self.options.name,
                "title": self.options.title or self.options.name,
                "version": self.options.version,
            },
            "capabilities": {
                "experimentalApi": self.options.experimental,
                "optOutNotificationMethods": list(NEVER_USED),
            },
        }
        raw = await self._call("initialize", params, self.budgets.initialize)
        try:
            self.server = msgspec.json.decode(raw, type=shapes.InitializeResponse)
        except UNREADABLE as error:
            raise ProtocolMismatch(
                f"this is no Codex app-server: {error}", dialect=discovery.of_text(raw)
            ) from error
        await self.connection.notify("initialized")
        self._ask_login()

    async def aclose(self) -> None:
        await self.connection.aclose()

    # -- calls

    async def ask(
        self, method: str, params: Any, result: type[T], *, timeout: float | None = None
    ) -> T:
        """Call a method and decode its result; "overloaded" is retried, nothing else is."""
        budget = self.budgets.request if timeout is None else timeout
        return self.decode(method, await self._call(method, params, budget), result)

    async def _call(self, method: str, params: Any, timeout: float) -> Raw:
        attempt = 1
        while True:
            try:
                return await self.connection.call(method, params, timeout=timeout)
            except RemoteError as error:
                if not may_retry(error, attempt):
                    raise
            await asyncio.sleep(retry_delay(attempt))
            attempt += 1

    def decode(self, method: str, raw: Raw, result: type[T]) -> T:
        try:
            return msgspec.json.decode(raw, type=result)
        except UNREADABLE as error:
            raise InvalidAnswer(f"the answer to {method} is malformed: {error}") from error

    async def models(self, *, timeout: float | None = None) -> list[shapes.Model]:
        """The models that can be chosen where the provider is OpenAI."""
        found: list[shapes.Model] = []
        params: dict[str, Any] = {}
        while True:
            page = await self.ask("model/list", params, shapes.ModelListResponse, timeout=timeout)
            found += [entry for entry in page.data if not entry.hidden]
            if page.next_cursor is None or page.next_cursor == params.get("cursor"):
                return found
            params["cursor"] = page.next_cursor

    async def account(self) -> shapes.GetAccountResponse:
        """Whether somebody is logged in. Never logs in."""
        self._login = await self.ask("account/read", {}, shapes.GetAccountResponse)
        return self._login

    async def limits(self) -> tuple[Limit, ...]:
        """What the account may still use. Only a login at OpenAI has such limits."""
        told = await self.ask("account/rateLimits/read", {}, shapes.GetAccountRateLimitsResponse)
        found = (told.rate_limits_by_limit_id or {}).values() or [told.rate_limits]
        return tuple(limit for each in found for limit in translate.limits_of(each))

    @property
    def needs_login(self) -> bool:
        """Whether the server says that a login is needed and there is none."""
        login = self._login
        return login is not None and login.requires_openai_auth and login.account is None

    def _ask_login(self) -> None:
        """Nobody waits for this: it is only needed once a turn has failed."""

        def settle(raw: Raw | None, error: DragomanError | None) -> None:
            try:
                if raw is not None:
                    self._login = self.decode("account/read", raw, shapes.GetAccountResponse)
            except InvalidAnswer as invalid:
                log.debug("the login is not known: %s", invalid)

        if self.connection.failure is None:
            self.connection.begin("account/read", {}, settle=settle, timeout=self.budgets.request)

    # -- events

    def emit(self, event: model.Event, size: int) -> None:
        """Hand an event to its conversation and to whoever watches."""
        conversation = None if event.session is None else self.conversations.get(event.session)
        if conversation is not None:
            if type(event) is model.MessageDelta and conversation.turn is not None:
                # The commonest event of all, and nobody has anything to add to it.
                if self.on_event is not None:
                    self.watch(event)
                conversation.turn.event(event, size)
                return
            event = conversation.seen(event)
        if conversation is None or not conversation.will_tell(event):
            self.watch(event)
        if conversation is not None:
            conversation.deliver(event, size)
        elif event.session is not None and self._opening and len(self._early) < EARLY_LIMIT:
            # Some notifications come before the answer that tells the thread's id. Others are of
            # threads that are not ours, such as those of agents that Codex itself starts.
            self._early.append(event)

    def watch(self, event: model.Event) -> None:
        """Tell whoever watches all events."""
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:
                # One observer must not stop the others.
                log.exception("the observer of a connection's events failed")

    @contextmanager
    def opening(self) -> Iterator[None]:
        """While a thread is being opened, events of unknown threads may be of that one."""
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1
            if not self._opening:
                self._early.clear()

    def adopt(self, conversation: CodexConversation) -> None:
        self.conversations[conversation.id] = conversation
        for event in self._early:
            if event.session == conversation.id:
                conversation.deliver(conversation.seen(event), 0)

    def place(self, thread_id: str | None, turn_id: str | None = None) -> EventEnvelope:
        place = EventEnvelope(self.source, self.numbers, thread_id)
        place.turn = turn_id
        return place

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        pass

    def notification(self, notification: Notification) -> None:
        size = len(notification.line)
        for event in translate.of_notification(
            notification.method, notification.params, self._place, notification.line
        ):
            if type(event) is model.MessageDelta:
                self.emit(event, size)
                continue
            if isinstance(event, model.InputAnswered):
                # Events have names of their own for requests whose ids came again.
                name = self._questions.name_of(event.request_id)
                event = msgspec.structs.replace(event, request_id=name)
            self.emit(event, size)
            if isinstance(event, model.LoginChanged):
                self._ask_login()

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)
        self.not_understood("", noise.line, "no message that is understood here")
        if self.options.on_noise is not None:
            self.options.on_noise(noise)

    def request(self, request: Request) -> Any:
        return self._questions.ask(request)

    def not_understood(self, method: str, line: bytes, reason: str) -> None:
        """Nothing that came is lost for whoever watches."""
        self.watch(model.Unknown(*self.place(None).base(method, line), reason))

    def _answered(self, call: Call, error: CallError | None) -> None:
        """An answer came, and whoever waited for it has it."""
        base = self.place(None).base(call.method, call.line)
        if call.method == "initialize" and error is None and call.line is not None:
            answer = messages.decode(call.line)
            if isinstance(answer, messages.ResultResponse):
                self.watch(
                    model.ConnectionReady(*base, translate.peer_info(answer.result), ABILITIES)
                )
                return
        failure = None if error is None else explain(error)[1]
        self.watch(model.Answered(*base, failure))

    def _lost(self, failure: ConnectionLost) -> None:
        """The connection is over. No call stands for a turn that has begun, so tell each one."""
        for conversation in list(self.conversations.values()):
            if conversation.turn is not None:
                error = failure.fresh()
                error.may_have_run = True
                conversation.turn.failed(error)
        exited = failure if isinstance(failure, ProcessExited) else None
        self.watch(
            model.ConnectionOver(
                *self.place(None).base("", None),
                failure.error_class,
                str(failure),
                exited.exit_code if exited else None,
                exited.signal if exited else None,
                exited.stderr_tail if exited else "",
            )
        )


def may_retry(error: DragomanError | None, attempt: int) -> bool:
    """Whether a call that failed with this is sent again after this attempt."""
    overloaded = isinstance(error, RemoteError) and error.code == codes.OVERLOADED
    return overloaded and attempt < OVERLOADED_TRIES


def retry_delay(attempt: int) -> float:
    """How long to wait after "overloaded", jittered so that many clients do not come at once."""
    return OVERLOADED_DELAY * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5)
