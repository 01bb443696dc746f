"""A link to a host: reconnects after a lost connection, but not after a permanent failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dragoman.broker import host_protocol as protocol
from dragoman.broker.client.ssh import HostConnection, connected
from dragoman.broker.client.ssh_command import Host
from dragoman.broker.error_codec import refusal
from dragoman.broker.protocol import QuestionAnswer, ShownQuestion
from dragoman.config.schema import HostSettings
from dragoman.errors import (
    CallTimeout,
    ConnectionLost,
    HostUnavailable,
    InvalidAnswer,
    Overflow,
    RemoteError,
)
from dragoman.events.model import MessageDelta
from dragoman.rpc import Connection, End
from dragoman.rpc.responder import Ignore
from dragoman.rpc.tasks import together
from dragoman.runs import host_link
from dragoman.runs.host_link import FollowedJob, HostLink
from dragoman.runs.job_events import EventCursor
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Request
from tests.aio import aio

BOX = Host("box", HostSettings())


class Opened:
    """An open connection."""

    def __init__(self, version: str = "0") -> None:
        self.greeting = protocol.Greeting(protocol=protocol.PROTOCOL, version=version)
        self.connection = self
        self.failure: ConnectionLost | None = None
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True


def link_with(
    monkeypatch: pytest.MonkeyPatch, *outcomes: Any, timeout: float = 60.0
) -> tuple[HostLink, list[str]]:
    left = list(outcomes)

    async def open_host(host: Host, **options: Any) -> Any:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(host_link, "open_host", open_host)
    monkeypatch.setattr(host_link, "FIRST_PAUSE", 0.0)
    notices: list[str] = []
    return HostLink(BOX, on_notice=notices.append, timeout=timeout), notices


class Work:
    """Loses the connection a number of times, then returns."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.on: list[Any] = []

    async def __call__(self, opened: Any) -> str:
        self.on.append(opened)
        if len(self.on) <= self.losses:
            opened.failure = ConnectionLost("gone")
            raise ConnectionLost("gone")
        return "done"


@aio
async def test_work_continues_over_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Opened(), Opened()
    away = HostUnavailable("box", "away", passing=True)
    link, notices = link_with(monkeypatch, first, away, second)
    work = Work(losses=1)
    assert await link.keep_trying(work) == "done"
    assert work.on == [first, second]
    assert first.closed
    assert "was lost; the work there continues" in notices[-2]
    assert "reconnected to box" in notices[-1]
    await link.aclose()
    assert second.closed


@aio
async def test_the_first_connection_is_tried_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    link, _ = link_with(monkeypatch, HostUnavailable("box", "away", passing=True))
    with pytest.raises(HostUnavailable, match="away"):
        await link.keep_trying(Work(0))


@aio
async def test_a_lost_connection_that_a_reader_noticed_is_reopened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Opened(), Opened()
    away = HostUnavailable("box", "away", passing=True)
    link, notices = link_with(monkeypatch, first, away, away, second)
    await link.keep_trying(Work(0))
    first.failure = ConnectionLost("gone")
    assert await link.keep_trying(Work(0)) == "done"
    assert "reconnected to box" in notices[-1]


@aio
async def test_a_permanent_failure_ends_the_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, _ = link_with(monkeypatch, Opened(), HostUnavailable("box", "other key"))
    with pytest.raises(HostUnavailable, match="other key"):
        await link.keep_trying(Work(1))


@aio
async def test_reconnecting_stops_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    away = [HostUnavailable("box", "away", remedy="look", passing=True) for _ in range(100)]
    link, _ = link_with(monkeypatch, Opened(), *away, timeout=20.0)
    monkeypatch.setattr(host_link, "time", Clock())
    with pytest.raises(HostUnavailable) as raised:
        await link.keep_trying(Work(1))
    assert (str(raised.value), raised.value.remedy) == ("box: cannot reconnect: away", "look")


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize(
    "away", [HostUnavailable("box", "away", passing=True), HostUnavailable("box", "other key")]
)
@aio
async def test_the_error_says_whether_a_request_was_sent_before_the_connection_was_lost(
    monkeypatch: pytest.MonkeyPatch, away: HostUnavailable, sent: bool
) -> None:
    timeout = -1.0 if away.retryable else 60.0
    link, _ = link_with(monkeypatch, Opened(), away.fresh(), timeout=timeout)

    async def work(opened: Any) -> None:
        opened.failure = lost = ConnectionLost("gone")
        lost.may_have_run = sent
        raise lost

    with pytest.raises(HostUnavailable) as refused:
        await link.keep_trying(work)
    assert refused.value.may_have_run is sent


@aio
async def test_a_problem_on_the_host_keeps_whether_the_request_may_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, _ = link_with(monkeypatch, Opened())

    async def work(opened: Any) -> None:
        raise HostUnavailable("box", "the disk there is full", may_have_run=True)

    with pytest.raises(HostUnavailable) as refused:
        await link.keep_trying(work)
    assert refused.value.may_have_run


class Clock:
    """A clock that advances by a second with each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@aio
async def test_a_link_that_was_closed_does_not_connect_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, _ = link_with(monkeypatch, first := Opened(), Opened())
    await link.connection()
    await link.aclose()
    assert first.closed
    work = Work(losses=0)
    with pytest.raises(HostUnavailable, match="has closed its connection"):
        await link.keep_trying(work)
    assert work.on == []


@aio
async def test_a_connection_that_opens_while_its_link_is_closed_is_closed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, _ = link_with(monkeypatch)
    opened = Opened()

    async def open_host(host: Host, **options: Any) -> Any:
        await link.aclose()
        return opened

    monkeypatch.setattr(host_link, "open_host", open_host)
    with pytest.raises(HostUnavailable, match="has closed its connection"):
        await link.connection()
    assert opened.closed


@aio
async def test_a_host_that_drops_each_connection_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, notices = link_with(monkeypatch, *(Opened() for _ in range(100)), timeout=20.0)
    monkeypatch.setattr(host_link, "time", Clock())
    work = Work(losses=100)
    with pytest.raises(HostUnavailable, match="cannot reconnect: gone"):
        await link.keep_trying(work)
    assert 2 < len(work.on) < 20
    assert len([text for text in notices if "was lost" in text]) == len(work.on)
    await link.aclose()
    assert all(opened.closed for opened in work.on)


@aio
async def test_after_a_long_connection_the_full_time_to_reconnect_is_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, _ = link_with(monkeypatch, *(Opened() for _ in range(100)), timeout=20.0)
    monkeypatch.setattr(host_link, "time", Clock())
    monkeypatch.setattr(host_link, "STEADY_INTERVAL", 0.5)
    assert await link.keep_trying(Work(losses=99)) == "done"
    await link.aclose()


@aio
async def test_the_pause_increases_until_a_message_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_link, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(host_link, "MAX_PAUSE", 0.003)
    retries = host_link.Retries()
    assert not retries.failing
    pauses = []
    for _ in range(3):
        assert retries.fail()
        await retries.wait()
        pauses.append(retries.pause)
    assert pauses == [0.002, 0.003, 0.003] and retries.failing
    retries.reset()
    assert (retries.pause, retries.failing) == (0.001, False)


@aio
async def test_two_requests_on_a_lost_connection_reconnect_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Opened(), Opened()
    link, notices = link_with(monkeypatch, first, second)
    both = asyncio.Barrier(2)

    async def work(opened: Any) -> str:
        if opened is first:
            await both.wait()
            first.failure = ConnectionLost("gone")
            raise ConnectionLost("gone")
        return "done"

    assert await together(link.keep_trying(work), link.keep_trying(work)) == ("done", "done")
    assert not second.closed
    assert len([text for text in notices if "was lost" in text]) == 1
    await link.aclose()


@aio
async def test_another_version_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    link, notices = link_with(monkeypatch, Opened("9.9"), Opened("9.9"))
    await link.keep_trying(Work(1))
    await link.aclose()
    assert [text for text in notices if "9.9" in text] == [notices[0]]
    assert "hosts bootstrap box" in notices[0]


@aio
async def test_a_line_up_to_the_cursor_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    link, _ = link_with(monkeypatch)
    followed = FollowedJob(link, "j-1", after=EventCursor("s-1", 5))
    assert followed._is_known("s-1", 5) and followed._is_known("s-1", 1)
    assert not followed._is_known("s-1", 6)
    assert not followed._is_known("s-2", 1)
    between = FollowedJob(link, "j-1", after=EventCursor("s-1", 5, 1))
    assert between._is_known("s-1", 4) and not between._is_known("s-1", 5)


# -- following a job

Answer = Callable[[Connection, protocol.Follow], Awaitable[Any]]


class Far(Ignore):
    """The remote side of one connection: `follow` answers the request to follow a job."""

    def __init__(self, follow: Answer) -> None:
        self._follow = follow
        self.answers: list[QuestionAnswer] = []

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    async def request(self, request: Request) -> Any:
        if request.method == protocol.FOLLOW:
            asked = msgspec.json.decode(request.params, type=protocol.Follow)
            return await self._follow(self._connection, asked)
        assert request.method == protocol.ANSWER
        self.answers.append(msgspec.json.decode(request.params, type=QuestionAnswer))
        return await self.answered()

    async def answered(self) -> Any:
        return {"answered": True}


@asynccontextmanager
async def followed_by(
    monkeypatch: pytest.MonkeyPatch,
    *follow: Answer | Far,
    ask: Any = None,
    timeout: float = 60.0,
) -> AsyncIterator[tuple[FollowedJob, list[str], list[Far]]]:
    """A job that is followed over one connection for each function."""
    fars = [each if isinstance(each, Far) else Far(each) for each in follow]
    servers: list[Connection] = []
    left = list(fars)

    async def open_host(host: Host, **options: Any) -> HostConnection:
        near, far = memory_pair()
        servers.append(Connection(far, End.AGENT, left.pop(0), trace=False))
        servers[-1].start()
        return connected(host, near)

    monkeypatch.setattr(host_link, "open_host", open_host)
    monkeypatch.setattr(host_link, "FIRST_PAUSE", 0.0)
    notices: list[str] = []
    link = HostLink(BOX, on_notice=notices.append, timeout=timeout)
    try:
        async with asyncio.timeout(20):
            yield FollowedJob(link, "j-1", ask=ask), notices, fars
    finally:
        await link.aclose()
        for server in servers:
            await server.aclose()


def said(text: str) -> dict[str, Any]:
    """A stored line."""
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"sessionId": "s", "update": update}


def lines(first: int, *texts: str) -> dict[str, Any]:
    return {"key": "k", "sessionId": "s", "first": first, "lines": [said(each) for each in texts]}


ENDED = {
    "id": "j-1",
    "sessionKey": "k",
    "peer": "p",
    "root": "/w",
    "state": "ended",
    "createdAt": 1.0,
}


async def texts_of(followed: FollowedJob) -> list[str]:
    return [event.text async for _, event in followed.events() if isinstance(event, MessageDelta)]


@aio
async def test_an_undecodable_end_of_a_job_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def follow(connection: Connection, asked: protocol.Follow) -> Any:
        return {**ENDED, "state": "a state of a newer version"}

    async with followed_by(monkeypatch, follow) as (followed, _, _):
        with pytest.raises(InvalidAnswer, match="response to _dragoman/host/follow") as refused:
            await texts_of(followed)
    assert refused.value.may_have_run
    assert "hosts bootstrap box" in refused.value.remedy


@aio
async def test_undecodable_lines_are_an_error_after_the_lines_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def follow(connection: Connection, asked: protocol.Follow) -> Any:
        connection.post(protocol.LINES, lines(1, "one"))
        connection.post(protocol.LINES, {"key": "k", "numbered": 2})
        connection.post(protocol.LINES, lines(3, "three"))
        return ENDED

    heard: list[str] = []
    async with followed_by(monkeypatch, follow) as (followed, _, _):
        with pytest.raises(InvalidAnswer, match=protocol.LINES):
            async for _, event in followed.events():
                assert isinstance(event, MessageDelta)
                heard.append(event.text)
    assert heard == ["one"]
    assert str(followed.cursor) == "k:1"


@aio
async def test_an_undecodable_question_is_logged_and_the_job_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def follow(connection: Connection, asked: protocol.Follow) -> Any:
        connection.post(protocol.QUESTION, {"id": 7})
        connection.post(protocol.SETTLED, {"id": 7})
        connection.post(protocol.LINES, lines(1, "one"))
        return ENDED

    async def ask(question: Any) -> Any:
        raise AssertionError("there is no question")

    async with followed_by(monkeypatch, follow, ask=ask) as (followed, _, _):
        assert await texts_of(followed) == ["one"]
    assert followed.ended is not None
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [protocol.QUESTION in each or protocol.SETTLED in each for each in warned] == [True] * 2


@aio
async def test_a_host_that_drops_each_connection_without_a_line_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_after: list[str | None] = []

    async def drop(connection: Connection, asked: protocol.Follow) -> Any:
        asked_after.append(asked.after)
        if len(asked_after) == 1:
            connection.post(protocol.LINES, lines(1, "one"))
        await connection.aclose()

    monkeypatch.setattr(host_link, "time", Clock())
    async with followed_by(monkeypatch, *[drop] * 100, timeout=30.0) as (followed, _, _):
        with pytest.raises(HostUnavailable, match="cannot reconnect"):
            await texts_of(followed)
    assert asked_after[:2] == [None, "k:1"]
    assert 3 < len(asked_after) < 40


@aio
async def test_each_event_is_seen_once_although_connections_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def first(connection: Connection, asked: protocol.Follow) -> Any:
        connection.post(protocol.LINES, lines(1, "one", "two"))
        await connection.aclose()

    async def second(connection: Connection, asked: protocol.Follow) -> Any:
        assert asked.after == "k:2"
        connection.post(protocol.LINES, lines(2, "two", "three"))
        return ENDED

    async with followed_by(monkeypatch, first, second) as (followed, notices, _):
        assert await texts_of(followed) == ["one", "two", "three"]
    assert followed.ended is not None and followed.ended.state == "ended"
    assert "reconnected to box" in notices[-1]


def several(first: int) -> dict[str, Any]:
    """A line with more than one event: a tool call that changes a file."""
    diff = {"type": "diff", "path": "/w/a", "oldText": "1", "newText": "2"}
    update = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "Edit a",
        "status": "completed",
        "content": [diff],
    }
    line = {"sessionId": "s", "update": update}
    return {"key": "k", "sessionId": "s", "first": first, "lines": [line, said("end")]}


@aio
async def test_a_cursor_between_two_events_of_a_line_loses_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_after: list[str | None] = []

    async def follow(connection: Connection, asked: protocol.Follow) -> Any:
        asked_after.append(asked.after)
        connection.post(protocol.LINES, several(1))
        return ENDED

    async with followed_by(monkeypatch, follow) as (followed, _, _):
        whole = [(str(cursor), type(event)) async for cursor, event in followed.events()]
    cursors = [cursor for cursor, _ in whole]
    assert cursors == ["k:1.1", "k:1", "k:2"]
    async with followed_by(monkeypatch, follow) as (followed, _, _):
        followed.cursor = EventCursor.parse(cursors[0])
        rest = [(str(cursor), type(event)) async for cursor, event in followed.events()]
    assert rest == whole[1:]
    assert asked_after == [None, "k:1.1"]


@aio
async def test_the_newest_job_stays_the_same_one_over_connections_that_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_for: list[str] = []

    async def first(connection: Connection, asked: protocol.Follow) -> Any:
        asked_for.append(asked.job)
        connection.post(protocol.FOLLOWING, {"job": "j-7"})
        connection.post(protocol.LINES, lines(1, "one"))
        await connection.aclose()

    async def second(connection: Connection, asked: protocol.Follow) -> Any:
        asked_for.append(asked.job)
        return ENDED

    async with followed_by(monkeypatch, first, second) as (followed, _, _):
        followed.job = "last"
        assert not followed.begun
        assert await texts_of(followed) == ["one"]
    assert asked_for == ["last", "j-7"] and followed.begun


@aio
async def test_a_notice_of_the_host_is_shown_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow(connection: Connection, asked: protocol.Follow) -> Any:
        connection.post(protocol.NOTICE, protocol.HostNotice("questions cannot be shown"))
        return ENDED

    async with followed_by(monkeypatch, follow) as (followed, notices, _):
        assert await texts_of(followed) == []
    assert "questions cannot be shown" in notices


# -- questions

QUESTION = {
    "id": "q-1",
    "digest": "d",
    "sessionId": "s",
    "key": "k",
    "job": "j-1",
    "method": "session/request_permission",
    "params": {},
    "askedAt": 1.0,
}


class Person:
    """Answers every question, and counts them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, question: ShownQuestion) -> Any:
        self.asked.append(question.id)
        return {"answer": "yes"}


class AnsweredFar(Far):
    """Asks a question. `outcomes` are the responses to its answers, one after another; the job ends
    with the last one."""

    def __init__(self, *outcomes: Any) -> None:
        super().__init__(self._ask)
        self._outcomes = list(outcomes)
        self._over = asyncio.Event()

    async def _ask(self, connection: Connection, asked: protocol.Follow) -> Any:
        connection.post(protocol.QUESTION, QUESTION)
        await self._over.wait()
        return ENDED

    async def answered(self) -> Any:
        outcome = self._outcomes.pop(0)
        if not self._outcomes:
            asyncio.get_running_loop().call_soon(self._over.set)
        if isinstance(outcome, Exception):
            raise outcome
        return {"answered": outcome}


@aio
async def test_an_answer_that_timed_out_is_reported_and_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = refusal(CallTimeout("_dragoman/answer", 10.0))
    far, person = AnsweredFar(late, late, True), Person()
    async with followed_by(monkeypatch, far, ask=person) as (followed, notices, _):
        assert await texts_of(followed) == []
    assert [json_of(answer.result) for answer in far.answers] == [{"answer": "yes"}] * 3
    assert person.asked == ["q-1"]
    assert [text for text in notices if "answer" in text] == [
        "your answer to a question of j-1 may not have arrived; it is sent again"
    ]


@aio
async def test_an_answer_that_comes_before_its_question_is_known_there_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far, person = AnsweredFar(False, False, True), Person()
    async with followed_by(monkeypatch, far, ask=person) as (followed, notices, _):
        await texts_of(followed)
    assert len(far.answers) == 3 and person.asked == ["q-1"]
    assert not [text for text in notices if "answer" in text]


@aio
async def test_an_answer_that_is_not_taken_for_too_long_is_given_up_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_link.Retries, "fail", lambda _: False)
    far, person = AnsweredFar(False), Person()
    async with followed_by(monkeypatch, far, ask=person) as (followed, notices, _):
        await texts_of(followed)
    assert len(far.answers) == 1
    assert notices[-1] == (
        "your answer to a question of j-1 was not accepted: box does not know the question"
    )


@aio
async def test_an_answer_that_is_refused_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    far, person = AnsweredFar(RemoteError(-32602, "not an option")), Person()
    async with followed_by(monkeypatch, far, ask=person) as (followed, notices, _):
        await texts_of(followed)
    assert "did not arrive: not an option" in notices[-1]
    assert not followed._asking


@aio
async def test_a_question_that_is_settled_elsewhere_is_not_answered_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled = asyncio.Event()

    async def ask(question: ShownQuestion) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def follow(connection: Connection, asked: protocol.Follow) -> Any:
        assert asked.answers
        connection.post(protocol.QUESTION, QUESTION)
        connection.post(protocol.QUESTION, QUESTION)
        connection.post(protocol.SETTLED, {"id": "q-1", "by": "console"})
        await cancelled.wait()
        return ENDED

    async with followed_by(monkeypatch, follow, ask=ask) as (followed, _, (far,)):
        await texts_of(followed)
    assert far.answers == [] and not followed._asking


@aio
async def test_a_question_that_cannot_be_shown_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = asyncio.Event()

    async def ask(question: ShownQuestion) -> Any:
        asyncio.get_running_loop().call_soon(reported.set)
        raise msgspec.ValidationError("no options")

    async def follow(connection: Connection, asked: protocol.Follow) -> Any:
        connection.post(protocol.QUESTION, QUESTION)
        await reported.wait()
        return ENDED

    async with followed_by(monkeypatch, follow, ask=ask) as (followed, notices, _):
        await texts_of(followed)
    assert notices[-1] == "a question of j-1 cannot be asked here: no options"


def json_of(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


@aio
async def test_a_message_that_is_too_long_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def follow(connection: Connection, asked: protocol.Follow) -> Any:
        connection.post(protocol.LINES, lines(1, "one"))
        connection.post(protocol.LINES, lines(2, "x" * 5000))
        await asyncio.Event().wait()

    monkeypatch.setattr(protocol, "MAX_LINE_SIZE", 4000)
    heard: list[str] = []
    async with followed_by(monkeypatch, follow) as (followed, _, _):
        with pytest.raises(HostUnavailable, match="more than 4000 bytes") as refused:
            async for _, event in followed.events():
                heard.append(type(event).__name__)
    assert len(heard) == 1 and not refused.value.retryable


@aio
async def test_lines_that_were_dropped_are_requested_on_another_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first_one: list[Connection] = []

    async def first(connection: Connection, asked: protocol.Follow) -> Any:
        first_one.append(connection)
        connection.post(protocol.LINES, lines(1, "one"))
        await asyncio.Event().wait()

    async def second(connection: Connection, asked: protocol.Follow) -> Any:
        assert asked.after == "k:1" and first_one[0].failure is not None
        connection.post(protocol.LINES, lines(2, "two"))
        return ENDED

    heard: list[str] = []
    async with followed_by(monkeypatch, first, second) as (followed, _, _):
        async for _, event in followed.events():
            assert isinstance(event, MessageDelta)
            heard.append(event.text)
            if event.text == "one":
                assert followed._following is not None
                flow = followed._following.connection.flow
                for lane in list(flow._lanes):
                    lane.end(Overflow("messages were dropped because they were not read"))
    assert heard == ["one", "two"]
