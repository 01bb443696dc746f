"""Run the console: listen, serve the page and the API, and shut down in the right order.

Without TLS, refuses an address that other machines can reach. `app` answers the requests, `guard`
checks them, and `transports.http_server` handles the connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dragoman.console.access import ConsoleAccess, Rights
from dragoman.console.app import ConsoleApp
from dragoman.console.fleet_watch import FleetWatch
from dragoman.console.guard import ConsoleGuard
from dragoman.console.live_state import LiveState
from dragoman.console.peer_watch import PeerWatch
from dragoman.errors import DragomanError, UsageError
from dragoman.rpc.tasks import finish
from dragoman.transports.addresses import bracketed, is_loopback, parse_address
from dragoman.transports.http_server import LOOPBACK, LOOPBACK_NAMES, HttpServer
from dragoman.transports.tls import TlsFiles

if TYPE_CHECKING:
    from dragoman.paths import Paths

log: Final = logging.getLogger("dragoman.console")

DEFAULT_PORT: Final = 8730

HOST_NAME: Final = re.compile(r"([A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?", re.ASCII)
"""Pattern of the `Host` header of a browser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """The options of `dragoman console serve`."""

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    names: Sequence[str] = ()
    """Additional host names (with port) that browsers may use, such as that of a tunnel."""
    tls: TlsFiles | None = None
    read_only: bool = False


def parse_listen(text: str) -> tuple[str, int]:
    """Return the host and port in the value of ``--listen``. Raises `UsageError` if it is
    invalid."""
    example = f"{LOOPBACK}:{DEFAULT_PORT}"
    host, port = parse_address(text, option="--listen", example=example)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not is_loopback(host):
            raise UsageError(
                f"--listen takes a numeric address, such as {example}, not {text!r}"
            ) from None
        host = LOOPBACK
    return host, port


def check_names(names: Sequence[str]) -> None:
    """Raise `UsageError` for a value of ``--name`` that no browser would send as `Host` header."""
    for name in names:
        if not HOST_NAME.fullmatch(name):
            raise UsageError(
                f"--name takes HOST[:PORT], such as my-machine.example.net, not {name!r}"
            )


def require_safe(options: ConsoleOptions) -> None:
    """Raise `UsageError` if other machines can reach the address and TLS is not configured."""
    if options.tls is None and not is_loopback(options.host):
        raise UsageError(
            f"{options.host} can be reached from other machines, which requires TLS: "
            "add --tls-cert and --tls-key, or listen on 127.0.0.1 and use a tunnel"
        )


async def serve_console(
    options: ConsoleOptions,
    *,
    paths: Paths,
    stop: asyncio.Event,
    on_listening: Callable[[str, str], None],
) -> None:
    """Serve until `stop` is set. `on_listening` is called once with the URL and a one-time login
    link. Raises what `require_safe` raises, before anything is started."""
    require_safe(options)
    access = ConsoleAccess(paths)
    state = LiveState(paths, answers=not options.read_only, since=access.record.created_at)
    fleet = FleetWatch(state)
    app = ConsoleApp(
        access, state, fleet=fleet, read_only=options.read_only, secure=options.tls is not None
    )
    peers = PeerWatch(state)
    guard = ConsoleGuard(app.asgi, access=access, read_only=options.read_only)
    server = HttpServer(guard, websockets=True, tls=options.tls)
    try:
        port = await server.bind(options.host, options.port)
        await state.start()
        await peers.start()
        await fleet.start()
        scheme = "http" if options.tls is None else "https"
        own = LOOPBACK_NAMES if options.host == LOOPBACK else (bracketed(options.host),)
        guard.hosts = frozenset(
            name.lower().encode() for name in (*(f"{each}:{port}" for each in own), *options.names)
        )
        # A tunnel in front of the console may add TLS.
        guard.schemes = (b"http://", b"https://") if options.names else (f"{scheme}://".encode(),)
        url = f"{scheme}://{own[0]}:{port}/"
        access.set_url(url)
        state.on_state_file(lambda name: _keep_url(access, url, name))
        # Not before the guard is set up: it would refuse a page that reconnects after a restart.
        await server.start()
        on_listening(url, new_link(access, "read" if options.read_only else "act"))
        await stop.wait()
    finally:
        await finish(_end(server, app, peers, fleet, state))


def _keep_url(access: ConsoleAccess, url: str, name: str) -> None:
    """Store the URL again if the access file was deleted, so that `console link` still works."""
    try:
        if name == access.path.name and not access.record.url:
            access.set_url(url)
    except DragomanError as error:
        log.warning("cannot store the address of the console: %s", error)


async def _end(
    server: HttpServer, app: ConsoleApp, peers: PeerWatch, fleet: FleetWatch, state: LiveState
) -> None:
    async with AsyncExitStack() as closing:
        # Closed in reverse order, each one even if another fails to close.
        for each in (state, fleet, peers, app, server):
            closing.push_async_callback(each.aclose)
        server.stop_listening()
        app.close_sockets()


def new_link(access: ConsoleAccess, rights: Rights, *, url: str = "") -> str:
    """Create a one-time login link and return its URL. `url` is the console's URL; if empty, the
    stored one. The secret is in the fragment, which browsers do not send, so it appears in no
    log."""
    return f"{url or access.record.url}#token={access.new_link(rights)}"
