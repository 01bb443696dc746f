"""`dragoman serve mcp`: options and signals of the MCP server, on stdio or over HTTP.

`mcp_server` serves the tools.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app, with_options
from dragoman.cli.output.terminal import put_err
from dragoman.cli.prompt_options import APPROVALS
from dragoman.cli.shared_options import CwdOption
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.mcp_server.tool_handlers import ToolHandlers

HELP: Final = """
Let MCP hosts and agents delegate to your peers.

An MCP host starts this command and talks to it on stdin and stdout. With --http it listens on this
machine instead, for clients that send the token as `Authorization: Bearer TOKEN`. The token is
generated once and stored in a file that only you can read.

Peers may do what your settings and policy allow. Where those say `ask`, you are asked in the
console if it is open (`dragoman console`); otherwise only reads are allowed. A workspace must be
inside the roots that the client names and inside those of --root.

\b
Examples:
  dragoman serve mcp
  dragoman serve mcp --root ~/project --approve-all
  dragoman serve mcp --http 8720
  claude mcp add dragoman -- dragoman serve mcp
"""

app: Final = new_app()

MAX_PORT: Final = 65535
INSTALL: Final = "install it with pip install 'dragoman[mcp]'"


@app.command(help=HELP, context_settings=CONTEXT)
@with_options(*APPROVALS)
def mcp(
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            help="Listen on this port of 127.0.0.1 instead of stdin; 0 picks a free one.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The file with the token for --http; created if it does not exist.",
        ),
    ] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="Allow only workspaces inside this directory, for every client. May be repeated.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    cwd: CwdOption = None,
    **approvals: bool,
) -> None:
    if http is not None and not 0 <= http <= MAX_PORT:
        raise UsageError(f"--http must be a port from 0 to {MAX_PORT}")
    if token_file is not None and http is None:
        raise UsageError("--token-file needs --http")
    # Loading it takes a second; meanwhile the handshake with the host runs.
    if find_spec("mcp") is None:
        raise UsageError("the MCP SDK is missing", remedy=INSTALL)
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.permission_flags import permissions_of

    here = cwd or Path.cwd()
    roots = [folder.absolute() for folder in root or ()]
    permissions = permissions_of(**approvals)

    def make() -> ToolHandlers:
        try:
            from dragoman.mcp_server.tool_handlers import ToolHandlers
        except ImportError as error:
            raise UsageError(f"the MCP SDK cannot be used: {error}", remedy=INSTALL) from error
        return ToolHandlers(cwd=here, roots=roots, permissions=permissions)

    token = ""
    if http is not None:
        from dragoman.config.token_file import token_in
        from dragoman.mcp_server.http_guard import default_path
        from dragoman.paths import find_paths

        token_file = token_file or default_path(find_paths())
        # Outside of the event loop, so that waiting for a named pipe can be interrupted.
        token = token_in(token_file)
    live = CommandLoop()
    raise typer.Exit(live.run(lambda: _serve(make, live, http, token_file, token)))


async def _serve(
    make: Callable[[], ToolHandlers],
    live: CommandLoop,
    http: int | None,
    token_file: Path | None,
    token: str,
) -> int:
    import asyncio

    from dragoman.cli.exit_codes import ExitCode

    stop = asyncio.Event()
    live.listen(lambda count: stop.set())
    if http is None:
        from dragoman.mcp_server.stdio_entry import serve_stdio

        await serve_stdio(make, stop=stop)
    else:
        from dragoman.mcp_server.http import serve_http

        def listening(url: str) -> None:
            put_err(f"dragoman: listening on {url}; the token is in {token_file}\n")
            sys.stderr.flush()

        await serve_http(make(), port=http, token=token, stop=stop, on_listening=listening)
    return live.interrupt_code if live.interrupts else ExitCode.OK
