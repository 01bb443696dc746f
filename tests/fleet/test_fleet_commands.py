"""The fleet commands as a team uses them, with real processes only."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time

import pytest
from nats.aio.msg import Msg

from dragoman.config.safe_files import locked
from dragoman.errors import FleetError, FleetFull, FleetUnreachable, UnknownJob
from dragoman.fleet import subjects, submitter
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.credentials import CODE_PREFIX, MemberCredential, find_credential
from dragoman.fleet.records import CoordinatorReply, JobLine, WorkerStatus
from dragoman.fleet.submitter import ask, join, read_job
from dragoman.fleet.team import coordinator_access
from dragoman.paths import find_paths
from tests.fleet.rig import TIMEOUT, Rig


@pytest.fixture
def fleet(rig: Rig) -> Rig:
    """A server with a coordinator, and a submitter."""
    rig.start_server(coordinator=True)
    rig.wait(lambda: "coordinating team" in rig.processes["server"].text())
    rig.join("submitter", "s1")
    return rig


def joined(rig: Rig, kind: str, name: str) -> str:
    """Invite and join with the commands. Returns the join code."""
    told = rig.call("server-home", "fleet", "invite", kind, name, "--dir", str(rig.folder.path))
    code = told.split()[-1]
    assert code.startswith(CODE_PREFIX)
    rig.call(name, "fleet", "join", code)
    return code


def worker(rig: Rig, name: str, *options: str, permissions: str = "approve-all") -> None:
    rig.make_home(name, permissions=permissions)
    rig.join("worker", name)
    rig.start_worker(name, *options)
    rig.wait(lambda: any(one.name == name for one in workers_now(rig)))


def asked(rig: Rig, word: str) -> CoordinatorReply:
    """Send a request to the coordinator directly, which is faster than running a command. Waits
    for a coordinator that answers."""

    async def question() -> CoordinatorReply | None:
        try:
            async with connected(rig) as connection:
                return await ask(connection, word)
        except FleetError:
            return None

    reply: CoordinatorReply = rig.wait(lambda: asyncio.run(question()))
    return reply


def workers_now(rig: Rig) -> tuple[WorkerStatus, ...]:
    return asked(rig, "workers").workers


def jobs_now(rig: Rig) -> tuple[JobLine, ...]:
    return asked(rig, "jobs").jobs


def connected(rig: Rig) -> FleetConnection:
    return FleetConnection(find_credential(find_paths(rig.env("s1")), "submitter"))


def submit(rig: Rig, prompt: str, *options: str) -> str:
    return rig.call("s1", "fleet", "submit", "execute", prompt, *options).strip()


def result(rig: Rig, job: str, code: int = 0) -> dict[str, object]:
    told = rig.call("s1", "fleet", "watch", job, "--format", "json", code=code)
    found: dict[str, object] = json.loads(told.splitlines()[-1])
    assert found["type"] == "FleetResult", told
    return found


@pytest.mark.timeout(180)
def test_three_workers_join_and_a_job_returns_a_result_and_a_patch(fleet: Rig) -> None:
    for name in ("w1", "w2", "w3"):
        fleet.make_home(name)
        joined(fleet, "worker", name)
        fleet.start_worker(name, "--labels", f"only-{name}")
    joined(fleet, "submitter", "s2")
    fleet.wait(lambda: len(asked(fleet, "workers").workers) == 3)
    assert fleet.call("s2", "fleet", "workers", "--format", "quiet").split() == ["w1", "w2", "w3"]
    fleet.wait(lambda: all(one.details for one in asked(fleet, "workers").workers))
    listed = fleet.call("s2", "fleet", "workers", "--format", "json").splitlines()
    details = json.loads(listed[0])["details"]
    assert details["scripted"] == {"state": "ready", "roles": ["execute"], "card": "none"}
    assert details["scout"]["version"]
    job = submit(fleet, "write 0.2 hello", "--needs", "only-w2,scripted")
    told = fleet.call("s2", "fleet", "watch", job)
    assert "write 9" in told
    found = result(fleet, job)
    assert found["result"]["worker"] == "w2"  # type: ignore[index]
    assert not (fleet.repository / "result.txt").exists()
    assert fleet.call("s1", "fleet", "apply", job).split() == ["result.txt"]
    assert (fleet.repository / "result.txt").read_text() == "hello\n"
    assert job in fleet.call("s1", "fleet", "jobs")
    # Untracked files are sent, ignored ones are not.
    files = fleet.call("s1", "fleet", "watch", submit(fleet, "files 0.1 x", "--needs", "only-w2"))
    assert "untracked.txt" in files and "secret.env" not in files
    # The worktree is removed afterwards.
    work = fleet.root / "w2" / "state" / "fleet-work"
    fleet.wait(lambda: not list(work.glob("*")))


@pytest.mark.timeout(120)
def test_a_join_code_works_once_and_the_credentials_are_private(fleet: Rig) -> None:
    code = joined(fleet, "worker", "w1")
    told = fleet.call("w2", "fleet", "join", code, code=2)
    assert "already used" in told
    old = fleet.folder.invite("worker", "w2", team=None, now=int(time.time()) - 3600)
    assert "it has expired" in fleet.call("w2", "fleet", "join", old, code=2)
    # Of two machines that use a code at once, one joins.
    fresh = fleet.folder.invite("worker", "w2", team=None, now=int(time.time()))

    async def at_once() -> list[object]:
        return list(await asyncio.gather(join(fresh), join(fresh), return_exceptions=True))

    kinds = sorted(type(one).__name__ for one in asyncio.run(at_once()))
    assert kinds == ["MemberCredential", "UsageError"]
    (file,) = (fleet.root / "w1" / "data" / "fleet").glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(120)
def test_a_machine_joins_although_the_first_answer_takes_too_long(fleet: Rig) -> None:
    code = fleet.folder.invite("worker", "w1", team=None, now=int(time.time()))
    keys = fleet.folder.read()
    access = coordinator_access(keys, keys.team(None), int(time.time()))

    async def hold_until_asked_again() -> None:
        requests: asyncio.Queue[bytes] = asyncio.Queue()

        async def on_request(message: Msg) -> None:
            requests.put_nowait(message.data)

        async with FleetConnection(access) as connection:
            await connection.subscribe(subjects.JOINS, on_request)
            # The coordinator has to write this file before it answers.
            with locked(fleet.folder.file):
                fleet.start("join", "w1", "fleet", "join", code)
                async with asyncio.timeout(TIMEOUT):
                    first, again = await requests.get(), await requests.get()
        assert first == again

    asyncio.run(hold_until_asked_again())
    assert fleet.processes["join"].child.wait(TIMEOUT) == 0, fleet.processes["join"].text()
    assert find_credential(find_paths(fleet.env("w1")), "worker").name == "w1"


@pytest.mark.timeout(120)
def test_a_revoked_worker_exits_and_says_why(fleet: Rig) -> None:
    worker(fleet, "w1")
    fleet.call("server-home", "fleet", "revoke", "w1", "--dir", str(fleet.folder.path))
    process = fleet.processes["w1"]
    assert process.child.wait(30) != 0
    assert "credentials were revoked" in process.text()


@pytest.mark.timeout(120)
def test_secrets_of_a_worker_do_not_reach_the_submitter(fleet: Rig) -> None:
    worker(fleet, "w1")
    told = fleet.call("s1", "fleet", "watch", submit(fleet, "secret 0.1 x"), "--format", "json")
    assert "indeed" in told
    assert "abcdef" not in told and "0123456789" not in told
    leaked = result(fleet, submit(fleet, "leak 0.1 x"), code=1)["result"]
    assert "a secret of this machine" in leaked["why"]  # type: ignore[index]
    assert "patch" not in leaked  # type: ignore[operator]


@pytest.mark.timeout(120)
def test_an_event_larger_than_a_message_arrives_complete(fleet: Rig) -> None:
    worker(fleet, "w1")
    told = fleet.call("s1", "fleet", "watch", submit(fleet, "large 0.1 x"), "--format", "json")
    texts = [one["event"].get("text") or "" for one in map(json.loads, told.splitlines()[:-1])]
    assert "large " * 400_000 in "".join(texts)


@pytest.mark.timeout(120)
def test_the_limits_of_a_fleet_apply_to_submitters_and_workers(rig: Rig) -> None:
    limits = ("--max-waiting", "1", "--max-events", "0.0005")
    rig.start_server(*limits, coordinator=True)
    rig.join("submitter", "s1")
    first, second = (submit(rig, "write 0.1 x") for _ in range(2))
    refused = result(rig, second, code=1)["result"]
    assert refused["outcome"] == "refused" and "1 waiting" in refused["why"]  # type: ignore[index]
    worker(rig, "w1")
    done = result(rig, first)["result"]
    assert "events were not stored" in done["why"]  # type: ignore[index]


@pytest.mark.timeout(180)
def test_a_drained_worker_gets_no_jobs_until_undo_even_after_a_coordinator_restart(
    rig: Rig,
) -> None:
    rig.start_server()
    rig.start_coordinator()
    rig.join("submitter", "s1")
    worker(rig, "w1")
    drain = ("fleet", "drain", "w1", "--dir", str(rig.folder.path))
    rig.call("server-home", *drain)
    rig.processes["coordinator"].kill()
    rig.start_coordinator("second")
    rig.wait(lambda: [one.draining for one in workers_now(rig)] == [True])
    first, second = submit(rig, "write 0.1 x"), submit(rig, "write 0.1 y")
    rig.wait(lambda: ["busy" in one.waiting for one in jobs_now(rig)] == [True, True])
    rig.call("s1", "fleet", "cancel", first)
    assert result(rig, first, code=1)["result"]["outcome"] == "cancelled"  # type: ignore[index]
    rig.call("server-home", *drain, "--undo")
    assert result(rig, second)["result"]["ok"] is True  # type: ignore[index]
    assert rig.runs.read_text().split() == ["y"]


@pytest.mark.timeout(120)
def test_a_worker_started_before_the_server_waits_for_it(fleet: Rig) -> None:
    fleet.kill_server()
    fleet.make_home("w1")
    fleet.join("worker", "w1")
    waiting = fleet.start_worker("w1")
    fleet.wait(lambda: "retrying" in waiting.text(), waiting)
    fleet.start_server(coordinator=True)
    assert result(fleet, submit(fleet, "write 0.1 x"))["result"]["worker"] == "w1"  # type: ignore[index]


@pytest.mark.timeout(120)
def test_a_job_on_a_worker_with_a_failing_disk_is_run_on_another_worker(fleet: Rig) -> None:
    state = fleet.root / "w1" / "state"
    state.mkdir(parents=True)
    worker(fleet, "w1")
    (state / "fleet-work").write_text("not a directory")
    job = submit(fleet, "write 0.1 x")
    fleet.wait(lambda: "not a directory" in fleet.processes["w1"].text().lower())
    fleet.processes["w1"].end()
    worker(fleet, "w2")
    found = result(fleet, job)
    assert found["result"]["worker"] == "w2"  # type: ignore[index]
    assert fleet.runs.read_text().split() == ["x"]


@pytest.mark.timeout(180)
def test_a_job_can_be_cancelled_before_a_coordinator_takes_it_and_only_once(rig: Rig) -> None:
    rig.start_server()
    # The streams are set up by the first coordinator.
    rig.start_coordinator()
    rig.join("submitter", "s1")
    rig.wait(
        lambda: workers_now(rig) == () and "coordinating" in rig.processes["coordinator"].text()
    )
    rig.processes["coordinator"].kill()
    job, other = submit(rig, "say 0.1 x"), submit(rig, "say 0.1 y")
    assert "has no job" in rig.call("s1", "fleet", "cancel", "f0", code=4)
    cancel = rig.start("cancel", "s1", "fleet", "cancel", job)
    assert cancel.child.wait(60) == 0 and "cancelling job" in cancel.text()
    asyncio.run(store_record(rig, b"of another version"))
    rig.start_coordinator("second")
    worker(rig, "w1")
    assert result(rig, other)["result"]["ok"] is True  # type: ignore[index]
    assert result(rig, job, code=1)["result"]["outcome"] == "cancelled"  # type: ignore[index]
    assert rig.runs.read_text().split() == ["y"]
    again = rig.start("again", "s1", "fleet", "cancel", job)
    assert again.child.wait(60) == 0 and "has already ended" in again.text()


@pytest.mark.timeout(180)
def test_a_job_that_waits_for_a_coordinator_is_distinguished_from_one_that_has_expired(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "ACCEPT_TIMEOUT", 0.0)
    rig.start_server()
    rig.start_coordinator()
    rig.join("submitter", "s1")
    rig.wait(lambda: "coordinating" in rig.processes["coordinator"].text())
    with pytest.raises(UnknownJob, match="it has expired, or was never submitted"):
        asyncio.run(follow(rig, "f0"))
    rig.processes["coordinator"].kill()
    job = submit(rig, "say 0.1 x")
    with pytest.raises(FleetUnreachable, match="no coordinator is running: job .* is waiting"):
        asyncio.run(follow(rig, job))


async def follow(rig: Rig, job: str) -> None:
    async with connected(rig) as connection:
        async for _ in submitter.JobReader(connection, job).follow():
            pass


async def store_record(rig: Rig, data: bytes) -> None:
    keys = rig.folder.read()
    access = coordinator_access(keys, keys.team(None), int(time.time()))
    async with FleetConnection(access) as connection:
        await connection.store(subjects.job_record("strange"), data)


@pytest.mark.timeout(120)
def test_two_workers_with_one_name_each_run_their_own_jobs(fleet: Rig) -> None:
    worker(fleet, "w1")
    first = submit(fleet, "say 4 first")
    fleet.wait(fleet.runs.read_text)
    fleet.start("w1-again", "w1", "fleet", "worker", "--slots", "2")
    second = submit(fleet, "say 0.1 second")
    for job in (first, second):
        found = result(fleet, job)
        assert found["result"]["ok"] is True  # type: ignore[index]
        assert len(found["attempts"]) == 1  # type: ignore[arg-type]
    assert fleet.runs.read_text().split() == ["first", "second"]


@pytest.mark.timeout(120)
def test_cancelling_a_running_job_ends_its_agent(fleet: Rig) -> None:
    worker(fleet, "w1")
    job = submit(fleet, "write 100 x")
    fleet.wait(fleet.agents_left)
    fleet.call("s1", "fleet", "cancel", job)
    assert result(fleet, job, code=1)["result"]["outcome"] == "cancelled"  # type: ignore[index]
    fleet.wait(lambda: not fleet.agents_left())


@pytest.mark.timeout(120)
def test_a_job_that_ran_a_command_is_not_run_again_after_its_worker_is_lost(fleet: Rig) -> None:
    worker(fleet, "w1")
    worker(fleet, "w2")
    job = submit(fleet, "command 0.1 x")
    fleet.wait(lambda: "command 9" in events_so_far(fleet, job))
    (listed,) = asked(fleet, "jobs").jobs
    fleet.wait(lambda: "make install" in events_so_far(fleet, job))
    fleet.processes[listed.worker].kill()
    found = result(fleet, job, code=1)
    assert found["result"]["outcome"] == "lost"  # type: ignore[index]
    assert "it ran a command" in found["result"]["why"]  # type: ignore[index]
    assert fleet.runs.read_text().split() == ["x"]


@pytest.mark.timeout(180)
def test_a_job_that_ran_a_command_is_not_run_again_even_if_the_event_stream_is_full(
    rig: Rig,
) -> None:
    rig.start_server("--disk", "0.1", coordinator=True)
    rig.join("submitter", "s1")
    filler = rig.join("worker", "w0")
    worker(rig, "w1")
    os.mkfifo(rig.hold)
    job = submit(rig, "command 0.1 x")
    rig.wait(lambda: "command 0" in events_so_far(rig, job))
    asyncio.run(fill(filler, subjects.events("w0", "f0", 1)))

    async def acted() -> str:
        async with connected(rig) as connection:
            found = await read_job(connection, job)
        return found.attempts[0].acted if found is not None else ""

    with rig.hold.open("w"):
        rig.hold.unlink()
    rig.wait(lambda: "make install" in asyncio.run(acted()))
    assert "make install" not in events_so_far(rig, job)
    rig.processes["w1"].kill()
    worker(rig, "w2")
    found = result(rig, job, code=1)
    assert "it ran a command" in found["result"]["why"]  # type: ignore[index]
    assert rig.runs.read_text().split() == ["x"]


@pytest.mark.timeout(180)
def test_a_report_that_does_not_fit_into_the_inbox_is_not_lost(rig: Rig) -> None:
    rig.lease = "30"
    rig.start_server("--disk", "0.1")
    rig.start_coordinator()
    rig.join("submitter", "s1")
    filler = rig.join("submitter", "s2")
    worker(rig, "w1")
    job = submit(rig, "write 2 x")
    rig.wait(rig.runs.read_text)
    coordinator = rig.processes["coordinator"].child
    os.kill(coordinator.pid, signal.SIGSTOP)
    try:
        # All have the id of one job: the first one is refused, and the others are ignored.
        asyncio.run(fill(filler, subjects.submission("s2", "f0")))
        rig.wait(lambda: "cannot store its report yet" in rig.processes["w1"].text())
    finally:
        os.kill(coordinator.pid, signal.SIGCONT)
    found = result(rig, job)
    assert found["result"]["ok"] is True  # type: ignore[index]
    assert [one["end"] for one in found["attempts"]] == ["done"]  # type: ignore[attr-defined]
    assert rig.runs.read_text().split() == ["x"]


async def fill(credential: MemberCredential, subject: str) -> None:
    """Fill a stream until there is no room for even a small message."""
    async with FleetConnection(credential) as connection:
        for size in (512 * 1024, 32 * 1024, 1024, 1):
            try:
                while True:
                    await connection.store(subject, b"x" * size)
            except FleetFull:
                continue


def events_so_far(rig: Rig, job: str) -> str:
    """The events stored so far, without waiting for the end of the job."""

    async def read() -> str:
        told, position = "", 1
        async with connected(rig) as connection:
            while True:
                subject = subjects.events("*", job, "*")
                found = await connection.after(subjects.EVENTS, position, subject)
                if found is None:
                    return told
                told += found.data.decode()
                position = found.sequence + 1

    return asyncio.run(read())


@pytest.mark.timeout(120)
def test_a_worker_resumed_after_its_lease_ends_its_agent_and_is_ignored(
    fleet: Rig,
) -> None:
    worker(fleet, "w1")
    job = submit(fleet, "write 8 x")
    fleet.wait(fleet.runs.read_text)
    first = fleet.processes["w1"].child
    os.kill(first.pid, signal.SIGSTOP)
    worker(fleet, "w2")
    try:
        fleet.wait(lambda: len(fleet.runs.read_text().split()) == 2)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    fleet.wait(lambda: "stopped:" in fleet.processes["w1"].text())
    found = result(fleet, job)
    assert [one["end"] for one in found["attempts"]] == ["lost", "done"]  # type: ignore[attr-defined]
    assert found["result"]["worker"] == "w2"  # type: ignore[index]


@pytest.mark.timeout(120)
def test_a_worker_refuses_a_check_command_and_the_job_says_why_it_waits(fleet: Rig) -> None:
    worker(fleet, "w1")
    job = submit(fleet, "write 0.1 x", "--check", "touch checked")
    fleet.wait(lambda: "--allow-checks" in asked(fleet, "jobs").jobs[0].waiting)
    assert fleet.runs.read_text() == ""
    worker(fleet, "w2", "--allow-checks")
    assert result(fleet, job)["result"]["worker"] == "w2"  # type: ignore[index]


@pytest.mark.timeout(120)
def test_a_standby_takes_over_and_a_restarted_server_has_lost_nothing(fleet: Rig) -> None:
    worker(fleet, "w1")
    fleet.start_coordinator("standby")
    job = submit(fleet, "write 1 x")
    fleet.kill_server()
    fleet.start_server("--no-coordinator")
    fleet.wait(lambda: "coordinating team" in fleet.processes["standby"].text())
    found = result(fleet, job)
    assert found["result"]["ok"] is True  # type: ignore[index]


@pytest.mark.timeout(180)
def test_a_standby_on_another_machine_takes_over_with_a_copy_of_the_keys_alone(rig: Rig) -> None:
    rig.start_server()
    rig.start_coordinator()
    rig.wait(lambda: "coordinating team" in rig.processes["coordinator"].text())
    rig.join("submitter", "s1")
    worker(rig, "w1")
    # As on another machine: another user's directories, with one file of the server.
    there = find_paths(rig.env("elsewhere")).data / "fleet-server"
    there.mkdir(parents=True, mode=0o700)
    shutil.copy(rig.folder.file, there)
    standby = rig.start("standby", "elsewhere", "fleet", "coordinator")
    job = submit(rig, "say 2 x")
    rig.wait(rig.runs.read_text)
    rig.processes["coordinator"].kill()
    rig.wait(lambda: "coordinating team" in standby.text(), standby)
    assert result(rig, job)["result"]["ok"] is True  # type: ignore[index]
    assert rig.runs.read_text().split() == ["x"]
    # A code is known only to the coordinator of the machine on which it was made.
    told = rig.call("server-home", "fleet", "invite", "worker", "w2", "--dir", str(rig.folder.path))
    refused = rig.call("w2", "fleet", "join", told.split()[-1], code=2)
    assert "no coordinator is running on the machine where it was created" in refused
    rig.start_coordinator()
    rig.wait(lambda: could_join(rig, "w2", told.split()[-1]))
    # The first one leads no more, and waits until the other one ends.
    assert rig.processes["coordinator"].text().count("coordinating team") == 1
    standby.kill()
    rig.wait(lambda: rig.processes["coordinator"].text().count("coordinating team") == 2)
    assert result(rig, submit(rig, "say 0.1 y"))["result"]["ok"] is True  # type: ignore[index]


def could_join(rig: Rig, name: str, code: str) -> bool:
    """Whether a machine could join; the coordinator may not listen yet."""
    try:
        rig.call(name, "fleet", "join", code)
    except AssertionError:
        return False
    return True


@pytest.mark.timeout(180)
def test_a_coordinator_that_was_stopped_and_continues_does_not_lead_beside_another(
    rig: Rig,
) -> None:
    rig.start_server()
    first = rig.start_coordinator("first")
    rig.wait(lambda: "coordinating team" in first.text())
    rig.join("submitter", "s1")
    worker(rig, "w1", "--slots", "2")
    before = submit(rig, "say 3 before")
    rig.wait(rig.runs.read_text)
    first.child.send_signal(signal.SIGSTOP)
    second = rig.start_coordinator("second")
    rig.wait(lambda: "coordinating team" in second.text(), second)
    during = submit(rig, "say 1 during")
    first.child.send_signal(signal.SIGCONT)
    rig.wait(lambda: "restarting the coordinator" in first.text(), first)
    for job in (before, during, submit(rig, "say 0.1 after")):
        found = result(rig, job)
        assert found["result"]["ok"] is True  # type: ignore[index]
        assert len(found["attempts"]) == 1  # type: ignore[arg-type]
    assert sorted(rig.runs.read_text().split()) == ["after", "before", "during"]
    assert first.text().count("coordinating team") == 1


def test_a_machine_that_has_not_joined_says_what_to_do(rig: Rig) -> None:
    told = rig.call("stranger", "fleet", "submit", "execute", "x", code=2)
    assert "fleet invite submitter" in told
    told = rig.call("stranger", "fleet", "worker", code=2)
    assert "fleet invite worker" in told
    told = rig.call("stranger", "fleet", "join", "hello", code=2)
    assert "not a join code" in told


@pytest.mark.timeout(180)
def test_workers_go_on_with_a_server_whose_streams_were_deleted(fleet: Rig) -> None:
    worker(fleet, "w1")
    fleet.kill_server()
    # The second coordinator has a larger epoch than the first one after the deletion.
    fleet.start_server(coordinator=True)
    assert result(fleet, submit(fleet, "write 0.1 x"))
    fleet.kill_server()
    shutil.rmtree(fleet.folder.path / "jetstream")
    fleet.start_server(coordinator=True)
    fleet.wait(lambda: any(one.name == "w1" for one in workers_now(fleet)))
    assert result(fleet, submit(fleet, "write 0.1 y"))
