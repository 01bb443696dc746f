"""`dragoman console`: serve the web interface, create login links, list and revoke tokens.

The package `dragoman.console` implements the server.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.shared_options import FormatOption, ListFormat, require_extra
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.console.access import ConsoleAccess, ConsoleToken
    from dragoman.console.server import ConsoleOptions

HELP: Final = """
Show all agents, and every open question, in a browser.

The page has an inbox of everything that waits for you, live sessions, and the work of all projects.
By default, only this machine can reach it. The printed link logs in one browser and is valid for 5
minutes; `dragoman console link` prints another one.

\b
Examples:
  dragoman console --open                  serve it and open it in a browser
  dragoman console --read-only             browsers can view but not act
  dragoman console link                    print a link for another browser
  dragoman console tokens                  list the logged-in browsers
  dragoman console tokens revoke 1f09c2aa  log one of them out
"""

app: Final = new_app(help=HELP, default="serve")

READ_ONLY = typer.Option("--read-only", help="Browsers can view but not act.")


@app.command("serve", context_settings=CONTEXT)
def serve_command(
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in your browser.")
    ] = False,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="ADDRESS:PORT",
            help="Address to listen on; port 0 picks a free one.",
        ),
    ] = "127.0.0.1:8730",
    read_only: Annotated[bool, READ_ONLY] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="HOST[:PORT]",
            help="Additional host name for browsers, such as that of a tunnel. May be repeated.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="TLS certificate chain in PEM format."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="Private key of the certificate."),
    ] = None,
) -> None:
    """Serve the web interface until Ctrl-C.

    Give --tls-cert and --tls-key for an address that other machines can reach.

    \b
    Examples:
      dragoman console serve --open
      dragoman console serve --listen 127.0.0.1:9000 --read-only
      dragoman console serve --name my-machine.example.net
    """
    require_extra("console", "starlette", "uvicorn")
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key must be used together")
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.console.server import ConsoleOptions, check_names, parse_listen, require_safe
    from dragoman.transports.tls import TlsFiles

    host, port = parse_listen(listen)
    check_names(name or ())
    tls = None
    if tls_cert is not None and tls_key is not None:
        tls = TlsFiles(certificate=tls_cert, key=tls_key)
    options = ConsoleOptions(
        host=host, port=port, names=tuple(name or ()), tls=tls, read_only=read_only
    )
    require_safe(options)
    live = CommandLoop()
    raise typer.Exit(live.run(lambda: _serve(options, live, open_browser=open_browser)))


async def _serve(options: ConsoleOptions, live: CommandLoop, *, open_browser: bool) -> int:
    import asyncio

    from dragoman.cli.exit_codes import ExitCode
    from dragoman.console.server import serve_console
    from dragoman.paths import find_paths

    stop = asyncio.Event()
    live.listen(lambda count: stop.set())

    def listening(url: str, link: str) -> None:
        put_err(f"dragoman: console at {url}; log in with this link (once, within 5 minutes):\n")
        sys.stderr.flush()
        put_out(f"{link}\n")
        sys.stdout.flush()
        if open_browser:
            # Not in this thread: some browsers run until the user ends them. Not awaited, so that
            # the command can end before the browser.
            threading.Thread(target=_open, args=(link,), daemon=True).start()

    await serve_console(options, paths=find_paths(), stop=stop, on_listening=listening)
    return live.interrupt_code if live.interrupts else ExitCode.OK


def _open(link: str) -> None:
    import webbrowser

    if not webbrowser.open(link):
        put_err("dragoman: cannot open a browser; open the link yourself\n")


@app.command("link", context_settings=CONTEXT)
def link_command(read_only: Annotated[bool, READ_ONLY] = False) -> None:
    """Print a link that logs in another browser. It works once and is valid for 5 minutes.

    \b
    Examples:
      dragoman console link
      dragoman console link --read-only
    """
    require_extra("console", "starlette", "uvicorn")
    from dragoman.console.server import new_link

    access = _access()
    if not access.record.url:
        raise UsageError("no console was started yet", remedy="start one with `dragoman console`")
    put_out(new_link(access, "read" if read_only else "act") + "\n")


@app.command("tokens", context_settings=CONTEXT)
def tokens_command(
    action: Annotated[str, typer.Argument(metavar="[list|revoke]", show_default=False)] = "list",
    id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Token to revoke, or `all`.", show_default=False),
    ] = None,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    """List the logged-in browsers, or revoke their tokens.

    Revoking takes effect immediately and closes open connections.

    \b
    Examples:
      dragoman console tokens
      dragoman console tokens revoke 1f09c2aa
      dragoman console tokens revoke all
    """
    access = _access()
    if action == "list":
        if id is not None:
            raise UsageError("`dragoman console tokens list` takes no ID")
        _list(access, format)
    elif action == "revoke":
        if id is None:
            raise UsageError("missing token ID", remedy="list them with `dragoman console tokens`")
        if id == "all":
            count = access.revoke_all()
            put_err(f"dragoman: revoked {count} {'token' if count == 1 else 'tokens'}\n")
        else:
            put_err(f"dragoman: revoked token {access.revoke(id).id}\n")
    else:
        raise UsageError(f"`dragoman console tokens` takes list or revoke, not {action!r}")


def _list(access: ConsoleAccess, format: ListFormat) -> None:
    import time

    from dragoman.cli.output.tables import write_list

    def cells(token: ConsoleToken) -> list[str]:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(token.created_at))
        return [token.id, token.rights, since, token.label]

    write_list(
        access.record.tokens,
        format,
        head=["token", "rights", "since", "browser"],
        cells=cells,
        as_json=lambda token: {
            "type": "Token",
            "id": token.id,
            "rights": token.rights,
            "label": token.label,
            "createdAt": token.created_at,
            "expiresAt": token.expires_at,
        },
        name=lambda token: token.id,
        empty="No browser is logged in. `dragoman console link` prints a link that logs one in.",
    )


def _access() -> ConsoleAccess:
    from dragoman.console.access import ConsoleAccess
    from dragoman.paths import find_paths

    return ConsoleAccess(find_paths())
