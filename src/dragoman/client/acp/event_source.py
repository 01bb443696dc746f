"""Turn the messages of an ACP connection into numbered events.

Covers everything outside turns: handshake, responses, service requests, elicitations, unknown
messages and the end of the connection. `session` makes the events of open sessions. Every received
line is the `raw` of at least one event, in wire order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.session import Session
from dragoman.client.base import EventFeed
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.shape import DIALECT, ours_in
from dragoman.errors import CallError
from dragoman.events import model
from dragoman.events.parts import PeerInfo
from dragoman.rpc import Call
from dragoman.wire import messages


class EventSource(EventFeed):
    """Emits the events of one connection, from the creation of this object on."""

    def __init__(self, client: AcpClient) -> None:
        super().__init__(translate.DIALECT, client.connection, client.options.on_event)
        self._client = client
        self._requests = itertools.count(1)
        self._told: bytes | None = None
        self.opened: Session | None = None
        """The session opened by the response that is being read."""
        client.watch_with(self)

    def new_request_id(self) -> str:
        """Return a unique id for a question: ids on the wire may repeat."""
        return f"q{next(self._requests)}"

    def tell(self, event: model.Event) -> None:
        """Emit an event made from a response, and mark the response as covered so that `answered`
        does not emit it again."""
        self._told = event.raw
        self.emit(event)

    # -- called by the connection

    def answered(self, call: Call, error: CallError | None) -> None:
        """Called after a response was delivered to its caller: emit the events for it, unless
        `tell` has done so."""
        opened, self.opened = self.opened, None
        if error is None and call.method == acp.INITIALIZE.name:
            self._ready(call)
        elif opened is not None and error is None:
            opened.announce(call.method.partition("/")[2], call.line)
            self._told = call.line
        if call.line is not self._told:
            self.emit_answer(call, error)

    def _ready(self, call: Call) -> None:
        assert call.line is not None
        message = messages.decode(call.line)
        if not isinstance(message, messages.ResultResponse):
            return
        try:
            agent = acp.INITIALIZE.decode_result(message.result)
        except msgspec.ValidationError:
            return
        if agent.protocol_version != acp.PROTOCOL_VERSION:
            return
        self._speaks(agent)
        self.tell(
            model.ConnectionReady(
                *self.no_session.base(call.method, call.line),
                peer_info(agent),
                translate.capabilities(agent.agent_capabilities),
                str(agent.protocol_version),
                tuple(
                    translate.auth_method(method, self._client.login_command(method))
                    for method in agent.auth_methods
                ),
            )
        )

    def _speaks(self, agent: acp.InitializeResponse) -> None:
        """If the handshake response is from a gateway and names the dialect of the agent behind it,
        name that dialect as the source of later events."""
        info = agent.agent_info
        dialect = None if info is None else ours_in(info.meta).get(DIALECT)
        if isinstance(dialect, str) and dialect not in ("", translate.DIALECT):
            self.source = model.Source(dialect, self.source.connection, translate.DIALECT)
            self.no_session = self.place(None)

    # -- called by the client's handlers

    def heard(self, method: str, line: bytes, reason: str) -> None:
        """Emit an `Unknown` event for a message that is not understood. `method` is empty if the
        line is not a message."""
        self.emit_unknown(method, line, reason)

    def early(self, message: acp.SessionNotification, line: bytes) -> None:
        """Emit the events of an update for a session that is not open yet. The session gets the
        update later with `deliver_early`, which emits no events."""
        for event in translate.of_update(message.update, self.place(message.session_id), line):
            self.emit(event)

    def served(self, method: str, session_id: str, line: bytes) -> None:
        """Emit the event for an agent's request for a file or a terminal."""
        self.emit(translate.of_service(method, self.place(session_id), line))

    def elicited(
        self, request: acp.ElicitationForm | acp.ElicitationUrl, line: bytes
    ) -> Callable[[str], None]:
        """Emit the event for a question of the agent to its user. Returns a function that emits the
        event for the reply; call it with the reply's action, such as ``accept``."""
        place = self.place(request.session_id)
        # The notification that a URL is completed has only the agent's own id for it.
        if isinstance(request, acp.ElicitationUrl):
            request_id = request.elicitation_id
        else:
            request_id = self.new_request_id()
        self.emit(translate.of_elicitation(request, request_id, place, line))

        def answered(action: str) -> None:
            base = place.base(acp.ELICITATION_CREATE.name, None)
            self.emit(model.InputAnswered(*base, request_id, action))

        return answered

    def url_done(self, elicitation_id: str, line: bytes) -> None:
        """Called when the agent reports that a URL elicitation is completed."""
        base = self.no_session.base(acp.ELICITATION_COMPLETE.name, line)
        self.emit(model.InputAnswered(*base, elicitation_id, "completed"))


def peer_info(agent: acp.InitializeResponse) -> PeerInfo:
    """Return the agent's name, title and version; empty if it did not report them."""
    info: Any = agent.agent_info
    return PeerInfo() if info is None else PeerInfo(info.name, info.title, info.version)
