"""The connection to a `codex app-server`.

Does the handshake, retries calls if that is safe, and routes every event to its thread. `turn`
handles turns, and `server_requests` answers the server's requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from dragoman.client.base import Cursor, EventClient, call_in_order
from dragoman.client.codex.server_requests import ServerRequests
from dragoman.client.options import DialectOptions
from dragoman.decoders import decode_typed
from dragoman.dialects import discovery
from dragoman.dialects.codex import shapes, translate
from dragoman.errors import (
    CallError,
    DragomanError,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
)
from dragoman.events import model
from dragoman.events.parts import Capabilities, Limit
from dragoman.rpc import Call, Connection, ConnectionSettings, End
from dragoman.transports.base import Stream
from dragoman.wire import codes, messages
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import UNDECODABLE, Notification, Request

if TYPE_CHECKING:
    from dragoman.client.codex.thread import CodexConversation

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.client")

OVERLOADED_TRIES: Final = 5
OVERLOADED_DELAY: Final = 0.25
"""Seconds to wait after the server first refused a call as overloaded; doubled after each further
refusal, and jittered. Such a call was refused before anything ran, so it is safe to retry."""

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
"""Notifications that no conversation needs. The server is asked not to send them."""

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
"""The capabilities of every version of the protocol: the server does not report its own."""

AnswerQuestions: TypeAlias = Callable[
    [shapes.UserInputRequest], Awaitable[dict[str, Sequence[str]]]
]
"""Callback that answers the server's questions to its user. Returns the chosen or written answers
by question id."""

AnswerForm: TypeAlias = Callable[[shapes.ElicitationRequest], Awaitable[dict[str, Any] | None]]
"""Callback that fills in a form of an MCP server behind the app-server. Returns the values by name,
or None to decline."""


class CodexOptions(DialectOptions, frozen=True, kw_only=True):
    """How the client behaves and what it requests from the server."""

    answer_questions: AnswerQuestions | None = None
    """Callback that answers the server's questions to its user, instead of `inquire`."""
    answer_form: AnswerForm | None = None
    """Callback that fills in the forms of MCP servers, instead of `inquire`."""
    approval_policy: str = "on-request"
    sandbox: str = "read-only"
    """With `approval_policy`, decides what may run without asking for permission. The default
    allows only reading: with a wider sandbox the server also marks the directory as trusted in the
    user's configuration."""
    developer_instructions: str = ""
    """Instructions for every thread, added to the server's own."""
    experimental: bool = False
    """Whether to use unstable parts of the protocol, such as notifications of changed settings."""


class CodexClient(EventClient["CodexConversation"]):
    """One connection to an app-server. Call `start` before use and `aclose` afterwards."""

    conversations: dict[str, CodexConversation]

    def __init__(self, stream: Stream, options: CodexOptions | None = None) -> None:
        self.options = options or CodexOptions()
        self.server = shapes.InitializeResponse(user_agent="")
        self._login: shapes.GetAccountResponse | None = None
        limit = self.options.max_line_size
        settings = ConnectionSettings(
            jsonrpc=False, max_line_size=DEFAULT_MAX_LINE_SIZE if limit is None else limit
        )
        connection = Connection(stream, End.CLIENT, self, settings=settings)
        super().__init__(self.options, translate.DIALECT, connection)
        self._questions = ServerRequests(self)

    # -- start and end

    async def start(self) -> None:
        """Start reading and do the handshake."""
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
            self.server = decode_typed(raw, shapes.InitializeResponse)
        except UNDECODABLE as error:
            raise ProtocolMismatch(
                f"the handshake response is not from a Codex app-server: {error}",
                dialect=discovery.of_text(raw),
            ) from error
        await self.connection.notify("initialized")
        self._ask_login()

    # -- calls

    async def ask(
        self,
        method: str,
        params: Any,
        result: type[T],
        *,
        timeout: float | None = None,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """Call a method and return its decoded result. The call is retried only if the server is
        overloaded. `timeout` defaults to the budget for a request.

        If the result comes too late for the caller, `undo` is called with it instead.
        """

        def undo_raw(raw: Raw) -> None:
            assert undo is not None
            try:
                undo(self.decode(method, raw, result))
            except InvalidAnswer as error:
                log.debug("the late response is invalid and cannot be undone: %s", error)

        budget = self.budgets.request if timeout is None else timeout
        raw = await self._call(method, params, budget, None if undo is None else undo_raw)
        return self.decode(method, raw, result)

    async def _call(
        self, method: str, params: Any, timeout: float, undo: Callable[[Raw], None] | None = None
    ) -> Raw:
        connection = self.connection
        attempt = 1
        while True:
            try:
                if undo is None:
                    return await connection.call(method, params, timeout=timeout)
                return await call_in_order(
                    connection, method, params, lambda call, raw: raw, timeout=timeout, undo=undo
                )
            except RemoteError as error:
                if not may_retry(error, attempt):
                    raise
            await asyncio.sleep(retry_delay(attempt))
            attempt += 1

    def decode(self, method: str, raw: Raw, result: type[T]) -> T:
        try:
            return decode_typed(raw, result)
        except UNDECODABLE as error:
            raise InvalidAnswer(f"invalid response to {method}: {error}") from error

    async def models(self) -> list[shapes.Model]:
        """Return the models that the server lists, without hidden ones. A server lists only
        OpenAI's models."""
        found: list[shapes.Model] = []
        cursor = Cursor("models")
        while not cursor.over:
            params = {} if cursor.value is None else {"cursor": cursor.value}
            page = await self.ask("model/list", params, shapes.ModelListResponse)
            found += [entry for entry in page.data if not entry.hidden]
            cursor.advance(page.next_cursor)
        return found

    async def account(self) -> shapes.GetAccountResponse:
        """Request and return the login state. Never logs in."""
        self._login = await self.ask("account/read", {}, shapes.GetAccountResponse)
        return self._login

    async def limits(self) -> tuple[Limit, ...]:
        """Return how much of the account's limits is used. Only an OpenAI login has such limits."""
        told = await self.ask("account/rateLimits/read", {}, shapes.GetAccountRateLimitsResponse)
        found = (told.rate_limits_by_limit_id or {}).values() or [told.rate_limits]
        return tuple(limit for each in found for limit in translate.limits_of(each))

    @property
    def needs_login(self) -> bool:
        """Whether the server last reported that a login is required and missing."""
        login = self._login
        return login is not None and login.requires_openai_auth and login.account is None

    def _ask_login(self) -> None:
        """Request the login state in the background: it is only needed once a turn has failed."""

        def settle(raw: Raw | None, error: DragomanError | None) -> None:
            try:
                if raw is not None:
                    self._login = self.decode("account/read", raw, shapes.GetAccountResponse)
            except InvalidAnswer as invalid:
                log.debug("login state unknown: %s", invalid)

        if self.connection.failure is None:
            self.connection.begin("account/read", {}, settle=settle, timeout=self.budgets.request)

    # -- called by the connection

    def notification(self, notification: Notification) -> None:
        size = len(notification.line)
        for event in translate.of_notification(
            notification.method, notification.params, self.no_session, notification.line
        ):
            if type(event) is model.MessageDelta:
                # The most common event; a thread adds nothing to it.
                conversation = self.conversations.get(event.session)  # type: ignore[arg-type]
                if conversation is not None and conversation.turn is not None:
                    if self.on_event is not None:
                        self.emit(event)
                    conversation.turn.event(event, size)
                else:
                    self.deliver(event, size)
                continue
            if isinstance(event, model.InputAnswered):
                # Request ids may repeat, so events use their own.
                name = self._questions.names.newest(event.request_id)
                event = msgspec.structs.replace(event, request_id=name)
            self.deliver(event, size)
            if isinstance(event, model.LoginChanged):
                self._ask_login()

    def request(self, request: Request) -> Any:
        return self._questions.ask(request)

    def _answered(self, call: Call, error: CallError | None) -> None:
        if call.method == "initialize" and error is None and call.line is not None:
            answer = messages.decode(call.line)
            if isinstance(answer, messages.ResultResponse):
                base = self.no_session.base(call.method, call.line)
                info = translate.peer_info(answer.result)
                self.emit(model.ConnectionReady(*base, info, ABILITIES))
                return
        super()._answered(call, error)


def may_retry(error: DragomanError | None, attempt: int) -> bool:
    """Return whether to retry a call whose attempt number `attempt`, from 1, ended with `error`:
    only if the server was overloaded, and at most `OVERLOADED_TRIES` attempts in all."""
    overloaded = isinstance(error, RemoteError) and error.code == codes.OVERLOADED
    return overloaded and attempt < OVERLOADED_TRIES


def retry_delay(attempt: int) -> float:
    """Return how many seconds to wait after attempt number `attempt`, from 1, before the next. The
    delay is jittered so that many clients do not retry at once."""
    return OVERLOADED_DELAY * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5)
