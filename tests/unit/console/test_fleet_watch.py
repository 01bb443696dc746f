"""Fleet credentials that appear and disappear while the console runs. tests/console has tests
with a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from dragoman.broker import error_codec
from dragoman.console import fleet_watch, retry
from dragoman.console.fleet_watch import FleetWatch, TeamWatch
from dragoman.console.live_state import LiveState
from dragoman.errors import DragomanError, FleetUnreachable, UsageError
from dragoman.fleet.credentials import MemberCredential, credential_path, save_credential
from dragoman.fleet.nkeys import new_key
from dragoman.fleet.records import CoordinatorReply, FleetJob, encode
from dragoman.fleet.schedule import Schedule
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.console.place import TIMEOUT, console, short_paths, told
from tests.unit.fleet.fakes import MemoryConnection
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
        assert (await client.get("/api/v1/fleet")).json() == {"teams": [], "problem": ""}


@aio
async def test_the_page_says_why_the_credentials_cannot_be_read(paths: Paths) -> None:
    save(paths, credential())
    credential_path(paths, "team", "alice").chmod(0o644)
    async with console(paths) as place, place.browser() as client:
        found = (await client.get("/api/v1/fleet")).json()
        assert found["teams"] == [] and "is readable by other users" in found["problem"]
        async with place.socket(client) as socket:
            assert (await told(socket, "snapshot"))["fleetProblem"] == found["problem"]
            # A changed mode is not a change of the file: the credential is read again anyway.
            credential_path(paths, "team", "alice").chmod(0o600)
            while (shown := await told(socket, "fleet"))["fleets"] != ["team.alice"]:
                pass
            assert shown["problem"] == ""


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


class _Coordinator(MemoryConnection):
    """A connection to a coordinator that answers each request with the next reply, and then with
    empty lists. It publishes nothing."""

    def __init__(self, *replies: CoordinatorReply | Exception) -> None:
        super().__init__("alice")
        self._replies = list(replies)
        self.asked = 0

    async def request(self, subject: str, data: bytes = b"", **more: Any) -> Any:
        self.asked += 1
        reply = self._replies.pop(0) if self._replies else CoordinatorReply()
        if isinstance(reply, Exception):
            raise reply
        return SimpleNamespace(data=encode(reply))

    async def wait_closed(self) -> None:
        await asyncio.Event().wait()


def _refusing(error: DragomanError) -> CoordinatorReply:
    return CoordinatorReply(error=str(error), failure=error_codec.describe(error))


@pytest.mark.parametrize(
    "failure",
    [FleetUnreachable("no coordinator runs"), _refusing(UsageError("no such list"))],
    ids=["unreachable", "refused"],
)
@aio
async def test_lists_that_the_coordinator_did_not_send_are_requested_again_without_a_change(
    failure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_watch, "ASK_INTERVAL", 0.0)
    monkeypatch.setattr(retry, "backoff", lambda failed, rng: 0.01 * failed)
    coordinator = _Coordinator(failure, failure)
    monkeypatch.setattr(
        "dragoman.fleet.connection.FleetConnection",
        lambda credential, on_connected: nullcontext(coordinator),
    )
    changed = asyncio.Event()
    team = TeamWatch("team.alice", credential(), changed.set)
    tasks = TaskOwner("test")
    tasks.start(team.run(), "follow")
    problems: list[str] = []
    try:
        async with asyncio.timeout(TIMEOUT):
            while not problems or problems[-1]:
                await changed.wait()
                changed.clear()
                problems.append(team.shown()["problem"])
    finally:
        await tasks.aclose()
    assert problems[0] and coordinator.asked == 4


@aio
async def test_credentials_that_could_not_be_read_are_read_again_without_a_change(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fleet_watch, "TELL_INTERVAL", 0.0)
    monkeypatch.setattr(retry, "backoff", lambda failed, rng: 0.01)
    save(paths, credential())
    # The same problem twice is logged once.
    failures = [OSError("gone"), UsageError("invalid"), UsageError("invalid")]
    read = FleetWatch._credentials

    def failing(watch: FleetWatch) -> Any:
        if failures:
            raise failures.pop()
        return read(watch)

    monkeypatch.setattr(FleetWatch, "_credentials", failing)
    state = LiveState(paths, answers=False)
    shown: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    state.subscribe(shown.put_nowait)
    watch = FleetWatch(state)
    await watch.start()
    try:
        async with asyncio.timeout(TIMEOUT):
            while (await shown.get())["fleets"] != ["team.alice"]:
                pass
    finally:
        await watch.aclose()
    assert watch.problem == ""
    assert caplog.messages == [
        "cannot read the fleet credentials: invalid",
        "cannot read the fleet credentials: gone",
    ]


@aio
async def test_an_invalid_credential_is_named_and_the_valid_fleets_are_shown(paths: Paths) -> None:
    save(paths, credential())
    bad = credential_path(paths, "other", "bob")
    bad.write_text("{}")
    bad.chmod(0o600)
    async with console(paths) as place, place.browser() as client:
        found = (await client.get("/api/v1/fleet")).json()
    assert [each["id"] for each in found["teams"]] == ["team.alice"]
    assert str(bad) in found["problem"]
