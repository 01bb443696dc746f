"""Server errors as our exceptions. Connections are tested with a real server, in tests/fleet."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from pathlib import Path
from ssl import SSLCertVerificationError, SSLEOFError
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nats.errors import (
    AuthorizationError,
    BadSubjectError,
    BadSubscriptionError,
    MaxPayloadError,
    NoRespondersError,
    SlowConsumerError,
    StaleConnectionError,
)
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout

from dragoman.errors import FleetConflict, FleetError, FleetFull, FleetRefused, FleetUnreachable
from dragoman.fleet import connection as connection_module
from dragoman.fleet.certificates import new_certificates
from dragoman.fleet.connection import (
    MAX_REFUSALS,
    FleetConnection,
    StoredMessage,
    _is_of_interest,
    _store_failed,
    _stored,
)
from dragoman.fleet.credentials import MemberCredential
from dragoman.fleet.nkeys import new_key
from dragoman.fleet.team import Access
from dragoman.transports.tls import TlsFiles
from tests.aio import aio


@pytest.mark.parametrize(
    ("code", "kind"),
    [(10071, FleetConflict), (10077, FleetFull), (10047, FleetFull), (10023, FleetFull)],
)
def test_a_server_error_code_maps_to_its_exception(code: int, kind: type[FleetError]) -> None:
    assert type(_store_failed({"err_code": code, "description": "why"}, "a.b")) is kind


def test_an_unknown_server_error_keeps_its_description() -> None:
    assert "why" in str(_store_failed({"err_code": 1, "description": "why"}, "a.b"))


class FakeSubscription:
    """Stands in for a subscription of nats-py."""

    def __init__(self, client: FakeClient, subject: str) -> None:
        self._client = client
        self._subject = subject

    async def unsubscribe(self) -> None:
        if self._client.handlers.pop(self._subject, None) is None:
            raise BadSubscriptionError


class FakeClient:
    """Stands in for the client of nats-py."""

    is_connected = False

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.subscriptions: dict[str, FakeSubscription] = {}
        self.flush_failure: Exception | None = None
        self.answers: list[Exception | bytes] = []
        """What requests get, one after the other; the last one again and again."""
        self.headers: list[dict[str, str]] = []
        """Of each request."""
        self.answer_headers: dict[str, str] = {}
        self.closing = asyncio.Event()
        self.closed = False
        self._reconnection_task = None

    async def request(
        self, subject: str, data: bytes, *, timeout: float, headers: dict[str, str]
    ) -> Any:
        self.headers.append(headers)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(data=answer, headers=self.answer_headers)

    async def subscribe(self, subject: str, *, cb: Any) -> FakeSubscription:
        self.handlers[subject] = cb
        self.subscriptions[subject] = FakeSubscription(self, subject)
        return self.subscriptions[subject]

    async def close(self) -> None:
        self.closing.set()
        await asyncio.sleep(0)
        self.closed = True

    async def flush(self, timeout: int) -> None:
        if self.flush_failure is not None:
            raise self.flush_failure


class FakeConnection(FleetConnection):
    """A connection of a coordinator, or of a `member`, with scripted answers."""

    def __init__(self, *answers: Exception | bytes, member: bool = False) -> None:
        seed = new_key("user").seed
        super().__init__(
            MemberCredential(team="t", name="s1", kind="submitter", urls=(), seed=seed, token="t")
            if member
            else Access(name="w1", urls=(), seed=seed, token="t")
        )
        self.fake = FakeClient()
        self.fake.answers.extend(answers)
        client: Any = self.fake
        self._client = client

    async def report(self, error: Exception) -> None:
        """What nats-py does with an error."""
        await self._failed(error)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "RETRY_INTERVAL", 0.0)


@aio
@pytest.mark.usefixtures("at_once")
async def test_a_message_is_resent_with_the_same_id_until_it_is_stored() -> None:
    connection = FakeConnection(NatsTimeout(), NoRespondersError(), b'{"seq": 7}')
    assert await connection.store("evt.w1.f1.1", b"x", timeout=60.0) == 7
    first, *again = connection.fake.headers
    assert len(first["Nats-Msg-Id"]) == 32 and again == [first, first]


@aio
async def test_a_message_with_a_revision_is_sent_once() -> None:
    connection = FakeConnection(NatsTimeout(), b'{"seq": 7}')
    with pytest.raises(FleetUnreachable) as caught:
        await connection.store("$KV.jobs.f1", b"x", revision=3, timeout=60.0)
    assert caught.value.may_have_run
    assert connection.fake.headers == [{"Nats-Expected-Last-Subject-Sequence": "3"}]
    assert await connection.store("$KV.jobs.f1", b"x", revision=3) == 7


@aio
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("answers", "may_have_run"),
    [
        ([NatsTimeout()], True),
        ([ConnectionResetError()], True),
        ([NoRespondersError()], False),
        # The first one may have been stored.
        ([NatsTimeout(), NoRespondersError()], True),
    ],
)
async def test_an_error_says_whether_the_message_may_have_been_stored(
    answers: list[Exception], may_have_run: bool
) -> None:
    connection = FakeConnection(*answers)
    with pytest.raises(FleetUnreachable) as caught:
        # Long enough for a second try, which follows at once.
        await connection.store("submit.s1.f1", b"x", timeout=0.05)
    assert caught.value.may_have_run is may_have_run
    assert caught.value.retryable


@aio
@pytest.mark.parametrize("failure", [MaxPayloadError(), BadSubjectError()])
async def test_a_message_that_the_server_would_never_accept_is_not_sent_again(
    failure: Exception,
) -> None:
    connection = FakeConnection(failure)
    with pytest.raises(FleetError, match=r"submit\.s1\.f1") as caught:
        await connection.store("submit.s1.f1", b"x", timeout=60.0)
    assert type(caught.value) is FleetError
    assert not caught.value.retryable and not caught.value.may_have_run
    assert len(connection.fake.headers) == 1


@aio
async def test_a_message_without_the_right_to_send_it_is_refused_and_not_sent_again() -> None:
    connection = FakeConnection(NatsTimeout())
    await connection.report(NatsError('nats: permissions violation for publish to "submit.s1.f1"'))
    with pytest.raises(FleetRefused, match="permissions violation") as caught:
        await connection.store("submit.s1.f1", b"x", timeout=60.0)
    assert not caught.value.retryable and not caught.value.may_have_run
    assert len(connection.fake.headers) == 1
    # The right to send another one is not missing.
    with pytest.raises(FleetUnreachable):
        await connection.request("ask.s1.jobs")


@aio
async def test_a_subscription_without_the_right_to_it_is_refused() -> None:
    connection = FakeConnection()
    text = 'nats: permissions violation for subscription to "job.w1"'
    await connection.report(NatsError(text))
    with pytest.raises(FleetRefused, match="permissions violation"):
        await connection.subscribe("job.w1", no_handler)
    assert not connection.fake.handlers
    await connection.subscribe("job.w2", no_handler)


@aio
@pytest.mark.parametrize("changes", [True, False])
async def test_only_a_request_with_an_effect_may_have_had_it(changes: bool) -> None:
    with pytest.raises(FleetUnreachable) as caught:
        await FakeConnection(NatsTimeout()).request("drain", changes=changes)
    assert caught.value.may_have_run is changes
    with pytest.raises(FleetUnreachable) as caught:
        await FakeConnection(NoRespondersError()).request("drain", changes=changes)
    assert not caught.value.may_have_run


@aio
async def test_an_unanswered_read_has_no_effect() -> None:
    with pytest.raises(FleetUnreachable) as caught:
        await FakeConnection(NatsTimeout()).last("KV_jobs", "$KV.jobs.f1")
    assert not caught.value.may_have_run


@aio
@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'{"seq": "x"}', b"\xff"])
async def test_after_an_undecodable_acknowledgement_the_message_may_be_stored(
    answer: bytes,
) -> None:
    with pytest.raises(FleetError, match="invalid ") as caught:
        await FakeConnection(answer).store("submit.s1.f1", b"x")
    assert caught.value.may_have_run


@aio
@pytest.mark.parametrize("answer", [b"", b"[]", b'{"message": {"seq": 1}}', b"\xff"])
async def test_an_undecodable_reply_of_the_leader_raises_a_fleet_error(
    answer: bytes,
) -> None:
    with pytest.raises(FleetError, match="invalid "):
        await FakeConnection(answer).last("KV_jobs", "$KV.jobs.f1")


@aio
@pytest.mark.parametrize(
    "headers", [{}, {"Nats-Subject": "a.b"}, {"Nats-Subject": "a.b", "Nats-Sequence": "x"}]
)
async def test_a_stored_message_without_headers_raises_a_fleet_error(
    headers: dict[str, str],
) -> None:
    connection = FakeConnection(b"data", member=True)
    connection.fake.answer_headers = headers
    with pytest.raises(FleetError, match="without a subject"):
        await connection.last("KV_jobs", "$KV.jobs.f1")


@aio
async def test_a_rejected_message_is_not_stored() -> None:
    full = b'{"error": {"err_code": 10077, "description": "maximum bytes exceeded"}}'
    with pytest.raises(FleetFull) as caught:
        await FakeConnection(full).store("evt.w1.f1.1", b"x")
    assert not caught.value.may_have_run


async def no_handler(message: object) -> None: ...


@aio
async def test_a_handler_error_is_logged_and_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = FakeConnection()
    failures: list[Exception] = []

    async def handler(message: object) -> None:
        raise PermissionError(13, "no access", "fleet.json")

    await connection.subscribe("beat.*", handler, on_failure=failures.append)
    await connection.fake.handlers["beat.*"](SimpleNamespace(subject="beat.w1"))
    (failure,) = failures
    assert isinstance(failure, PermissionError)
    (record,) = caplog.records
    assert record.levelname == "ERROR" and "beat.w1" in record.getMessage()
    assert record.exc_info is not None and record.exc_info[1] is failure
    assert not connection.refused


@aio
async def test_a_subscription_that_ends_leaves_nothing_in_the_connection() -> None:
    connection = FakeConnection()
    await connection.subscribe("workers", no_handler)
    unsubscribe = await connection.subscribe("job.w1", no_handler)
    assert len(connection._on_dropped) == 2
    for _ in range(2):  # The second time, nothing is left to end.
        await unsubscribe()
        assert list(connection.fake.handlers) == ["workers"]
        assert [cast(Any, one) for one in connection._on_dropped] == [
            connection.fake.subscriptions["workers"]
        ]


@aio
async def test_a_subscription_that_the_server_does_not_confirm_is_ended() -> None:
    connection = FakeConnection()
    connection.fake.flush_failure = NatsTimeout()
    with pytest.raises(FleetUnreachable):
        await connection.subscribe("job.w1", no_handler)
    assert not connection.fake.handlers and not connection._on_dropped


@aio
async def test_a_pong_for_a_caller_that_gave_up_does_not_stop_the_connection() -> None:
    access = Access(name="w1", urls=(), seed=new_key("user").seed, token="t")
    client = FleetConnection(access).client
    gone, waiting = (asyncio.get_running_loop().create_future() for _ in range(2))
    gone.cancel()
    client._pongs = [gone, waiting]
    for _ in range(2):
        await client._process_pong()
    assert waiting.result() is True and client._pongs == []


@aio
async def test_a_message_that_is_dropped_is_logged_and_reported_to_its_subscriber(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = FakeConnection()
    dropped: list[str] = []
    for subject in ("job.w1", "workers"):
        await connection.subscribe(subject, no_handler, on_dropped=partial(dropped.append, subject))
    sub: Any = connection.fake.subscriptions["job.w1"]
    for _ in range(5):
        await connection.report(SlowConsumerError(subject="job.w1", reply="", sid=1, sub=sub))
    # A reply to a request has no subscriber of its own.
    await connection.report(SlowConsumerError(subject="_INBOX", reply="", sid=2, sub=cast(Any, "")))
    assert dropped == ["job.w1"] * 5
    assert [one.levelname for one in caplog.records] == ["WARNING"] * 3
    assert "job.w1" in caplog.records[0].getMessage() and "4 so far" in caplog.text


@aio
@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (NatsError("nats: permissions violation for publish to job"), True),
        (NatsError("nats: User Authentication Expired"), True),
        (AuthorizationError(), True),
        (StaleConnectionError(), False),
        (SSLCertVerificationError(1, "certificate has expired"), True),
        (SSLEOFError(8, "EOF occurred in violation of protocol"), False),
        (OSError("host has expired"), False),
    ],
)
async def test_only_errors_about_credentials_rights_or_certificates_count_as_refusals(
    error: Exception, refused: bool
) -> None:
    connection = FakeConnection()
    await connection.report(error)
    assert bool(connection.refused) is refused
    for _ in range(MAX_REFUSALS):
        await connection.report(error)
    # Otherwise it would not stop trying.
    assert connection.closed is refused


@aio
async def test_a_cancelled_close_still_closes_the_connection() -> None:
    connection = FakeConnection()
    async with asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(connection.__aexit__(None, None, None))
        await connection.fake.closing.wait()
        leaving.cancel()
    assert leaving.cancelled() and connection.fake.closed


def test_the_end_of_a_tls_connection_is_not_worth_a_warning() -> None:
    def told(text: str) -> logging.LogRecord:
        return logging.LogRecord("asyncio", logging.WARNING, "", 0, text, (), None)

    noise = "returning true from eof_received() has no effect when using ssl"
    assert not _is_of_interest(told(noise))
    assert _is_of_interest(told("socket.send() raised exception."))


def test_a_status_header_set_by_a_member_is_ignored() -> None:
    headers = {"Status": "404", "Nats-Subject": "evt.w1.f1.1", "Nats-Sequence": "7"}
    found = _stored(SimpleNamespace(headers=headers, data=b"x"))  # type: ignore[arg-type]
    assert found == StoredMessage("evt.w1.f1.1", 7, b"x")
    missing = SimpleNamespace(headers={"Status": "404"}, data=b"")
    assert _stored(missing) is None  # type: ignore[arg-type]
    with pytest.raises(FleetUnreachable, match="cannot read from"):
        _stored(SimpleNamespace(headers={"Status": "408"}, data=b""))  # type: ignore[arg-type]


@aio
async def test_an_unreachable_server_is_named_in_the_error() -> None:
    access = Access(name="w1", urls=("nats://127.0.0.1:1",), seed=new_key("user").seed, token="t")
    with pytest.raises(FleetUnreachable, match="127.0.0.1:1"):
        async with FleetConnection(access):
            pass


@aio
async def test_a_server_with_another_certificate_is_refused(
    tmp_path: Path,
) -> None:
    here = new_certificates(["127.0.0.1"], now=time.time())
    expected = new_certificates(["127.0.0.1"], now=time.time()).authority
    files = TlsFiles(certificate=tmp_path / "crt", key=tmp_path / "key")
    files.certificate.write_text(here.certificate)
    files.key.write_text(here.key)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=files.context())
    url = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        for urls in (url,), (url, "tls://127.0.0.1:1"):
            access = Access(
                name="w1", urls=urls, seed=new_key("user").seed, token="t", authority=expected
            )
            with pytest.raises(FleetRefused, match="certificate") as caught:
                async with FleetConnection(access):
                    pass
            assert not caught.value.retryable
            assert isinstance(caught.value.__cause__, SSLCertVerificationError)
