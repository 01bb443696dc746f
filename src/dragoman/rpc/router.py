"""Dispatch messages to handlers by method name, the usual way to serve a connection.

Maps method names to functions, and decodes params into the type that a function declares. Its users
fill the table. Request handlers run concurrently; notification handlers run one after another in
each lane.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from msgspec import Raw, Struct

from dragoman.decoders import typed_decoder
from dragoman.errors import Overflow, UsageError
from dragoman.rpc import boundary
from dragoman.rpc.connection import Connection
from dragoman.rpc.lanes import HandlerLane
from dragoman.wire.messages import NO_PARAMS, UNDECODABLE, Notification, Request
from dragoman.wire.peer import Noise, Stray

T = TypeVar("T")

_EMPTY: Final = Raw(b"{}")

MAX_LANES: Final = 10_000
"""Maximum number of lanes of one router. Their keys come from the peer, and each takes about a
kilobyte; further keys share a lane, which keeps their order but not their independence."""

_SHARED: Final = object()


class _Route(Struct):
    decode: Callable[[Raw], Any]
    handler: Callable[[Any], Any]
    inline: bool
    lane_of: Callable[[Any], Hashable] | None = None


class Router:
    """Serves one connection from tables that are filled before it starts.

    A plain `def` handler runs while messages are being read and must not block. An `async def`
    handler runs in a task of its own for each request, and in its lane for notifications.
    """

    def __init__(
        self,
        *,
        on_noise: Callable[[Noise | Stray], None] | None = None,
        on_cut: Callable[[Hashable, Overflow], None] | None = None,
    ) -> None:
        """`on_noise` is called with what `Handlers.noise` lists, and with notifications whose
        params are invalid. `on_cut` is called for a lane that lost messages because its handlers
        were too slow, after its last message, with the lane's key and the reason. (The key of the
        lane that keys beyond `MAX_LANES` share is a meaningless object.)"""
        self._requests: dict[str, _Route] = {}
        self._notifications: dict[str, _Route] = {}
        self._lanes: dict[Hashable, HandlerLane[tuple[_Route, Any]]] = {}
        self._on_noise = on_noise
        self._on_cut = on_cut
        self._connection: Connection | None = None

    def attach(self, connection: Connection) -> None:
        if self._connection is not None:
            raise UsageError("a router serves only one connection; create one for each connection")
        self._connection = connection

    def on_request(
        self, method: str, handler: Callable[[T], Any], params: type[T] | None = None
    ) -> None:
        """Answer requests for `method` with the result of `handler`, which gets the params decoded
        to the type `params`, or raw if that is None."""
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

        Async handlers of one lane run one after another. `lane_of` returns the key of a
        notification's lane (for example, its session); without it, the key is None. A plain
        function runs at once, outside the lanes.
        """
        # A plain function may return an awaitable too, which is only known after the call.
        inline = not inspect.iscoroutinefunction(handler)
        self._notifications[method] = _Route(_decoder(params), handler, inline, lane_of)

    def lane(self, key: Hashable = None) -> HandlerLane[tuple[_Route, Any]]:
        """Return the lane of a key, and create it if needed. Passed as `after` to
        `Connection.call`, it holds back the result until the lane has handled what came before."""
        lane = self._lanes.get(key)
        if lane is None and (_SHARED in self._lanes or len(self._lanes) >= MAX_LANES):
            # From the first such key on, permanently: a key that moved to its own lane when another
            # was removed would overtake its items in the shared one.
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
        """Drop the lane of a key and its queued items, for example because its session is
        closed."""
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
    decode = typed_decoder(params)

    def read(raw: Raw) -> Any:
        # Params may be omitted; a type whose fields are all optional accepts that.
        return decode(_EMPTY if raw is NO_PARAMS else raw)

    return read


def _handle(item: tuple[_Route, Any]) -> Any:
    route, params = item
    return route.handler(params)
