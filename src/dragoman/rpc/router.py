"""Handlers by method name: the usual way to answer a connection.

Owns a table from method names to functions, and the decoding of params into the type that a
function asked for. It does not know which methods exist; whoever fills the table does. Request
handlers run concurrently; the handlers of notifications run one after another for each lane.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman.errors import Overflow, UsageError
from dragoman.rpc import boundary
from dragoman.rpc.connection import Connection
from dragoman.rpc.lanes import HandlerLane
from dragoman.wire.messages import NO_PARAMS, UNDECODABLE, Notification, Request
from dragoman.wire.peer import Noise, Stray

T = TypeVar("T")

_EMPTY: Final = Raw(b"{}")

MAX_LANES: Final = 10_000
"""Lanes of one router. Their keys come from the other side, and each takes about a kilobyte; those
that come after so many share a lane, which keeps their order and gives up only their independence.
"""

_SHARED: Final = object()


class _Route(Struct):
    decode: Callable[[Raw], Any]
    handler: Callable[[Any], Any]
    inline: bool
    lane_of: Callable[[Any], Hashable] | None = None


class Router:
    """Serves one connection from tables that are filled before it starts.

    A plain `def` handler runs inside the pump and must not block; an `async def` handler of a
    request gets a task, one of a notification takes its turn in its lane.
    """

    def __init__(
        self,
        *,
        on_noise: Callable[[Noise | Stray], None] | None = None,
        on_cut: Callable[[Hashable, Overflow], None] | None = None,
    ) -> None:
        """`on_noise` is told what is no message or fits nothing; `on_cut` is told the key of a lane
        that lost messages because its handlers were too slow, after the last that it got (an object
        of no meaning for the lane that is shared by the keys over `MAX_LANES`)."""
        self._requests: dict[str, _Route] = {}
        self._notifications: dict[str, _Route] = {}
        self._lanes: dict[Hashable, HandlerLane[tuple[_Route, Any]]] = {}
        self._on_noise = on_noise
        self._on_cut = on_cut
        self._connection: Connection | None = None

    def attach(self, connection: Connection) -> None:
        if self._connection is not None:
            raise UsageError("a router serves one connection; make another for the next")
        self._connection = connection

    def on_request(
        self, method: str, handler: Callable[[T], Any], params: type[T] | None = None
    ) -> None:
        """Answer `method` with what `handler` returns (or awaits to), given the decoded params.

        Without `params` the handler gets the raw ones.
        """
        self._requests[method] = _Route(_decoder(params), handler, True)

    def on_notification(
        self,
        method: str,
        handler: Callable[[T], Awaitable[None] | None],
        params: type[T] | None = None,
        *,
        lane_of: Callable[[T], Hashable] | None = None,
    ) -> None:
        """Call `handler` for each `method` notification, in wire order.

        Async handlers of one lane run one after another; `lane_of` tells the lane of a
        notification (say, by its session), and without it all share one.
        """
        # A plain function may return an awaitable too; that shows when it is called.
        inline = not inspect.iscoroutinefunction(handler)
        self._notifications[method] = _Route(_decoder(params), handler, inline, lane_of)

    def lane(self, key: Hashable = None) -> HandlerLane[tuple[_Route, Any]]:
        """The lane of a key, to hold back the answer to a call until it is worked off."""
        lane = self._lanes.get(key)
        if lane is None and (_SHARED in self._lanes or len(self._lanes) >= MAX_LANES):
            # From the first such key on, for good: a key that moved to a lane of its own when
            # another was forgotten would overtake what it left behind in the shared one.
            key = _SHARED
            lane = self._lanes.get(key)
        if lane is None:
            if self._connection is None:
                raise UsageError("a router has no lanes before it serves a connection")
            on_cut = None if self._on_cut is None else functools.partial(self._on_cut, key)
            lane = HandlerLane(
                self._connection.flow, _handle, self._connection.tasks, on_cut=on_cut
            )
            self._lanes[key] = lane
        return lane

    def forget_lane(self, key: Hashable) -> None:
        """Drop a lane that is not needed any more (its session is closed), and what it holds."""
        lane = self._lanes.pop(key, None)
        if lane is not None:
            lane.close()

    # -- called by the connection

    def request(self, request: Request) -> Any:
        route = self._requests.get(request.method)
        if route is None:
            raise boundary.method_not_found(request.method)
        try:
            params = route.decode(request.params)
        except UNDECODABLE as error:
            raise boundary.invalid_params(error) from error
        return route.handler(params)

    def notification(self, notification: Notification) -> None:
        route = self._notifications.get(notification.method)
        if route is None:
            return
        try:
            params = route.decode(notification.params)
        except UNDECODABLE as error:
            self.noise(Noise(notification.line, f"{notification.method}: {error}"))
            return
        if route.inline:
            waiting = route.handler(params)
            if waiting is None or not inspect.isawaitable(waiting):
                return
            # A coroutine function in disguise: a lambda around one, or an object.
            route.inline = False
            begun = _Route(route.decode, lambda _: waiting, False)
            self._lane_for(route, params).put((begun, params), len(notification.line))
        else:
            self._lane_for(route, params).put((route, params), len(notification.line))

    def _lane_for(self, route: _Route, params: Any) -> HandlerLane[tuple[_Route, Any]]:
        return self.lane(None if route.lane_of is None else route.lane_of(params))

    def noise(self, noise: Noise | Stray) -> None:
        if self._on_noise is not None:
            self._on_noise(noise)


def _decoder(params: type[T] | None) -> Callable[[Raw], Any]:
    if params is None:
        return lambda raw: raw
    decode = msgspec.json.Decoder(params).decode

    def read(raw: Raw) -> Any:
        # Params may be left out; a type whose fields are all optional accepts that.
        return decode(_EMPTY if raw is NO_PARAMS else raw)

    return read


def _handle(item: tuple[_Route, Any]) -> Any:
    route, params = item
    return route.handler(params)
