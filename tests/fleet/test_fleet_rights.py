"""The server enforces the rights of members, tested with raw clients; also TLS and full disks."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from nats.aio.msg import Msg

from dragoman.errors import FleetError, FleetFull, FleetRefused, FleetUnreachable, UsageError
from dragoman.fleet import connection as connection_module
from dragoman.fleet import subjects
from dragoman.fleet.connection import PENDING_MESSAGES, FleetConnection
from dragoman.fleet.credentials import MemberCredential
from dragoman.fleet.objects import get_object, put_object
from dragoman.fleet.records import JobSpec, new_job_id
from dragoman.fleet.server import (
    MAX_PAYLOAD_SIZE,
    FleetServer,
    ServerOptions,
    tell_server,
    wants_tls,
)
from dragoman.fleet.streams import ensure_streams, stream_configs
from dragoman.fleet.submitter import submit
from dragoman.fleet.team import FleetFolder, FleetKeys, coordinator_access
from tests.aio import aio
from tests.fleet.rig import TIMEOUT, Rig, with_every_server

REFUSED_TIMEOUT = 3.0


@asynccontextmanager
async def server(rig: Rig, **options: object) -> AsyncIterator[FleetKeys]:
    wanted: dict[str, object] = {"host": "127.0.0.1", "port": 0, "teams": ("red", "blue")}
    wanted["program"] = rig.server_program
    async with FleetServer(rig.folder, ServerOptions(**(wanted | options))) as running:  # type: ignore[arg-type]
        for team in running.keys.teams:
            async with coordinator(running.keys, team.name) as connection:
                await ensure_streams(connection.client.jetstream(), running.keys.disk_size)
        yield running.keys


def coordinator(keys: FleetKeys, team: str) -> FleetConnection:
    return FleetConnection(coordinator_access(keys, keys.team(team), int(time.time())))


class Listening(FleetConnection):
    """A client that records the server's permission errors."""

    def __init__(self, credential: MemberCredential) -> None:
        super().__init__(credential)
        self.heard: list[str] = []
        self.more = asyncio.Event()

    async def _failed(self, error: Exception) -> None:
        self.heard.append(str(error).lower())
        self.more.set()

    async def refusals(self, *wanted: str) -> list[str]:
        """Publish to subjects and return those that the server did not reject."""
        for subject in wanted:
            await self.publish(subject, b"{}")
        await self.flush()
        left = list(wanted)
        try:
            async with asyncio.timeout(REFUSED_TIMEOUT):
                while left:
                    self.more.clear()
                    told = " ".join(self.heard)
                    left = [one for one in left if f'publish to "{one.lower()}"' not in told]
                    if left:
                        await self.more.wait()
        except TimeoutError:
            pass
        return left


@with_every_server
@aio
async def test_a_worker_may_publish_only_what_is_its_own(rig: Rig) -> None:
    async with server(rig) as keys:
        credential = rig.join("worker", "w1", team="red")
        async with coordinator(keys, "red") as owner, Listening(credential) as worker:
            await owner.store(subjects.job_record("f1"), b"{}")
            await owner.client.jetstream().add_consumer("INBOX", durable_name="coordinator")
            foreign = [
                # Submit or cancel a job, as anyone.
                "submit.w1.f2",
                "submit.s1.f2",
                "cancel.s1.f1",
                # Overwrite a job record with its lease, or the leader.
                "$KV.jobs.f1",
                "$KV.fleet.leader",
                # Another worker's events, result, objects, heartbeat and jobs.
                "evt.w2.f1.1",
                "result.w2.f1.1",
                "obj.w2.x.0",
                "beat.w2",
                "job.w2",
                "job.w1",
                # Acknowledge, read or delete stored messages, or change streams.
                "$JS.ACK.INBOX.coordinator.1.1.1.1.0",
                "$JS.API.CONSUMER.MSG.NEXT.INBOX.coordinator",
                "$JS.API.CONSUMER.CREATE.EVENTS",
                "$JS.API.CONSUMER.CREATE.EVENTS.x.evt.>",
                "$JS.API.STREAM.MSG.GET.KV_jobs",
                "$JS.API.STREAM.MSG.DELETE.INBOX",
                "$JS.API.STREAM.PURGE.INBOX",
                "$JS.API.STREAM.DELETE.KV_jobs",
                "$JS.API.STREAM.UPDATE.KV_jobs",
                "$JS.API.DIRECT.GET.KV_jobs.$KV.jobs.f1",
                "$JS.API.DIRECT.GET.EVENTS",
                "$JS.API.DIRECT.GET.OBJECTS",
                # Answer in place of the coordinator, or send it requests.
                "_INBOX_w2.x",
                "_INBOX_s1.x",
                "ask.w1.jobs",
                "ask.coordinator.drain",
                "join.join-1",
                "$SYS.REQ.CLAIMS.UPDATE",
            ]
            assert await worker.refusals(*foreign) == []
            own = ["evt.w1.f1.1", "result.w1.f1.1", "obj.w1.x.0", "beat.w1"]
            assert await worker.refusals(*own) == own
            found = await owner.last("KV_jobs", "$KV.jobs.f1")
            assert found is not None and found.data == b"{}"


@with_every_server
@aio
async def test_a_missing_right_is_not_reported_as_a_server_that_does_not_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", REFUSED_TIMEOUT)

    async def ignore(message: object) -> None: ...

    async with server(rig), FleetConnection(rig.join("worker", "w1", team="red")) as worker:
        with pytest.raises(FleetRefused, match="(?i)permissions violation") as caught:
            await worker.store(subjects.submission("w1", "f1"), b"{}", timeout=60.0)
        assert not caught.value.may_have_run
        with pytest.raises(FleetRefused, match="(?i)permissions violation"):
            await worker.subscribe("job.w2", ignore)
        # It still may do what is its own.
        assert await worker.store(subjects.events("w1", "f1", 1), b"{}")


@with_every_server
@aio
async def test_a_message_that_is_too_large_is_not_sent_and_the_connection_stays(rig: Rig) -> None:
    lost: list[bool] = []
    async with server(rig):
        credential = rig.join("submitter", "s1", team="red")
        async with FleetConnection(credential, on_connected=lost.append) as submitter:
            # The server also counts the headers.
            for size in (MAX_PAYLOAD_SIZE + 1, MAX_PAYLOAD_SIZE):
                with pytest.raises(FleetError, match="maximum payload") as caught:
                    await submitter.store(subjects.submission("s1", "f1"), b"x" * size)
                assert not caught.value.retryable and not caught.value.may_have_run
            size = MAX_PAYLOAD_SIZE - connection_module.HEADERS_SIZE
            assert await submitter.store(subjects.submission("s1", "f1"), b"x" * size)
            assert lost == []


@pytest.mark.timeout(120)
@aio
async def test_messages_over_the_limit_of_a_subscription_are_dropped_and_reported(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    over = 10
    async with server(rig) as keys:
        credential = rig.join("worker", "w1", team="red")
        async with coordinator(keys, "red") as owner, FleetConnection(credential) as worker:
            free, received, dropped = asyncio.Event(), list[bytes](), list[None]()
            last = asyncio.Event()

            async def slow(message: Msg) -> None:
                await free.wait()
                received.append(message.data)
                if len(received) >= PENDING_MESSAGES:
                    last.set()

            await worker.subscribe("job.w1", slow, on_dropped=lambda: dropped.append(None))
            for number in range(PENDING_MESSAGES + 1 + over):
                await owner.publish("job.w1", b"%d" % number)
            await owner.flush()
            # Replies do not wait behind these messages.
            await worker.flush()
            reply = await worker.request(subjects.direct_get("OBJECTS", "obj.w1.x.0"))
            assert reply.headers is not None and reply.headers["Status"] == "404"
            free.set()
            async with asyncio.timeout(60):
                await last.wait()
    # The handler holds one message, and the queue has the others.
    assert len(dropped) in (over, over + 1)
    assert received[0] == b"0" and b"%d" % (PENDING_MESSAGES + over) not in received
    assert "a message on job.w1 was dropped" in caplog.text


@with_every_server
@aio
async def test_a_submitter_may_publish_only_its_own_jobs_and_questions(rig: Rig) -> None:
    async with server(rig) as keys:
        credential = rig.join("submitter", "s1", team="red")
        async with coordinator(keys, "red") as owner, Listening(credential) as submitter:
            await owner.store(subjects.job_record("f1"), b"{}")
            foreign = [
                # Jobs of another submitter, and what workers publish.
                "submit.s2.f2",
                "cancel.s2.f1",
                "ask.s2.jobs",
                "obj.s2.x.0",
                "result.w1.f1.1",
                "evt.w1.f1.1",
                "beat.w1",
                "job.w1",
                # Records, leases, and what only the coordinator may ask for.
                "$KV.jobs.f1",
                "$KV.fleet.leader",
                "drain",
                "workers",
                # Other streams, consumers, and changes of the streams.
                "$JS.API.DIRECT.GET.INBOX",
                "$JS.API.DIRECT.GET.KV_fleet.$KV.fleet.leader",
                "$JS.API.DIRECT.GET.OBJECTS",
                "$JS.API.STREAM.MSG.GET.KV_jobs",
                "$JS.API.CONSUMER.CREATE.EVENTS.x.evt.>",
                "$JS.API.STREAM.PURGE.EVENTS",
                "$JS.API.STREAM.DELETE.KV_jobs",
                "$SYS.REQ.CLAIMS.UPDATE",
            ]
            assert await submitter.refusals(*foreign) == []
            own = ["submit.s1.f2", "cancel.s1.f1", "ask.s1.jobs", "obj.s1.x.0"]
            assert await submitter.refusals(*own) == own


@with_every_server
@aio
async def test_no_chunk_of_an_object_can_be_replaced_or_read_without_its_reference(
    rig: Rig,
) -> None:
    async with server(rig):
        member, worker = (
            rig.join("submitter", "s1", team="red"),
            rig.join("worker", "w1", team="red"),
        )
        async with FleetConnection(member) as submitter, FleetConnection(worker) as evil:
            ref = await put_object(submitter, b"the bundle of s1")
            # A request may have wildcards, so the id of an object is not a secret.
            wanted = subjects.direct_get(subjects.OBJECTS, subjects.chunk("s1", "*", "*"))
            found = await evil.request(wanted)
            assert found.headers is not None and ref.id in found.headers["Nats-Subject"]
            assert b"bundle" not in found.data
            # Not even its owner can write it again.
            with pytest.raises(FleetError):
                await submitter.store(subjects.chunk("s1", ref.id, 0), b"another")
            assert await get_object(evil, ref) == b"the bundle of s1"


@with_every_server
@aio
async def test_no_reply_of_the_server_or_the_coordinator_reaches_what_a_member_may_not_write(
    rig: Rig,
) -> None:
    """The server checks no rights on the subject that a message names for its reply."""
    async with server(rig) as keys:
        worker, other = (rig.join("worker", name, team="red") for name in ("w1", "w2"))
        member = rig.join("submitter", "s1", team="red")
        async with (
            coordinator(keys, "red") as owner,
            FleetConnection(worker) as evil,
            FleetConnection(other) as victim,
            FleetConnection(member) as reader,
        ):
            heard: list[tuple[str, str]] = []

            async def answer(message: Msg) -> None:
                heard.append((message.subject, message.data.decode()))
                if message.reply:
                    await owner.publish(message.reply, b"{}")

            for subject in (subjects.BEATS, subjects.QUESTIONS, subjects.JOINS, subjects.DRAIN):
                await owner.subscribe(subject, answer)
            await owner.store(subjects.job_record("f1"), b"record")
            await owner.store("$KV.fleet.leader", b"leader")
            await evil.store(subjects.chunk("w1", "forged", 0), b"forged")
            await victim.store(subjects.events("w2", "f0", 1), b"event")
            before = await stored(owner)
            targets = (
                subjects.job_record("f1"),
                "$KV.fleet.leader",
                subjects.result("w2", "f1", 1),
                subjects.submission("s1", "f9"),
                subjects.cancellation("s1", "f1"),
                subjects.chunk("w2", "x", 0),
                subjects.beat("w2"),
                subjects.question("s1", "jobs"),
                subjects.join("join-1"),
                subjects.DRAIN,
                "$JS.API.STREAM.DELETE.KV_jobs",
                "$JS.API.STREAM.PURGE.KV_jobs",
                "$JS.API.CONSUMER.DELETE.INBOX.coordinator",
            )
            read = subjects.direct_get(subjects.OBJECTS, subjects.chunk("w1", "forged", 0))
            ask = subjects.direct_get(subjects.EVENTS)
            for target in targets:
                # What was stored before, a heartbeat and its answer, and events of another worker.
                await evil.client.publish(read, reply=target)
                await evil.client.publish(subjects.beat("w1"), b"beat", reply=target)
                await reader.client.publish(ask, b'{"seq":1,"next_by_subj":"evt.>"}', reply=target)
            # The answer to a message that is stored.
            for number, target in enumerate(targets):
                chunk = subjects.chunk("w1", "x", number)
                await evil.client.publish(chunk, b"", reply=target)
            await evil.flush()
            await reader.flush()
            # A request that is answered shows that the ones before it were processed.
            await evil.request(subjects.beat("w1"), b"last")
            await reader.last(subjects.JOBS, subjects.job_record("f1"))
            after = await stored(owner)
            assert after == before | {"OBJECTS": before["OBJECTS"] + len(targets)}
            assert {subject for subject, _ in heard} == {"beat.w1"}
            for key, value in (
                (subjects.job_record("f1"), b"record"),
                ("$KV.fleet.leader", b"leader"),
            ):
                stream = subjects.JOBS if "jobs" in key else subjects.FLEET
                found = await owner.last(stream, key)
                assert found is not None and found.data == value


@with_every_server
@aio
async def test_no_member_can_have_the_message_of_another_dropped_as_a_duplicate(rig: Rig) -> None:
    async with server(rig) as keys:
        worker, other = (rig.join("worker", name, team="red") for name in ("w1", "w2"))
        async with (
            coordinator(keys, "red") as owner,
            FleetConnection(worker) as evil,
            FleetConnection(other) as victim,
        ):
            for guess in ("f1", "f1.1", "f1.1.result", "f1.1.started", "f1.1.1"):
                for subject in (subjects.result("w1", "x", 1), subjects.events("w1", "x", 1)):
                    headers = {"Nats-Msg-Id": guess}
                    await evil.request(subject, b"guess", headers=headers)
            report, event = subjects.result("w2", "f1", 1), subjects.events("w2", "f1", 1)
            await victim.store(report, b"genuine")
            await victim.store(event, b"genuine")
            for stream, subject in ((subjects.INBOX, report), (subjects.EVENTS, event)):
                found = await owner.last(stream, subject)
                assert found is not None and found.data == b"genuine"


async def stored(owner: FleetConnection) -> dict[str, int]:
    """How many messages each stream has."""
    found = {}
    for config in stream_configs(-1):
        assert config.name is not None
        info = await owner.client.jetstream().stream_info(config.name)
        found[config.name] = info.state.messages
    return found


@with_every_server
@aio
async def test_a_worker_may_subscribe_only_to_its_own_jobs_and_replies(rig: Rig) -> None:
    async with server(rig):
        credential = rig.join("worker", "w1", team="red")

        async def ignore(message: object) -> None: ...

        async with Listening(credential) as worker:
            await worker.subscribe("job.w1", ignore)
            assert worker.heard == []
        for subject in ("job.w2", "job.*", ">", "evt.>", "beat.*", "_INBOX_w2.>", "$KV.jobs.*"):
            async with Listening(credential) as worker, asyncio.timeout(REFUSED_TIMEOUT):
                await worker.subscribe(subject, ignore)
                await worker.more.wait()
                assert "violation for subscription" in worker.heard[0], subject


@with_every_server
@aio
async def test_a_member_cannot_read_the_data_of_another_team(rig: Rig) -> None:
    async with server(rig) as keys:
        member = rig.join("submitter", "s1", team="blue")
        async with coordinator(keys, "red") as red, FleetConnection(member) as blue:
            await red.store(subjects.job_record("f1"), b"{}")
            await red.store(subjects.events("w1", "f1", 1), b"{}")
            assert await blue.last(subjects.JOBS, subjects.job_record("f1")) is None
            assert await blue.after(subjects.EVENTS, 1, "evt.*.f1.*") is None


@with_every_server
@aio
async def test_a_revoked_member_is_disconnected_and_cannot_reconnect(rig: Rig) -> None:
    async with server(rig):
        credential = rig.join("worker", "w1", team="red")
        async with FleetConnection(credential) as worker:
            keys, team = rig.folder.revoke("w1", team="red", now=int(time.time()))
            await tell_server(keys, team)
            async with asyncio.timeout(10):
                await worker.wait_closed()
        with pytest.raises(FleetRefused):
            async with FleetConnection(credential):
                pass
    # The revocation survives a restart of the server.
    async with server(rig):
        with pytest.raises(FleetRefused):
            async with FleetConnection(credential):
                pass


@with_every_server
@aio
async def test_a_member_that_is_revoked_while_it_is_not_connected_stops_trying(
    rig: Rig,
) -> None:
    async with AsyncExitStack() as stack:
        async with server(rig):
            credential = rig.join("worker", "w1", team="red")
            worker = await stack.enter_async_context(FleetConnection(credential))
        rig.folder.revoke("w1", team="red", now=int(time.time()))
        async with server(rig), asyncio.timeout(30):
            await worker.wait_closed()
            with pytest.raises(FleetRefused):
                await worker.store(subjects.events("w1", "f1", 1), b"{}")
    # The refused reconnects have left no sockets, which would be a warning.
    gc.collect()


@with_every_server
@aio
async def test_an_expired_token_closes_the_connection(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.fleet.team.TOKEN_DAYS", 3 / 24 / 3600)
    async with server(rig):
        credential = short_lived(rig.join("worker", "w1", team="red"))
        async with FleetConnection(credential) as worker, asyncio.timeout(20):
            await worker.wait_closed()


def short_lived(credential: MemberCredential) -> MemberCredential:
    assert credential.expires_at is not None and credential.expires_at < time.time() + 10
    return credential


@with_every_server
@aio
async def test_with_tls_plain_clients_are_rejected_and_the_certificate_is_verified(
    rig: Rig, tmp_path: Path
) -> None:
    async with server(rig, tls=True) as keys:
        credential = rig.join("worker", "w1", team="red")
        assert credential.urls[0].startswith("tls://")
        async with FleetConnection(credential):
            pass
        plain = msgspec.structs.replace(
            credential, urls=(credential.urls[0].replace("tls:", "nats:"),), authority=""
        )
        with pytest.raises((FleetRefused, FleetUnreachable)):
            async with FleetConnection(plain):
                pass
        # The server says nothing before the connection is encrypted: a machine in between could
        # change the first message, and ask the client for a plain connection.
        host, _, port = keys.listen.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b'CONNECT {"tls_required":false}\r\nPING\r\n')
        async with asyncio.timeout(REFUSED_TIMEOUT):
            assert not (await reader.read()).startswith((b"INFO", b"PONG", b"+OK"))
        writer.close()
        await writer.wait_closed()
        other = FleetFolder(tmp_path / "other")
        other.prepare()
        assert keys.tls is not None
        from dragoman.fleet.certificates import new_certificates

        strange = new_certificates(["127.0.0.1"], now=time.time()).authority
        with pytest.raises(FleetRefused, match="certificate"):
            async with FleetConnection(msgspec.structs.replace(credential, authority=strange)):
                pass


def test_a_non_loopback_address_always_uses_tls() -> None:
    assert wants_tls(ServerOptions(host="0.0.0.0", port=4222))
    assert wants_tls(ServerOptions(host="192.0.2.1", port=4222))
    assert not wants_tls(ServerOptions(host="127.0.0.1", port=4222))
    with pytest.raises(UsageError, match="TLS is required"):
        wants_tls(ServerOptions(host="0.0.0.0", port=4222, tls=False))


@with_every_server
@aio
async def test_a_full_server_rejects_submissions_and_keeps_what_it_accepted(rig: Rig) -> None:
    async with server(rig, disk_size=32 * 1024 * 1024) as keys:
        member = rig.join("submitter", "s1", team="red")
        prompt = "write 0 x" + "y" * 100_000
        accepted: list[str] = []
        async with FleetConnection(member) as submitter:
            bundle = await put_object(submitter, b"z" * 1000)
            spec = JobSpec(role="execute", prompt=prompt, bundle=bundle)
            jobs = (new_job_id() for _ in range(1000))
            with pytest.raises(FleetFull, match="full") as caught:
                await submit(submitter, spec, jobs, on_stored=accepted.append)
        assert caught.value.retryable
        async with coordinator(keys, "red") as owner:
            info = await owner.client.jetstream().stream_info("INBOX")
            assert info.state.messages == len(accepted) > 0


@aio
async def test_members_have_to_join_again_after_the_names_of_the_server_have_changed(
    rig: Rig,
) -> None:
    options = ServerOptions(
        host="127.0.0.1", port=0, names=("127.0.0.1",), tls=True, program=rig.server_program
    )
    async with FleetServer(rig.folder, options) as first:
        assert not first.new_certificate
        credential = rig.join("worker", "w1")
    async with AsyncExitStack() as stack:
        async with FleetServer(rig.folder, options) as again:
            assert not again.new_certificate
            open_before = await stack.enter_async_context(FleetConnection(credential))
        changed = msgspec.structs.replace(options, names=("127.0.0.1", "localhost"))
        async with FleetServer(rig.folder, changed) as other:
            assert other.new_certificate
            with pytest.raises(FleetRefused, match="certificate") as caught:
                async with FleetConnection(credential):
                    pass
            assert not caught.value.retryable
            # A worker that was connected ends as well, instead of reconnecting without end.
            async with asyncio.timeout(TIMEOUT):
                await open_before.wait_closed()
            assert "certificate" in open_before.refused


@aio
async def test_a_second_server_does_not_start_on_the_data_of_a_running_one(rig: Rig) -> None:
    async with server(rig):
        with pytest.raises(UsageError, match="is running already"):
            async with server(rig):
                pass
    async with server(rig):
        pass
