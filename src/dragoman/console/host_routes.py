"""HTTP API of other machines: list the configured hosts with their last check, and start a check.

It shows the same facts as `dragoman hosts list` and `dragoman hosts check`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.routing import Route

from dragoman.broker.client.ssh_command import host_named
from dragoman.catalogue.host_checks import HostCheck, last_check
from dragoman.config.hosts import destination_of
from dragoman.config.load import load_own
from dragoman.console.json_routes import INTERNAL_PROBLEM, json_route
from dragoman.errors import DragomanError, UsageError
from dragoman.rpc.tasks import TaskOwner, in_thread
from dragoman.setup.hosts import check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

    from dragoman.broker.client.ssh_command import Host
    from dragoman.config.schema import HostSettings
    from dragoman.console.live_state import LiveState

log: Final = logging.getLogger("dragoman.console")


class HostRoutes:
    """Handles requests about other machines. Always call `aclose`: it ends running checks."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._tasks = TaskOwner("host checks")
        self._running: set[str] = set()
        self._problems: dict[str, str] = {}
        """Why the last check that was started here could not be run, by host."""

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def routes(self) -> Sequence[Route]:
        at = "/api/v1/hosts"
        return [
            Route(at, json_route(self._all)),
            Route(f"{at}/{{name}}/check", json_route(self._check), methods=["POST"]),
        ]

    async def _all(self, request: Request) -> Any:
        hosts = await self._hosts()
        checks = await in_thread(
            str(self._state.paths.state),
            lambda _: {name: last_check(self._state.paths, name) for name in hosts},
        )
        return {"hosts": [self._shown(name, each, checks[name]) for name, each in hosts.items()]}

    async def _hosts(self) -> Mapping[str, HostSettings]:
        """Return the hosts in the user's own settings. A project cannot add hosts."""
        path = self._state.paths.config_file
        return (await in_thread(str(path), lambda _: load_own(path))).hosts

    def _shown(self, name: str, settings: HostSettings, found: HostCheck | None) -> dict[str, Any]:
        return {
            "name": name,
            "destination": destination_of(name, settings),
            "workspace": settings.workspace,
            "checking": name in self._running,
            "problem": self._problems.get(name, ""),
            "check": None if found is None else _check_as_json(found),
        }

    async def _check(self, request: Request) -> Any:
        name = request.path_params["name"]
        host = host_named(name, await self._hosts())
        if name in self._running:
            raise UsageError(f"{name} is already being checked")
        self._running.add(name)
        self._problems.pop(name, None)
        self._tasks.start(self._run(host), f"check {name}")
        self._state.tell({"type": "peers"})
        return {"started": True}

    async def _run(self, host: Host) -> None:
        try:
            await check(host, self._state.paths)
        except DragomanError as error:
            log.info("%s could not be checked: %s", host.name, error)
            self._problems[host.name] = str(error)
        except Exception:
            self._problems[host.name] = INTERNAL_PROBLEM
            raise
        finally:
            self._running.discard(host.name)
            self._state.tell({"type": "peers"})


def _check_as_json(found: HostCheck) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "checkedAt": found.checked_at,
        "version": found.version,
        "platform": found.platform,
        "findings": msgspec.to_builtins(found.findings),
        "agents": msgspec.to_builtins([each for each in found.agents if each.installed]),
    }
