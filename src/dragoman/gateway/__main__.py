"""Command line `python -m dragoman.gateway -- CMD`: serve an agent to an editor that speaks ACP v1.

Serving is in `gateway.gateway`; `client.connect` detects the dialect of CMD.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from dragoman.agent.speech import served_dialect
from dragoman.client.connect import Target, connect
from dragoman.client.conversation import Peer
from dragoman.client.inquiries import DECLINED
from dragoman.client.options import ADDRESSES, AUTO, ConnectOptions
from dragoman.client.permissions import approve_all
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionLost, DragomanError
from dragoman.gateway.early_initialize import EarlyInitialize, offered
from dragoman.gateway.gateway import Gateway
from dragoman.transports import open_stdio
from dragoman.transports.addresses import parse_address


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m dragoman.gateway",
        description="Serve an agent, whatever it speaks, as an ACP v1 agent.",
    )
    made.add_argument(
        "target",
        nargs="+",
        metavar="CMD",
        help="the agent's command line, after --, or one address: unix:/path, ws://, wss://",
    )
    made.add_argument("--dialect", default=AUTO, metavar="NAME", help="what CMD speaks")
    made.add_argument(
        "--client-dialect",
        metavar="NAME",
        help="what the clients speak, if their first request does not show it",
    )
    made.add_argument("--workspace", default=".", help="where CMD is started")
    made.add_argument(
        "--inherit",
        action="append",
        default=[],
        metavar="NAME",
        help="an additional environment variable to pass on to CMD; may be repeated",
    )
    made.add_argument(
        "--raw", action="store_true", help="also put the agent's own messages into _meta"
    )
    where = made.add_mutually_exclusive_group()
    where.add_argument("--unix", metavar="PATH", help="serve on a Unix socket instead of stdio")
    where.add_argument(
        "--websocket", metavar="HOST:PORT", help="serve on a WebSocket instead of stdio"
    )
    return made


def target_of(words: Sequence[str]) -> Target:
    """Return the address if `words` is a single word that looks like one, or else the command
    line."""
    if len(words) == 1 and words[0].startswith(ADDRESSES):
        return words[0]
    return list(words)


def address_of(text: str) -> tuple[str, int]:
    """Return the host and port to listen on. The default host is loopback."""
    return parse_address(
        text, option="--websocket", example="127.0.0.1:8765", default_host="127.0.0.1"
    )


async def run(arguments: argparse.Namespace) -> ConnectionLost | None:
    """Serve until the client on stdio or the agent disconnects. Return why the agent's connection
    ended; None if it was still open."""
    target = target_of(arguments.target)
    if arguments.client_dialect is not None:
        served_dialect(arguments.client_dialect)
    if arguments.unix is None and arguments.websocket is None:
        # Take over stdin and stdout first, before anything else can print to stdout.
        stream = EarlyInitialize(await open_stdio())
        try:
            client = offered(await stream.greeting())
            async with _connected(arguments, target, client) as peer:
                await _gateway(arguments, peer).serve(stream)
                failure: ConnectionLost | None = peer.client.connection.failure
                return failure
        finally:
            await stream.aclose()
    # An invalid address is reported before the agent is started.
    address = None if arguments.websocket is None else address_of(arguments.websocket)
    async with _connected(arguments, target, None) as peer:
        gateway = _gateway(arguments, peer)
        if address is None:
            listener = await gateway.serve_unix(arguments.unix)
        else:
            listener = await gateway.serve_websocket(*address)
        try:
            # On stderr: stdout is for the protocol, and the parent process may wait for this line.
            sys.stderr.write(f"listening on {listener.address}\n")
            sys.stderr.flush()
            ended: ConnectionLost = await peer.client.connection.wait_ended()
            return ended
        finally:
            await listener.aclose()


def _gateway(arguments: argparse.Namespace, peer: Peer) -> Gateway:
    return Gateway(peer, raw=arguments.raw, dialect=arguments.client_dialect)


def _connected(
    arguments: argparse.Namespace, target: Target, client: acp.ClientCapabilities | None
) -> AbstractAsyncContextManager[Peer]:
    """Return a context manager that connects the peer, and offers it what the client offers.
    `client` is None if the clients are not known yet: the peer is then offered no terminals, but
    may ask users; questions that a client cannot show are declined. Files are always offered, and
    served here if a client does not serve them."""
    asks = client.elicitation if client is not None else acp.ElicitationCapabilities()
    return connect(
        target,
        ConnectOptions(
            dialect=arguments.dialect,
            inherit=arguments.inherit,
            # The gateway makes no decisions: files that a client does not serve are served here.
            guard=approve_all,
            terminals=client is not None and client.terminal,
            # A placeholder: the gateway installs the real callback.
            inquire=None if asks is None else lambda inquiry: DECLINED,
            visits=asks is not None and (client is None or asks.url is not None),
        ),
        workspace=arguments.workspace,
    )


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        failure: DragomanError | None = asyncio.run(run(arguments))
    except DragomanError as error:
        failure = error
    except KeyboardInterrupt:
        return 130
    if failure is not None:
        sys.stderr.write(f"dragoman.gateway: {failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
