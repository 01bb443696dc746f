"""`dragoman serve acp`: options, token and signals of the ACP server for editors.

`acp_server` serves the clients and authenticates them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_err
from dragoman.cli.shared_options import Preset

if TYPE_CHECKING:
    from dragoman.acp_server.server import ServerContext
    from dragoman.cli.command_loop import CommandLoop

app: Final = new_app()

TOKEN_VARIABLE: Final = "DRAGOMAN_TOKEN"


@app.command(context_settings=CONTEXT)
def acp(
    *,
    peer: Annotated[
        str,
        typer.Option(
            "--peer",
            metavar="NAME",
            help="The peer of new sessions; auto lets the router choose one for each prompt.",
        ),
    ] = "auto",
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="The role that the router chooses a peer for, until the editor changes it.",
            show_default=False,
        ),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            metavar="PATH",
            help="Serve up to 64 clients on a Unix socket instead of stdin and stdout.",
            show_default=False,
        ),
    ] = None,
    websocket: Annotated[
        str | None,
        typer.Option(
            "--websocket",
            metavar="[HOST:]PORT",
            help="Serve up to 64 clients that have the token on a local WebSocket.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The file with the token for --websocket; created if it does not exist.",
            show_default=False,
        ),
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            "--dialect",
            metavar="NAME",
            help="The dialect the editor speaks, if its first message does not show it.",
            show_default=False,
        ),
    ] = None,
    permissions: Annotated[
        Preset | None,
        typer.Option(
            "--permissions",
            help="The policy for requests that no rule in the settings matches.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve all of your peers to an editor as one agent.

    The editor starts this command and talks to it on stdin and stdout. You choose the peer and the
    role in the editor; with the peer auto, each prompt is delegated. /peers, /delegate, /explain
    and /stats work in every session.

    The editor may also speak one of the legacy dialects (oneshot, threads, tagged, keyed, chained):
    its first message shows which, or --dialect names it.

    A WebSocket needs a token, sent as `Authorization: Bearer TOKEN`. It is read from --token-file,
    else from the environment variable DRAGOMAN_TOKEN; else one is generated and printed on stderr.

    \b
    Examples:
      dragoman serve acp                          the command for an editor
      dragoman serve acp --peer gemini            with this peer preselected
      dragoman serve acp --socket ~/.dragoman.sock
      dragoman serve acp --websocket 8765 --token-file ~/.dragoman-token
    """
    from dragoman.acp_server.server import ServerContext
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.errors import UsageError

    if socket is not None and websocket is not None:
        raise UsageError("--socket and --websocket cannot be combined: choose one")
    if token_file is not None and websocket is None:
        raise UsageError("--token-file needs --websocket")
    flags = {} if permissions is None else {"permissions": permissions.value}
    front = ServerContext(peer=peer, role=role, dialect=dialect, flags=flags)
    front.check(Path.cwd())
    address: tuple[str, int] | None = None
    token, told = "", None
    if websocket is not None:
        address = address_of(websocket)
        # Outside of the event loop, so that waiting for a named pipe can be interrupted.
        token, told = token_of(token_file)
    live = CommandLoop()

    async def serve() -> int:
        return await _serve(front, live, socket=socket, address=address, token=token, told=told)

    raise typer.Exit(live.run(serve))


async def _serve(
    front: ServerContext,
    live: CommandLoop,
    *,
    socket: Path | None,
    address: tuple[str, int] | None,
    token: str,
    told: str | None,
) -> int:
    """Serve until a signal arrives or, on stdio, the client disconnects. Returns the exit code."""
    import asyncio

    from dragoman.acp_server import listener as acp_server_listener
    from dragoman.cli.exit_codes import ExitCode

    # No peer may be left running after a signal or the end of the input.
    asked = asyncio.Event()
    live.listen(lambda count: asked.set())
    if socket is None and address is None:
        await _until(asked, acp_server_listener.serve_stdio(front))
        return live.interrupt_code if live.interrupts else ExitCode.OK
    if socket is not None:
        listener = await acp_server_listener.serve_unix(front, socket)
    else:
        assert address is not None
        listener = await acp_server_listener.serve_websocket(front, *address, token=token)
        if told is not None:
            _say(told)
    try:
        _say(f"listening on {listener.address}")
        await asked.wait()
    finally:
        await listener.aclose()
    return live.interrupt_code


async def _until(asked: Any, work: Any) -> None:
    """Run `work` until it is done, or cancel it as soon as a signal has set `asked`."""
    import asyncio

    from dragoman.rpc.tasks import TaskOwner

    tasks = TaskOwner("serve acp")
    serving = tasks.start(work, "serve")
    ending = tasks.start(asked.wait(), "wait for a signal")
    try:
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        await tasks.aclose()


def address_of(text: str) -> tuple[str, int]:
    """Return the host and port to listen on; without a host, the loopback address. Raises
    `UsageError` if the text is invalid."""
    from dragoman.transports.addresses import parse_address

    return parse_address(text, option="--websocket", example="8765", default_host="127.0.0.1")


def token_of(file: Path | None) -> tuple[str, str | None]:
    """Return the token, which is read from the file, else from the environment, else newly
    generated, and a notice that names the file or contains the new token. The notice is None for a
    token from the environment."""
    import os

    from dragoman.config.token_file import new_token, token_in, valid_token

    if file is not None:
        return token_in(file), f"the token is in {file}"
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token:
        remedy = "set another one, or unset the variable and use --token-file"
        return valid_token(token, TOKEN_VARIABLE, remedy=remedy), None
    token = new_token()
    return token, f"the token is {token}"


def _say(text: str) -> None:
    import sys

    # Stdout belongs to the client, so notices never go there.
    put_err(f"{text}\n")
    sys.stderr.flush()
