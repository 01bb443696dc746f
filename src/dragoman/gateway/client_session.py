"""Serve a peer to one client: requests go to the peer, the peer's events go to the client.

Events of a turn are sent in wire order and before the response to the prompt; events outside a turn
follow after it. `events_to_acp` translates events, `prompt_responses` translates results and
errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from msgspec import Raw, json
from msgspec.structs import replace

from dragoman.agent import Agent, Turn
from dragoman.agent.client_side import ClientSide
from dragoman.agent.server import Server
from dragoman.agent.session import Session
from dragoman.agent.speech import AcpSpeech
from dragoman.client.conversation import Conversation, Opening
from dragoman.client.permissions import Answer, Chosen, Decision, Question
from dragoman.client.turns import TurnEndMark as Ended
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.session import listed_meta
from dragoman.dialects.acp.v1.shape import DIALECT, META
from dragoman.errors import ConnectionLost, DragomanError, MessageTooLong, RemoteError
from dragoman.errors.usage import shown
from dragoman.events import model
from dragoman.events.fold import apply
from dragoman.gateway import login, prompt_responses
from dragoman.gateway.acp_filter import RAW_KEY
from dragoman.gateway.acp_passthrough import PassthroughSession
from dragoman.gateway.choices import Choices, stands_for_models, wanted_metadata, wanted_model
from dragoman.gateway.client_requests import permission_options, tool_call_of
from dragoman.gateway.events_to_acp import AcpTranslator
from dragoman.gateway.relay import Upstream
from dragoman.gateway.session import GatewaySession, until_told
from dragoman.rpc import Connection, End
from dragoman.rpc.responder import Handlers
from dragoman.rpc.tasks import all_ended, finish
from dragoman.transports.base import Stream
from dragoman.wire import codes, messages

if TYPE_CHECKING:
    from dragoman.client.acp.session import Session as AcpSession
    from dragoman.gateway.gateway import Gateway

P = ParamSpec("P")
T = TypeVar("T")

log: Final = logging.getLogger("dragoman.gateway")

LAST_WORDS_TIMEOUT: Final = 5.0
"""Seconds that the responses to running prompts may take after the peer has disconnected."""

MAX_LISTED: Final = 10_000
"""Maximum number of sessions in one list."""

_UPDATE: Final = acp.SESSION_UPDATE.name


class ClientSession:
    """Serves a peer to one client."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._peer = gateway.peer
        self._forwards = gateway.peer.dialect == translate.DIALECT
        self._sessions: dict[str, GatewaySession] = {}
        self._server = Server(self._agent())
        self._connection: Connection | None = None

    # -- life

    async def serve(
        self,
        stream: Stream | Connection,
        upstream: Upstream | None = None,
        *,
        on_taken: Callable[[Handlers], None] | None = None,
    ) -> ConnectionLost:
        """Serve the client until it or the peer disconnects. Returns why the client's connection
        ended.

        With `upstream`, messages from a client that speaks ACP are forwarded unchanged.
        `on_taken` is needed if `stream` is a connection that was already started: it is called with
        the handlers for that connection.
        """
        through = (
            None
            if upstream is None
            else PassthroughSession(
                upstream, self._server, raw=self._gateway.raw, named=self._gateway.dialect
            )
        )
        handlers = through or self._server
        try:
            if isinstance(stream, Connection):
                connection = stream
                connection.hand_to(handlers)
            else:
                settings = self._gateway.settings
                connection = Connection(stream, End.AGENT, handlers, settings=settings)
            if on_taken is None:
                connection.start()
            else:
                on_taken(handlers)
        except BaseException:
            await stream.aclose()
            raise
        self._connection = connection
        # The last step added runs first, and a step that fails does not skip the others.
        async with contextlib.AsyncExitStack() as closing:
            if through is not None:
                closing.push_async_callback(through.aclose)
            closing.push_async_callback(self._close_sessions)
            closing.callback(self._gateway.services.forget, self)
            closing.push_async_callback(connection.aclose)
            connection.tasks.start(self._end_with_peer(connection), "watch the peer")
            return await connection.wait_ended()

    async def _end_with_peer(self, connection: Connection) -> None:
        """Wait until the peer has disconnected. Then wait, for a limited time, until the client's
        open requests are answered, and close the client's connection."""
        await self._peer.client.connection.wait_ended()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_TIMEOUT):
                await connection.wait_answered()
        await connection.aclose()

    async def _close_sessions(self) -> None:
        conversations = [each.conversation for each in self._sessions.values()]
        for conversation in conversations:
            self._forget(conversation.id)
        # All at once, so that the timeouts of a peer that hangs do not add up.
        await all_ended(*map(_close_there, conversations))

    def _refusing(self, handler: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Wrap a handler: a `DragomanError` that it raises is converted with `Gateway.refusal`."""

        @functools.wraps(handler)
        async def refused(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await handler(*args, **kwargs)
            except DragomanError as error:
                raise self._gateway.refusal(error) from error

        return refused

    # -- the agent that the client sees

    def _agent(self) -> Agent:
        peer = self._peer
        can = peer.capabilities
        agent = Agent(
            peer.info.name or peer.dialect,
            version=peer.info.version or "0",
            title=peer.info.title,
            auth_methods=login.methods(peer, secret=False, shown=self._gateway.secret_logins),
            image=bool(can.image),
            audio=bool(can.audio),
            embedded_context=bool(can.embedded),
            mcp_http=bool(can.mcp_http),
            mcp_sse=bool(can.mcp_sse),
            additional_directories=bool(can.additional_directories),
            dialect=self._gateway.dialect,
        )
        # A program between us and the user needs to know the actual agent.
        agent.info = replace(agent.info, meta={META: {DIALECT: peer.dialect}})
        agent.choices = Choices()
        agent.secret_methods = login.methods(peer, secret=True)
        agent.prompt(self._prompt)
        agent.new_session(self._refusing(self._new))
        agent.close_session(self._refusing(self._close))
        agent.set_mode(self._refusing(self._set_mode))
        agent.set_option(self._refusing(self._set_option))
        # Unknown capabilities are offered: the peer refuses what it cannot do.
        if can.load is not False:
            agent.load_session(self._refusing(self._load))
        if can.resume is not False:
            agent.resume_session(self._refusing(self._resume))
        if can.list is not False:
            agent.list_sessions(self._refusing(self._list))
        if can.delete is not False:
            agent.delete_session(self._refusing(peer.delete_session))
        if agent.auth_methods or agent.secret_methods:
            agent.authenticate(self._refusing(functools.partial(login.authenticate, peer)))
        if can.logout:
            agent.logout(self._refusing(peer.logout))
        return agent

    # -- sessions

    async def _open(self, session: Session, how: str) -> GatewaySession:
        can = self._peer.capabilities
        servers = session.mcp_servers
        if servers and can.mcp_stdio is False:
            log.warning("%s does not support MCP servers; dropping those of the client", self._peer)
            servers = ()
        opening = Opening(
            cwd=session.cwd,
            how=how,
            session_id=None if how == "new" else session.id,
            model=wanted_model(session.meta) if how == "new" else None,
            mcp_servers=servers,
            additional_directories=session.additional_directories,
            metadata=wanted_metadata(session.meta) if how == "new" else {},
        )
        with self._gateway.early.expecting():
            conversation = await self._peer.open(opening)
            session.id = conversation.id
            capabilities = session.client.client_capabilities
            connection = self._server.connection
            side = ClientSide(connection, conversation.id, capabilities, speech=self._server.speech)
            gateway_session = GatewaySession(
                conversation,
                AcpTranslator(
                    notices=side.can("session.notices"),
                    compaction=side.can("session.compaction"),
                ),
                side,
                functools.partial(self._server.speech.update, conversation.id),
            )
            self._sessions[conversation.id] = gateway_session
            self._gateway.adopt(conversation.id, self)
        session.choose_from(Choices(conversation, gateway_session.view))
        return gateway_session

    async def _new(self, session: Session) -> None:
        await self._open(session, "new")

    async def _resume(self, session: Session) -> None:
        await self._open(session, "resume")

    async def _load(self, session: Session, replay: Turn) -> None:
        gateway_session = await self._open(session, "load")
        # No task has run since the session is open: nothing outside of turns is sent yet.
        gateway_session.replaying = True
        try:
            await gateway_session.conversation.wait_replayed()
            for event in gateway_session.conversation.replayed:
                await gateway_session.tell_next(
                    event, functools.partial(self._tell, gateway_session)
                )
        except BaseException:
            # The client does not have the session, so it could neither close it nor load it again.
            self._forget(session.id)
            await finish(_close_there(gateway_session.conversation))
            raise
        gateway_session.replaying = False
        self._tell_outside(gateway_session)

    async def _list(self, request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
        found: list[acp.SessionInfo] = []
        async for summary in self._peer.list_sessions(request.cwd):
            found.append(
                acp.SessionInfo(
                    session_id=summary.id,
                    cwd=summary.cwd or str(self._peer.workspace),
                    title=summary.title,
                    updated_at=summary.updated_at,
                    meta=listed_meta(summary.created_at, summary.status),
                )
            )
            if len(found) >= MAX_LISTED:
                break
        return found

    async def _close(self, session: Session) -> None:
        gateway_session = self._sessions.get(session.id)
        if gateway_session is not None:
            self._forget(session.id)
            await gateway_session.conversation.close()

    def _forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._gateway.forget(session_id, self)

    def _session_of(self, session_id: str) -> GatewaySession:
        gateway_session = self._sessions.get(session_id)
        if gateway_session is None:
            raise RemoteError(codes.NOT_FOUND, f"there is no session {shown(session_id)}")
        return gateway_session

    async def _set_mode(self, session: Session, mode_id: str) -> None:
        conversation = self._session_of(session.id).conversation
        if self._forwards:
            # The peer speaks ACP: use `session/set_mode`, even if it has an option for the mode.
            await cast("AcpSession", conversation).switch_mode(mode_id)
        else:
            await conversation.set_mode(mode_id)

    async def _set_option(self, session: Session, option_id: str, value: str | bool) -> None:
        gateway_session = self._session_of(session.id)
        if isinstance(value, str) and stands_for_models(gateway_session.conversation, option_id):
            await gateway_session.conversation.set_model(value)
        else:
            await gateway_session.conversation.set_option(option_id, value)

    # -- turns

    async def _prompt(self, turn: Turn) -> acp.PromptResponse:
        gateway_session = self._session_of(turn.session.id)
        tell = functools.partial(self._tell, gateway_session)
        with gateway_session.prompted(turn, self._server.connection, tell):
            try:
                prompt = [translate.block(block) for block in turn.prompt]
                async with gateway_session.conversation.prompt(prompt) as running:
                    ended = await gateway_session.follow(running, tell)
                    result = running.result
                return prompt_responses.response(result, ended, refusal=self._gateway.refusal)
            except RemoteError:
                raise
            except DragomanError as error:
                raise self._gateway.refusal(error) from error

    # -- events

    def happened(self, event: model.Event) -> None:
        """Called with every event of the client's sessions, in order. Applies settings, and queues
        live events outside of turns; `GatewaySession.follow` sends those of a turn."""
        gateway_session = self._sessions[event.session or ""]
        if isinstance(event, model.SettingsChanged):
            apply(gateway_session.view, event)
        if gateway_session.conversation.turn is None and not event.replay:
            gateway_session.put_outside(event)
            self._tell_outside(gateway_session)

    def _tell_outside(self, gateway_session: GatewaySession) -> None:
        gateway_session.tell_outside(
            self._server.connection, functools.partial(self._tell, gateway_session)
        )

    async def _tell(self, gateway_session: GatewaySession, event: model.Event) -> None:
        """Send one event. If both sides speak ACP and the client supports this kind of update, the
        peer's own message is forwarded."""
        speech = self._server.speech
        raw = event.raw
        if self._forwards and type(speech) is AcpSpeech and gateway_session.takes(event):
            # One line may be several events, and is sent once.
            if raw is not None and raw is not gateway_session.last_raw:
                is_update = event.native.startswith(_UPDATE)
                if is_update and self._server.connection.is_full:
                    # If a cancellation ends this wait, the same event is sent again.
                    await self._server.connection.drain()
                gateway_session.last_raw = raw
                if is_update:
                    try:
                        self._forward(raw)
                    except MessageTooLong as error:
                        await gateway_session.leave_out(error)
        else:
            await gateway_session.tell_all(event, functools.partial(self._updates, gateway_session))
        if isinstance(event, model.PermissionAsked):
            if event.request_id in gateway_session.told:
                gateway_session.told.discard(event.request_id)
            else:
                gateway_session.question(event.request_id).set()

    def _forward(self, line: bytes) -> None:
        """Forward the peer's message to the client without decoding its params."""
        try:
            params = messages.decode_envelope(line).params
        except messages.UNDECODABLE:
            message = messages.decode(line)
            params = message.params if isinstance(message, messages.Notification) else Raw(b"{}")
        self._server.connection.post(_UPDATE, params)

    def _updates(
        self, gateway_session: GatewaySession, event: model.Event
    ) -> list[acp.SessionUpdate]:
        if isinstance(event, model.SettingsChanged):
            updates = self._settings(gateway_session, event)
        else:
            updates = list(gateway_session.speaker.updates(event))
        if self._gateway.raw and event.raw is not None:
            meta = {RAW_KEY: _plain(event.raw)}
            updates = [replace(update, meta=meta) for update in updates]
        return updates

    def _settings(
        self, gateway_session: GatewaySession, event: model.SettingsChanged
    ) -> list[acp.SessionUpdate]:
        updates: list[acp.SessionUpdate] = []
        # If both speak ACP, the client gets the peer's own message about the mode.
        told = self._forwards and type(self._server.speech) is AcpSpeech
        if isinstance(event.mode, str) and gateway_session.view.modes and not told:
            updates.append(acp.CurrentModeUpdate(current_mode_id=event.mode))
        options = Choices(gateway_session.conversation, gateway_session.view).config_options(
            None, {}, gateway_session.side.capabilities
        )
        if options:
            updates.append(acp.ConfigOptionUpdate(config_options=options))
        return updates

    # -- requests from the peer

    def side(self, session_id: str) -> ClientSide:
        """Return the object that sends requests to the client about a session."""
        return self._sessions[session_id].side

    async def caught_up(self, session_id: str) -> None:
        """Wait until all events of a session's turn so far were sent to the client, for a limited
        time."""
        await self._sessions[session_id].caught_up()

    def page_done(self, page_id: str) -> None:
        """Tell the client that its user has completed the interaction at a URL."""
        connection = self._server.connection
        if connection.failure is None:
            done = acp.CompleteElicitationNotification(elicitation_id=page_id)
            connection.post(acp.ELICITATION_COMPLETE.name, done)

    async def decide(self, question: Question) -> Decision:
        """Ask the client's user to decide about a permission request, which is rejected if the
        client cannot be asked."""
        gateway_session = self._sessions[question.session_id]
        offered = {option.option_id: option for option in question.options}
        if self._is_next(gateway_session, question):
            gateway_session.told.add(question.request_id)
        elif question.request_id and gateway_session.unanswered:
            # The client must get the tool call before the request about it.
            await until_told(gateway_session.question(question.request_id))
            gateway_session.asked.pop(question.request_id, None)
        try:
            chosen = await gateway_session.side.permission(
                tool_call_of(question), permission_options(question)
            )
        except DragomanError as error:
            log.warning("the client could not be asked for permission: %s", error)
            return Answer.REJECT_ONCE
        if chosen is None:
            return Answer.CANCEL
        return Chosen(chosen.option_id, Answer(str(offered[chosen.option_id].kind)))

    def _is_next(self, gateway_session: GatewaySession, question: Question) -> bool:
        """Return whether a permission request can be sent at once, because no event of the turn has
        to be sent before it. Only if both sides speak ACP: the request contains the tool call."""
        if not self._forwards or gateway_session.running is None:
            return False
        if gateway_session.known < gateway_session.taken:
            # The client reads too slowly: an event is taken but not sent yet.
            return False
        line: bytes | None = None
        for event in gateway_session.running.untaken:
            if isinstance(event, Ended) or (line is not None and event.raw is not line):
                return False
            line = event.raw
            if isinstance(event, model.PermissionAsked):
                return event.request_id == question.request_id
        return False


async def _close_there(conversation: Conversation) -> None:
    try:
        await conversation.close()
    except DragomanError as error:
        log.debug("could not close session %s at the peer: %s", conversation.id, error)


def _plain(line: bytes) -> Any:
    try:
        return json.decode(line)
    except messages.UNDECODABLE:
        return line.decode("utf-8", "replace")
