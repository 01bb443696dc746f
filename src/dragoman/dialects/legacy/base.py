"""Interface of a legacy dialect (`ClientEnd`), and a minimal base class for new ones (`BareEnd`).

The dialects beside this module do not import it: they match the protocol structurally, and mypy
checks them where `client.legacy` uses them. Each keeps the state of one connection only. A message
is a pair of method and params; in a sequence of messages, the next is an alternative to try only
after proof that nothing ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Raw

from dragoman.events.envelope import EventEnvelope
from dragoman.events.model import Event, Unknown
from dragoman.events.parts import AuthMethod, Block, Capabilities, PeerInfo, Text

Message: TypeAlias = tuple[str, Any]
PlaceOf: TypeAlias = Callable[[str | None], EventEnvelope]
"""Where the events of a session belong; None is the session whose turn runs, if one does."""

Cancel: TypeAlias = Literal["request", "notification", "end"]
"""How a turn is cancelled: by a request whose answer is ignored, by a notification, or only by
ending the connection."""


class Listed(Protocol):
    """A session that the other side remembers."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def updated_at(self) -> str | None: ...


class ClientEnd(Protocol):
    """A dialect as a client speaks it, on one connection.

    Methods that read an answer raise a decoder's error for one that is malformed.
    """

    @property
    def name(self) -> str: ...
    @property
    def half_duplex(self) -> bool: ...
    @property
    def info(self) -> PeerInfo: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def auth_methods(self) -> tuple[AuthMethod, ...]: ...
    @property
    def version(self) -> str | None: ...
    @property
    def cancel(self) -> Cancel: ...
    @property
    def opens_with(self) -> frozenset[str]:
        """Which options of a new session it can express: mode, model, mcp_servers, metadata."""

    @property
    def loads_from_list(self) -> bool:
        """Whether an earlier session is found by listing, and needs no opening of its own."""

    @property
    def blocks(self) -> tuple[type, ...]:
        """The kinds of blocks that a prompt may have."""

    def hello(self) -> Message | None:
        """The handshake, if there is one."""

    def greeted(self, result: Raw) -> None:
        """Take over what the handshake was answered with."""

    def opening(
        self,
        how: str,
        session_id: str | None,
        *,
        cwd: str,
        mode: str | None,
        model: str | None,
        mcp_servers: Sequence[Mapping[str, Any]],
        metadata: Mapping[str, Any],
    ) -> Sequence[Message]:
        """How a session is opened; nothing is sent where it is there without asking."""

    def opened(
        self, result: Raw | None, session_id: str | None, how: str, place_of: PlaceOf
    ) -> tuple[str, list[Event]]:
        """The id of the session, and what the answer says besides: settings, history."""

    def listing(self, cursor: str | None) -> Sequence[Message]: ...

    def listed(self, result: Raw) -> tuple[Sequence[Listed], str | None]:
        """A page of sessions, and the cursor of the next one."""

    def prompting(self, session_id: str, blocks: Sequence[Block]) -> Sequence[Message]: ...

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        """What the answer to a prompt says; a `TurnEnded` in it ends the turn."""

    def notified(self, method: str, params: Raw, line: bytes, place_of: PlaceOf) -> Sequence[Event]:
        """What a notification says. Never raises."""

    def worked(self, method: str) -> None:
        """The other side has this method."""

    def closing(self, place: EventEnvelope) -> list[Event]:
        """What has to be said before a turn's last event, however it ends."""

    def cancelling(self, session_id: str) -> Message | None: ...

    def setting_mode(self, session_id: str, mode: str) -> Message | None: ...


class BareEnd:
    """A client's end without a handshake, with one session that is just there, and text prompts.

    A dialect that grows from it says how to prompt, what the answer means, and what notifications
    mean; and whatever else it can do. A turn is cancelled by ending the connection.
    """

    name = ""
    half_duplex = False
    info = PeerInfo()
    capabilities = Capabilities()
    auth_methods: tuple[AuthMethod, ...] = ()
    version: str | None = None
    cancel: Cancel = "end"
    opens_with: frozenset[str] = frozenset()
    loads_from_list = False
    blocks: tuple[type, ...] = (Text,)

    def hello(self) -> Message | None:
        return None

    def greeted(self, result: Raw) -> None:
        pass

    def opening(
        self,
        how: str,
        session_id: str | None,
        *,
        cwd: str,
        mode: str | None,
        model: str | None,
        mcp_servers: Sequence[Mapping[str, Any]],
        metadata: Mapping[str, Any],
    ) -> Sequence[Message]:
        return ()

    def opened(
        self, result: Raw | None, session_id: str | None, how: str, place_of: PlaceOf
    ) -> tuple[str, list[Event]]:
        return "default", []

    def listing(self, cursor: str | None) -> Sequence[Message]:
        return ()

    def listed(self, result: Raw) -> tuple[Sequence[Listed], str | None]:
        return (), None

    def prompting(self, session_id: str, blocks: Sequence[Block]) -> Sequence[Message]:
        raise NotImplementedError

    def answered(self, result: Raw, place: EventEnvelope) -> list[Event]:
        raise NotImplementedError

    def notified(self, method: str, params: Raw, line: bytes, place_of: PlaceOf) -> Sequence[Event]:
        return (Unknown(*place_of(None).base(method, line), "an unknown notification"),)

    def worked(self, method: str) -> None:
        pass

    def closing(self, place: EventEnvelope) -> list[Event]:
        return []

    def cancelling(self, session_id: str) -> Message | None:
        return None

    def setting_mode(self, session_id: str, mode: str) -> Message | None:
        return None
