"""Shared options of `dragoman fleet`, and how a command runs as a submitter or until Ctrl-C.

`fleet` and `fleet_server` have the commands; `delegate` and `explain` use this module for
`--fleet`. The package `dragoman.fleet`, which needs an extra, is imported only when a command runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.cli.output.terminal import put_err
from dragoman.cli.shared_options import require_extra
from dragoman.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from dragoman.cli.command_loop import CommandLoop
    from dragoman.fleet.connection import FleetConnection
    from dragoman.fleet.team import FleetFolder

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Directory of the server's keys and data. Default: fleet-server in dragoman's data "
        "directory.",
        show_default=False,
    ),
]
TeamOption = Annotated[
    str | None,
    typer.Option(
        "--team", metavar="NAME", help="The team, if there are several.", show_default=False
    ),
]
AsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="The member to act as, if this machine joined as several.",
        show_default=False,
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS:PORT,...",
        help="Addresses of the three or five servers of a cluster. They need the same keys: "
        "copy fleet.json to each.",
        show_default=False,
    ),
]
NodeOption = Annotated[
    int | None,
    typer.Option(
        "--node",
        metavar="NUMBER",
        help="Position of this server in --cluster, from 1.",
        show_default=False,
    ),
]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The id of a job.", show_default=False)
]


def require_fleet() -> None:
    """Raise `UsageError` if the fleet's Python packages are not installed."""
    require_extra("fleet", "nats", "cryptography")


def fleet_folder(given: Path | None) -> FleetFolder:
    require_fleet()
    from dragoman.fleet.team import FleetFolder
    from dragoman.paths import find_paths

    return FleetFolder(given.absolute() if given else find_paths().data / "fleet-server")


def as_submitter(
    name: str | None,
    work: Callable[[FleetConnection, str], Coroutine[Any, Any, Any]],
    *,
    collect: bool = False,
) -> Any:
    """Connect to the fleet as this machine's submitter, call `work` with the connection and the
    name of the submitter's team, and return the result of `work`. `name` selects the submitter if
    there are several. With `collect`, the results of ended jobs that were submitted from this
    machine are recorded afterwards. Raises `UsageError` if the fleet's Python packages are not
    installed."""
    require_fleet()
    import asyncio

    from dragoman.fleet.connection import FleetConnection
    from dragoman.fleet.credentials import find_credential
    from dragoman.paths import find_paths

    credential = find_credential(find_paths(), "submitter", name=name, on_notice=show_notice)

    async def run() -> Any:
        async with FleetConnection(credential) as connection:
            done = await work(connection, credential.team)
            if collect:
                from dragoman.fleet.results import collect_results
                from dragoman.runs.context import load_context

                await collect_results(
                    connection,
                    load_context(Path.cwd()),
                    team=credential.team,
                    on_notice=show_notice,
                )
            return done

    return asyncio.run(run())


def until_stopped(work: Callable[[CommandLoop], Coroutine[Any, Any, None]]) -> None:
    """Run `work` to its end, and exit with the code of the interrupt if there was one, otherwise
    with 0. `work` gets the loop, and has to end by itself after an interrupt (see `stop_event`)."""
    from dragoman.cli.command_loop import CommandLoop, perform
    from dragoman.cli.exit_codes import ExitCode

    live = CommandLoop()

    async def run() -> int:
        await work(live)
        return live.interrupt_code if live.interrupts else ExitCode.OK

    raise typer.Exit(perform(live, run))


def stop_event(live: CommandLoop) -> asyncio.Event:
    """Return an event that the first interrupt sets. The second one cancels the task that called
    this function."""
    import asyncio

    stop = asyncio.Event()
    main = asyncio.current_task()

    def interrupted(count: int) -> None:
        stop.set()
        if count > 1 and main is not None:
            main.cancel()

    live.listen(interrupted)
    return stop


def show_notice(text: str) -> None:
    put_err(f"dragoman: {text}\n")
    sys.stderr.flush()


def words_of(text: str | None) -> tuple[str, ...]:
    return tuple(word for part in (text or "").split(",") if (word := part.strip()))


def require_positive(option: str, value: float) -> None:
    if not value > 0:
        raise UsageError(f"{option} must be greater than 0")
