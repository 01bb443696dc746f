"""`dragoman login`: log in to a peer with one of the methods it offers.

A password or token is read without echo, from stdin or from a variable, never from the command
line, and is sent only to the agent. If the method is a separate command, it is shown, not run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.completions import complete_peer
from dragoman.cli.output.terminal import put, put_err
from dragoman.cli.shared_options import CwdOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.command_loop import CommandLoop
    from dragoman.events.parts import AuthMethod

HELP: Final = """
Log in to a peer, with a method that it offers.

METHOD can be left out if the peer has only one; otherwise the methods are listed. A password or
token is read from the terminal without echo, from stdin if that is a pipe, or with --from-env from
a variable. It is passed to the agent and not stored by dragoman.

A peer with a broker stays logged in as long as the broker keeps it running. With --cold the agent
is started only for the login, which helps if it stores the login itself.

\b
Examples:
  dragoman login my-agent
  dragoman login my-agent oauth --from-env MY_AGENT_TOKEN
  pass show my-agent | dragoman login my-agent password
"""

app: Final = new_app()


@app.command(help=HELP, context_settings=CONTEXT)
def login(
    peer: Annotated[
        str,
        typer.Argument(
            metavar="PEER",
            help="The name of a peer.",
            show_default=False,
            autocompletion=complete_peer,
        ),
    ],
    method: Annotated[
        str | None,
        typer.Argument(metavar="METHOD", help="A login method of the peer.", show_default=False),
    ] = None,
    *,
    from_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The environment variable with the password or token.",
            show_default=False,
        ),
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start the agent only for the login, without a broker.")
    ] = False,
    cwd: CwdOption = None,
) -> None:
    raise typer.Exit(_login(peer, method, from_env, cold=cold, cwd=cwd))


def _login(
    name: str, method: str | None, variable: str | None, *, cold: bool, cwd: Path | None
) -> int:
    from dragoman.cli.command_loop import CommandLoop, Interrupted, perform
    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.prompt_session import started
    from dragoman.cli.run_plan import RunOptions, prepare
    from dragoman.errors import DragomanError

    plan, show = prepare(RunOptions(peer=name, command=None, cold=cold, cwd=cwd), None)
    live = CommandLoop()

    async def work() -> int:
        async with started(plan, live, show) as session, session.run.connected() as peer:
            known = plan.way.descriptor
            how = "" if known is None else known.credentials.login
            chosen = _chosen(method, peer.auth_methods, name, how)
            if chosen.command is not None:
                put(sys.stdout, f"{chosen.command}\n")
                put_err(f"dragoman: {chosen.id} is a command; run it yourself\n")
                return 0
            password = token = None
            match chosen.kind:
                case "password":
                    password = await _secret("Password", variable, live)
                case "oauth":
                    token = await _secret("Token", variable, live)
            try:
                await peer.authenticate(chosen.id, password=password, token=token)
            except DragomanError as error:
                # A login does no work, so it can be repeated.
                error.may_have_run = False
                raise
            put_err(f"dragoman: logged in to {name} with {chosen.id}\n")
            return 0

    async def interruptible() -> int:
        try:
            return await work()
        except Interrupted:
            return ExitCode.INTERRUPTED

    return perform(live, interruptible)


def _chosen(
    wanted: str | None, methods: Sequence[AuthMethod], name: str, how: str = ""
) -> AuthMethod:
    """Return the login method that `wanted` names or, if it is None, the only one of the peer
    `name`. Raises `UsageError` if there is none, or if several could be meant.

    `how` says how to log in with the peer's own program.
    """
    from dragoman.errors import UsageError

    known = {method.id: method for method in methods if method.id != "none"}
    if not known:
        raise UsageError(f"{name} has no login that dragoman can start", remedy=how)
    listed = ", ".join(known)
    if wanted is None:
        if len(known) > 1:
            raise UsageError(f"{name} has several login methods, choose one: {listed}")
        return next(iter(known.values()))
    if wanted not in known:
        raise UsageError(f"{name} has no login method {wanted!r}; it has {listed}")
    return known[wanted]


async def _secret(what: str, variable: str | None, live: CommandLoop) -> str:
    """Read the password or token from the variable or, without one, from the terminal or stdin.

    Raises `UsageError` if there is none, and `Interrupted` if Ctrl-C is typed instead.
    """
    from dragoman.errors import UsageError

    if variable is not None:
        secret = os.environ.get(variable, "")
        if not secret:
            raise UsageError(f"--from-env {variable}: the variable is not set or is empty")
    else:
        line = await live.line(f"{what}: ", hidden=True)
        secret = "" if line is None else line.rstrip("\r\n")
    if not secret:
        raise UsageError(f"no {what.lower()} was given: pass it on stdin, or with --from-env NAME")
    return secret
