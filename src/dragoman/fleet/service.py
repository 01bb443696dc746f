"""Run the coordinators of all teams until stopped, for `fleet up` and `fleet coordinator`.

Ends with an error if one of the coordinators fails, or if the server that this process started
exits. `coordinator` coordinates one team; `server` starts `nats-server`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from dragoman.errors import FleetError
from dragoman.fleet.cluster import replicas
from dragoman.fleet.coordinator import Coordinator, CoordinatorOptions
from dragoman.fleet.server import FleetServer
from dragoman.fleet.team import FleetFolder, coordinator_access
from dragoman.rpc.tasks import TaskOwner


async def run_service(
    folder: FleetFolder,
    *,
    server: FleetServer | None,
    coordinate: bool,
    stop: asyncio.Event,
    on_notice: Callable[[str], None],
) -> None:
    """Watch the server, if any, and run one coordinator per team if `coordinate` is set, until
    `stop` is set. Raises `FleetError` if the server exits, and `FleetRefused` if it refuses a
    coordinator."""
    tasks = TaskOwner("a fleet")
    keys = folder.read()
    parts: list[asyncio.Task[object]] = [tasks.start(stop.wait(), "stop")]
    if server is not None:
        parts.append(tasks.start(_watch(server), "server"))
    options = CoordinatorOptions(
        lease=keys.lease,
        ttl=min(keys.lease, 6.0),
        disk_size=keys.disk_size,
        replicas=replicas(keys.nodes),
        limits=keys.limits,
    )
    for team in keys.teams if coordinate else ():
        coordinator = Coordinator(
            coordinator_access(keys, team, int(time.time())),
            options,
            folder=folder,
            team=team.name,
            on_notice=on_notice,
        )
        parts.append(tasks.start(coordinator.run(), f"coordinator of {team.name}"))
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        await tasks.aclose()


async def _watch(server: FleetServer) -> None:
    await server.wait_exited()
    raise FleetError("nats-server exited")
