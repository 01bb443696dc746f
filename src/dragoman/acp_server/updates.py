"""Send `session/update` notifications to one client, in order.

Events of a turn are sent in wire order. Events outside the turn wait until the response to the
running prompt is sent.
Updates from a peer that speaks ACP are forwarded without translation under the client's session id,
except options, modes and commands, which are merged with ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from dragoman.agent.server import Server
from dragoman.agent.speech import AcpSpeech
from dragoman.decoders import typed_decoder
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionLost, MessageTooLong
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.words import Role
from dragoman.gateway.acp_filter import Unannounced
from dragoman.gateway.events_to_acp import AcpTranslator
from dragoman.gateway.session import GatewaySession
from dragoman.wire import messages
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.agent import Turn
    from dragoman.agent.client_side import ClientSide
    from dragoman.agent.session import Session
    from dragoman.client.conversation import Conversation, ConversationTurn

log: Final = logging.getLogger("dragoman.acp_server")

ACP: Final = "acp"

_UPDATE: Final = acp.SESSION_UPDATE.name

MERGED: Final = frozenset(
    f"{_UPDATE}:{kind}"
    for kind in ("available_commands_update", "config_option_update", "current_mode_update")
)
"""Kinds of a peer's updates that are merged with ours."""

UNTOLD: Final = frozenset({*MERGED, f"{_UPDATE}:user_message_chunk"})
"""Kinds of updates that are not forwarded as they are: those merged with ours, and the user's
messages, which the client already has."""


class _Params(Struct):
    update: Raw
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


_decode = typed_decoder(_Params)


_response: Final[ContextVar[asyncio.Event | None]] = ContextVar("response", default=None)
"""Event that is set when the response to the current request is made; None outside `responding`."""


@contextlib.contextmanager
def responding() -> Iterator[None]:
    """Context manager for a handler: updates that it sends with `UpdateSender.soon` follow its
    response, which is made when the block ends. Before that, the client may not know the session.
    """
    made = asyncio.Event()
    token = _response.set(made)
    try:
        yield
    finally:
        _response.reset(token)
        made.set()


class UpdateSender:
    """Sends the updates of one session to its client."""

    def __init__(
        self,
        server: Server,
        session: Session,
        side: ClientSide,
        commands: Callable[[], Sequence[acp.AvailableCommand]],
    ) -> None:
        self._server = server
        self._session = session
        self._side = side
        self._commands = commands
        self._name = msgspec.json.encode(session.id)
        self._gateway_session: GatewaySession | None = None
        stored = EventEnvelope(model.Source(ACP, "stored"), itertools.count(1), session.id)
        self._replayed = Unannounced(side.capabilities, stored)

    def follow(self, conversation: Conversation | None) -> None:
        """Send the events of this conversation from now on; None to send no more events. Queued
        events of the previous conversation are dropped."""
        if self._gateway_session is not None:
            self._gateway_session.forget_outside()
            self._gateway_session = None
        if conversation is not None:
            speaker = AcpTranslator(
                notices=self._side.can("session.notices"),
                compaction=self._side.can("session.compaction"),
            )
            self._gateway_session = GatewaySession(conversation, speaker, self._side, self.update)

    # -- our own updates

    async def update(self, update: acp.SessionUpdate) -> None:
        waiting = self._server.speech.update(self._session.id, update)
        if waiting is not None:
            await waiting

    async def choices(self) -> None:
        """Send the current mode and config options."""
        modes = self._session.mode_state()
        if modes is not None:
            await self.update(acp.CurrentModeUpdate(current_mode_id=modes.current_mode_id))
        await self.update(acp.ConfigOptionUpdate(config_options=self._session.config_options()))

    async def commands(self) -> None:
        """Send the current slash commands."""
        await self.update(acp.AvailableCommandsUpdate(available_commands=self._commands()))

    def soon(self, *told: Callable[[], object]) -> None:
        """Start a task that awaits these callbacks in order; each sends updates. If called inside a
        `responding` block, the task first waits until the block ends."""
        connection = self._server.connection
        response = _response.get()

        async def tell() -> None:
            if response is not None:
                await response.wait()
            with contextlib.suppress(ConnectionLost):
                for each in told:
                    await each()  # type: ignore[misc]

        if connection.failure is None:
            connection.tasks.start(tell(), "tell the client")

    # -- a turn of the peer

    @contextlib.contextmanager
    def prompted(self, turn: Turn) -> Iterator[GatewaySession]:
        """Context manager for a prompt to the peer: events outside the turn wait until the response
        to the prompt is sent. Yields the gateway session to pass to `UpdateSender.turn`."""
        gateway_session = self._gateway_session
        assert gateway_session is not None
        tell = partial(self._tell, gateway_session)
        with gateway_session.prompted(turn, self._server.connection, tell):
            yield gateway_session

    async def turn(
        self,
        gateway_session: GatewaySession,
        running: ConversationTurn,
        *,
        taken: Callable[[model.Event], None],
        first: Callable[[], Awaitable[None]],
    ) -> model.TurnEnded | None:
        """Send the events of a turn until it ends, even after the client cancelled. Returns the
        turn's `TurnEnded`, if any. `taken` and `first` are those of `GatewaySession.follow`."""
        # Not `self._gateway_session`: the session may be left while the prompt is prepared.
        tell = partial(self._tell, gateway_session)
        return await gateway_session.follow(running, tell, taken=taken, first=first)

    def happened(self, event: model.Event) -> None:
        """Queue an event that is outside a turn, and send it when possible. Replayed events are
        ignored, and so are those of a running turn, which `turn` sends."""
        gateway_session = self._gateway_session
        if gateway_session is None or event.replay or gateway_session.conversation.turn is not None:
            return
        gateway_session.put_outside(event)
        self._tell_outside(gateway_session)

    async def caught_up(self) -> None:
        """Wait until the events of the turn so far were sent, for at most
        `gateway.session.TOLD_TIMEOUT`."""
        if self._gateway_session is not None:
            await self._gateway_session.caught_up()

    def _tell_outside(self, gateway_session: GatewaySession) -> None:
        gateway_session.tell_outside(self._server.connection, partial(self._tell, gateway_session))

    async def _tell(self, gateway_session: GatewaySession, event: model.Event) -> None:
        if isinstance(event, model.SettingsChanged):
            self._session.mode = self._session.choices.first_mode
            await self.choices()
        elif isinstance(event, model.CommandsChanged):
            await self.commands()
        elif (
            event.source.spoken == ACP
            and type(self._server.speech) is AcpSpeech
            and gateway_session.takes(event)
        ):
            await self._pass_on(gateway_session, event)
        else:
            await gateway_session.tell_all(event, gateway_session.speaker.updates)

    async def _pass_on(self, gateway_session: GatewaySession, event: model.Event) -> None:
        """Forward the peer's update with only its session id changed, unless it is of a kind in
        `UNTOLD`. An update that was decoded into several events is forwarded once."""
        raw = event.raw
        if raw is None or raw is gateway_session.last_raw or not event.native.startswith(_UPDATE):
            return
        if event.native not in UNTOLD and self._server.connection.is_full:
            # If a cancellation ends this wait, the same event is sent again.
            await self._server.connection.drain()
        gateway_session.last_raw = raw
        if event.native in UNTOLD:
            return
        try:
            params = messages.decode_envelope(messages.mend(raw)).params
        except messages.UNDECODABLE as error:
            log.warning("cannot forward an update from the peer: %s", error)
            return
        try:
            self._post(params)
        except MessageTooLong as error:
            await gateway_session.leave_out(error)

    def _post(self, params: Raw | bytes) -> None:
        try:
            told = _decode(params)
        except UNDECODABLE as error:
            log.warning("cannot forward an update from the peer: %s", error)
            return
        meta = b"" if isinstance(told.meta, UnsetType) else b',"_meta":' + bytes(told.meta)
        line = b'{"sessionId":%b,"update":%b%b}' % (self._name, bytes(told.update), meta)
        self._server.connection.post(_UPDATE, Raw(line))

    # -- stored updates

    async def replay(self, line: bytes, events: Sequence[model.Event]) -> None:
        """Send a peer's stored update to the client, unless it is of a kind in `UNTOLD` or a
        message of the user. `events` are the events decoded from `line`; if there are none, nothing
        is sent."""
        if not events or any(
            event.native in UNTOLD
            or (isinstance(event, model.MessageDelta) and event.role is Role.USER)
            for event in events
        ):
            return
        if type(self._server.speech) is AcpSpeech:
            said = self._replayed.instead(Raw(line))
            if said is None:
                if self._server.connection.is_full:
                    await self._server.connection.drain()
                self._post(line)
                return
        else:
            speaker = AcpTranslator(notices=False, compaction=False)
            said = [update for event in events for update in speaker.updates(event)]
        for update in said:
            await self.update(update)
