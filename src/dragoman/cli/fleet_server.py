"""`dragoman fleet up` and `fleet coordinator`: run a fleet's server and its coordinators.

Builds their options from the command line, and stops them at Ctrl-C. `fleet.server` runs
`nats-server`, and `fleet.service` the coordinators beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.fleet_setup import (
    ClusterOption,
    FolderOption,
    NodeOption,
    fleet_folder,
    require_positive,
    show_notice,
    stop_event,
    until_stopped,
)
from dragoman.cli.output.terminal import put_err
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.fleet.server import ServerOptions
    from dragoman.fleet.team import FleetFolder

MIN_DISK: Final = 0.1
"""Minimum GiB of disk per team: the team's streams share it, and the smallest stream has to have
room for its records."""


def up_command(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="ADDRESS:PORT",
            help="Address to listen on; port 0 chooses a free port. Default: 127.0.0.1:4222, or "
            "the address of this server in --cluster.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="HOST",
            help="Host name or address that members use to reach this machine. May be repeated.",
        ),
    ] = None,
    team: Annotated[
        list[str] | None,
        typer.Option("--team", metavar="NAME", help="A team to create. May be repeated."),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls", help="Use TLS on a loopback address too. Other addresses always use it."
        ),
    ] = False,
    disk: Annotated[
        float, typer.Option("--disk", metavar="GIB", help="Maximum disk space for each team.")
    ] = 10.0,
    lease: Annotated[
        float,
        typer.Option(
            "--lease",
            metavar="SECONDS",
            help="Time without a heartbeat after which a worker counts as lost.",
        ),
    ] = 15.0,
    sync: Annotated[
        bool,
        typer.Option("--sync", help="Sync every message to disk: slower, but survives power loss."),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="PROGRAM",
            help="Path of the nats-server to run.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        float,
        typer.Option("--keep", metavar="DAYS", help="How long jobs, events and patches are kept."),
    ] = 3.0,
    max_waiting: Annotated[
        int,
        typer.Option(
            "--max-waiting", metavar="NUMBER", help="Maximum number of waiting jobs per submitter."
        ),
    ] = 1000,
    max_events: Annotated[
        float,
        typer.Option(
            "--max-events",
            metavar="MIB",
            help="Maximum size of the events of one attempt; later events are dropped.",
        ),
    ] = 64.0,
    events_rate: Annotated[
        float,
        typer.Option(
            "--events-rate", metavar="MIB", help="Maximum size of events per second and attempt."
        ),
    ] = 4.0,
    cluster: ClusterOption = None,
    node: NodeOption = None,
    coordinator: Annotated[
        bool,
        typer.Option("--coordinator/--no-coordinator", help="Also run the coordinator."),
    ] = True,
    dir: FolderOption = None,
) -> None:
    """Run a fleet's server and its coordinator until Ctrl-C.

    Keys, certificates and data are kept in one directory and used again at the next start. An
    address that other machines can reach always uses TLS.

    \b
    Examples:
      dragoman fleet up
      dragoman fleet up --listen 0.0.0.0:4222 --name fleet.example.net
      dragoman fleet up --cluster a.lan:4222,b.lan:4222,c.lan:4222 --node 1
    """
    folder = fleet_folder(dir)
    from dragoman.fleet.cluster import parse_cluster
    from dragoman.fleet.records import FleetLimits
    from dragoman.fleet.server import ServerOptions, parse_listen

    if node is not None and cluster is None:
        raise UsageError("--node needs --cluster")
    nodes = None if cluster is None else parse_cluster(cluster, node)
    if listen is not None:
        host, port = parse_listen(listen)
    else:
        host, port = ("127.0.0.1", 4222) if nodes is None else nodes.own
    if nodes is not None and port != nodes.own[1]:
        raise UsageError("--listen: the port differs from the port of this server in --cluster")
    if disk < MIN_DISK:
        raise UsageError(f"--disk must be at least {MIN_DISK} GiB")
    for option, value in (
        ("--lease", lease),
        ("--keep", keep),
        ("--max-waiting", max_waiting),
        ("--max-events", max_events),
        ("--events-rate", events_rate),
    ):
        require_positive(option, value)
    limits = FleetLimits(
        keep_days=keep,
        waiting=max_waiting,
        events_size=int(max_events * 1024**2),
        events_rate=int(events_rate * 1024**2),
    )
    options = ServerOptions(
        host=host,
        port=port,
        names=tuple(name or ()),
        teams=tuple(team or ()),
        tls=True if tls else None,
        disk_size=int(disk * 1024**3),
        sync="always" if sync else "interval",
        program=server,
        cluster=nodes,
        limits=limits,
        lease=lease,
    )
    until_stopped(lambda live: _up(folder, options, live, coordinator=coordinator))


async def _up(
    folder: FleetFolder,
    options: ServerOptions,
    live: CommandLoop,
    *,
    coordinator: bool,
) -> None:
    from dragoman.fleet.server import FleetServer
    from dragoman.fleet.service import run_service

    async with FleetServer(folder, options) as server:
        put_err(f"dragoman: fleet server listening at {', '.join(server.keys.urls)}\n")
        if server.new_certificate:
            show_notice("the certificate changed with the options: all members must join again")
        await run_service(
            folder,
            server=server,
            coordinate=coordinator,
            stop=stop_event(live),
            on_notice=show_notice,
        )


def coordinator_command(dir: FolderOption = None) -> None:
    """Run a standby coordinator, which takes over if the leader ends.

    It can run on any machine that reaches the server. Copy the server's fleet.json there first, to
    the directory `fleet-server` in dragoman's data directory, or to --dir.

    \b
    Examples:
      dragoman fleet coordinator
      dragoman fleet coordinator --dir /srv/fleet
    """
    folder = fleet_folder(dir)
    from dragoman.fleet.service import run_service

    until_stopped(
        lambda live: run_service(
            folder,
            server=None,
            coordinate=True,
            stop=stop_event(live),
            on_notice=show_notice,
        )
    )
