"""Fleet credentials that appear and disappear while the console runs. tests/console has tests
with a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from dragoman.console.fleet_watch import TeamWatch
from dragoman.errors import FleetUnreachable
from dragoman.fleet.credentials import MemberCredential, credential_path, save_credential
from dragoman.fleet.nkeys import new_key
from dragoman.fleet.records import FleetJob, encode
from dragoman.fleet.schedule import Schedule
from dragoman.paths import Paths
from tests.aio import aio
from tests.unit.console.place import TIMEOUT, console, short_paths, told
from tests.unit.fleet.test_submitter import JOB


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


def credential(**changes: str) -> MemberCredential:
    fields = {"team": "team", "name": "alice", "kind": "submitter", "token": "t"} | changes
    seed = new_key("user").seed
    return MemberCredential(urls=("nats://127.0.0.1:1",), seed=seed, **fields)  # type: ignore[arg-type]


def save(paths: Paths, one: MemberCredential) -> None:
    save_credential(one, credential_path(paths, one.team, one.name))


@aio
async def test_a_fleet_is_shown_only_while_its_credential_exists(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            assert (await told(socket, "snapshot"))["fleets"] == []
            save(paths, credential(kind="worker", name="w1"))
            save(paths, credential())
            async with asyncio.timeout(TIMEOUT):
                while (await told(socket, "fleet"))["fleets"] != ["team.alice"]:
                    pass
                # No server is running, and the page says so.
                while not (found := (await client.get("/api/v1/fleet")).json()["teams"][0])[
                    "problem"
                ]:
                    await told(socket, "fleet")
                assert "127.0.0.1:1" in found["problem"] and not found["connected"]
                assert found["jobs"] == [] and found["workers"] == []
                credential_path(paths, "team", "alice").unlink()
                while (await told(socket, "fleet"))["fleets"]:
                    pass
        assert (await client.get("/api/v1/fleet")).json() == {"teams": []}


@aio
async def test_a_team_without_a_connection_is_unreachable() -> None:
    team = TeamWatch("team.alice", credential(), lambda: None)
    with pytest.raises(FleetUnreachable, match="not connected"):
        team.open_connection()


class _ListedTeam(TeamWatch):
    async def take(self, job: FleetJob) -> Any:
        """Returns the job as it is shown after its record was received."""
        message: Any = SimpleNamespace(data=encode(job))
        await self._job_changed(message)
        (shown,) = self.shown()["jobs"]
        return shown


@aio
async def test_a_changed_job_is_shown_as_the_coordinator_lists_it() -> None:
    job = structs.replace(JOB, spec=structs.replace(JOB.spec, prompt="x" * 1000))
    plan = Schedule(epoch=1, lease=1.0)
    plan.load([job], 0.0)
    (listed,) = plan.job_lines(0.0)
    shown = await _ListedTeam("team.alice", credential(), lambda: None).take(job)
    assert shown == {
        "createdAt" if name == "created_at" else name: value
        for name, value in structs.asdict(listed).items()
    }
