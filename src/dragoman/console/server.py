"""Run the console: listen on an address, serve the page and the API, end in order."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dragoman.console.access import ConsoleAccess, Rights
from dragoman.console.app import ConsoleApp
from dragoman.console.guard import ConsoleGuard
from dragoman.console.live_state import LiveState
from dragoman.errors import UsageError
from dragoman.rpc.tasks import finish
from dragoman.transports.http_server import LOOPBACK, LOOPBACK_NAMES, HttpServer, TlsFiles

if TYPE_CHECKING:
    from dragoman.paths import Paths

DEFAULT_PORT: Final = 8730
MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """How the console is served."""

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    names: Sequence[str] = ()
    """Further names, with their ports, that browsers may use, such as that of a tunnel."""
    tls: TlsFiles | None = None
    read_only: bool = False


def parse_address(text: str) -> tuple[str, int]:
    """An address of ``--listen``. Raises `UsageError`."""
    host, colon, number = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not number.isdigit() or int(number) > MAX_PORT:
        raise UsageError(f"--listen takes ADDRESS:PORT, such as 127.0.0.1:8730, not {text!r}")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host != "localhost":
            raise UsageError(
                f"--listen takes the number of an address, such as 127.0.0.1:8730, not {text!r}"
            ) from None
        host = LOOPBACK
    return host, int(number)


def require_safe(options: ConsoleOptions) -> None:
    """Raise `UsageError` for an address that others can reach without TLS."""
    if options.tls is None and not ipaddress.ip_address(options.host).is_loopback:
        raise UsageError(
            f"{options.host} can be reached from other machines, which needs TLS: "
            "add --tls-cert and --tls-key, or listen on 127.0.0.1 and use a tunnel"
        )


async def serve_console(
    options: ConsoleOptions,
    *,
    paths: Paths,
    stop: asyncio.Event,
    on_listening: Callable[[str, str], None],
) -> None:
    """Serve until `stop` is set. `on_listening` gets the address and a link that logs in once."""
    require_safe(options)
    access = ConsoleAccess(paths)
    state = LiveState(paths, answers=not options.read_only, since=access.record.created_at)
    app = ConsoleApp(access, state, read_only=options.read_only, secure=options.tls is not None)
    guard = ConsoleGuard(app.asgi, access=access, read_only=options.read_only)
    server = HttpServer(guard, websockets=True, tls=options.tls)
    try:
        port = await server.listen(options.host, options.port)
        await state.start()
        scheme = "http" if options.tls is None else "https"
        own = LOOPBACK_NAMES if options.host == LOOPBACK else (_bracketed(options.host),)
        guard.hosts = frozenset(
            name.lower().encode() for name in (*(f"{each}:{port}" for each in own), *options.names)
        )
        # A tunnel may add TLS before us.
        guard.schemes = (b"http://", b"https://") if options.names else (f"{scheme}://".encode(),)
        url = f"{scheme}://{own[0]}:{port}/"
        access.set_url(url)
        on_listening(url, new_link(access, "read" if options.read_only else "act"))
        await stop.wait()
    finally:
        await finish(_end(server, app, state))


async def _end(server: HttpServer, app: ConsoleApp, state: LiveState) -> None:
    server.stop_listening()
    app.close_sockets()
    await server.aclose()
    await app.delegations.aclose()
    await state.aclose()


def new_link(access: ConsoleAccess, rights: Rights, *, url: str = "") -> str:
    """A link to the console that logs in once. Its secret is in the fragment, which no request and
    no log holds."""
    return f"{url or access.record.url}#token={access.new_link(rights)}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
