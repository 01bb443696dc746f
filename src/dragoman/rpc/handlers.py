"""What the owner of a connection makes of what comes in.

Owns the interface between the pump and whoever knows the methods, and the handlers that know none.
The usual implementation, from tables, is in `router`; the pump that calls them is in `connection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dragoman.rpc import boundary
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.rpc.connection import Connection


class Handlers(Protocol):
    """What the owner of a connection makes of what comes in.

    All methods are called by the pump, in wire order, and must not block.
    """

    def attach(self, connection: Connection) -> None:
        """Called once, before anything else, with the connection that is being served."""

    def request(self, request: Request) -> Any:
        """Answer a request: return the result, or a coroutine that will. Raise to refuse. Whoever
        returns `LATER` answers by `Connection.answer` or `Connection.refuse`."""

    def notification(self, notification: Notification) -> None:
        """Take note."""

    def noise(self, noise: Noise | Stray) -> None:
        """Something came that is no message, an answer that fits no question, a second request
        with an id that is still open, or one too many at once."""


class Ignore:
    """Handlers that know no method: requests are refused, the rest is dropped."""

    def attach(self, connection: Connection) -> None:
        pass

    def request(self, request: Request) -> Any:
        raise boundary.method_not_found(request.method)

    def notification(self, notification: Notification) -> None:
        pass

    def noise(self, noise: Noise | Stray) -> None:
        pass
