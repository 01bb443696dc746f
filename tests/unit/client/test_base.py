"""What the clients of all dialects share, with a dialect of one notification."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.client import base
from dragoman.client.base import (
    ClientPeer,
    Cursor,
    EventClient,
    EventConversation,
    EventFeed,
    WorkspaceServices,
    call_in_order,
    fail_turn,
    service_refusal,
    started,
)
from dragoman.client.conversation import ConversationTurn, Opening
from dragoman.client.options import DialectOptions
from dragoman.client.permissions import Answer, Question
from dragoman.errors import (
    ArgumentInvalid,
    ConnectionEnded,
    ConnectionLost,
    FileFailed,
    FileMissing,
    InvalidAnswer,
    PathRefused,
    ProcessExited,
    ProgramNotFound,
    RemoteError,
    SpawnError,
    TerminalUnknown,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Failure
from dragoman.events.words import Outcome, Role
from dragoman.rpc import Call, Connection, End
from dragoman.transports import memory_pair
from dragoman.transports.base import Stream
from dragoman.wire import codes
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise
from tests.aio import aio
from tests.unit.rpc.other_side import OtherSide, soon, turns


class Turn(ConversationTurn):
    """A prompt that is acknowledged at once."""

    def __init__(self, session: Thread) -> None:
        self._thread = session
        super().__init__(session, session.client.connection.flow, session.client.budgets)

    def _send(self) -> Call:
        return self._thread.client.connection.begin("prompt", {}, settle=lambda raw, error: None)

    def _send_cancel(self) -> None:
        self._thread.client.connection.post("cancel")

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        base = self._thread.client.place(self._thread.id).base("prompt", None)
        return model.TurnEnded(*base, outcome, stop, failure)

    def will_tell(self, event: model.Event) -> bool:
        return False

    def lost(self, failure: ConnectionLost) -> None:
        self.failed(failure)


class Thread(EventConversation):
    """Keeps what is delivered to it."""

    def __init__(self, client: EventClient[Any], id: str) -> None:
        super().__init__(client, id)
        self.delivered: list[tuple[str, int]] = []

    def deliver(self, event: model.Event, size: int) -> None:
        self.delivered.append((event.native, size))
        if self.turn is not None:
            self.turn.event(event, size)

    async def wait_replayed(self) -> None: ...
    def prompt(self, prompt: Any) -> Turn:
        return Turn(self)

    async def set_mode(self, mode_id: str) -> None: ...
    async def set_model(self, model_id: str) -> None: ...
    async def set_option(self, option_id: str, value: str | bool) -> None: ...
    async def close(self) -> None: ...


class Client(EventClient[Thread]):
    """Every notification is a piece of text, in the thread that its params name."""

    def __init__(self, stream: Stream, options: DialectOptions | None = None) -> None:
        connection = Connection(stream, End.CLIENT, self)
        super().__init__(options or DialectOptions(), "words", connection)

    async def start(self) -> None:
        self.connection.start()

    def notification(self, notification: Notification) -> None:
        told = msgspec.json.decode(notification.params)
        base = self.place(told["thread"]).base(notification.method, notification.line)
        event = model.MessageDelta(*base, Role.AGENT, told["text"])
        self.deliver(event, len(notification.line))

    def request(self, request: Request) -> Any:
        raise NotImplementedError


class WordsPeer(ClientPeer):
    """A peer above it."""

    async def open(self, opening: Opening) -> Thread:
        raise NotImplementedError

    def list_sessions(self, cwd: Any = None) -> Any:
        raise NotImplementedError


def client_and_agent(options: DialectOptions | None = None) -> tuple[Client, OtherSide]:
    ours, theirs = memory_pair()
    agent = OtherSide(theirs)
    theirs.start(agent)
    return Client(ours, options), agent


QUESTION = Question("s1", "c1", "Write a file", "edit", (), None)


# -- clients


@aio
async def test_events_go_to_their_session_and_early_ones_when_it_is_open() -> None:
    seen: list[str] = []
    client, agent = client_and_agent(
        DialectOptions(on_event=lambda event: seen.append(event.native))
    )
    async with client:
        with client.early.expecting():
            agent.say({"method": "first", "params": {"thread": "s1", "text": "a"}})
            agent.say({"method": "other", "params": {"thread": "s2", "text": "b"}})
            await turns()
            thread = Thread(client, "s1")
            client.adopt(thread)
            assert thread.delivered == [("first", 0)]
        agent.say({"method": "next", "params": {"thread": "s1", "text": "c"}})
        await turns()
        assert [native for native, _ in thread.delivered] == ["first", "next"]
        assert thread.delivered[1][1] > 0
        assert seen == ["first", "other", "next"]
        client.forget(Thread(client, "s1"))
        assert client.conversations == {"s1": thread}
        client.forget(thread)
        assert client.conversations == {}


@aio
async def test_a_lost_connection_ends_turns_whose_prompt_was_acknowledged() -> None:
    seen: list[model.Event] = []
    client, agent = client_and_agent(DialectOptions(on_event=seen.append))
    async with client:
        thread = Thread(client, "s1")
        client.adopt(thread)
        async with thread.prompt("hi") as turn:
            agent.say({"id": (await agent.next())["id"], "result": {}})
            await turns()
            await agent.stream.aclose()
            result = await soon(turn.wait())
    assert result.outcome is Outcome.CRASHED
    assert isinstance(result.error, ConnectionEnded)
    assert result.error.may_have_run
    assert [type(event) for event in seen] == [model.Answered, model.ConnectionOver]


@aio
async def test_a_line_that_is_not_a_message_is_an_event_and_noise() -> None:
    seen: list[model.Event] = []
    noises: list[Any] = []
    client, agent = client_and_agent(DialectOptions(on_event=seen.append, on_noise=noises.append))
    async with client:
        agent.raw(b"Loading...\n")
        await turns()
    assert isinstance(seen[0], model.Unknown)
    assert seen[0].raw == b"Loading..."
    assert [type(noise) for noise in noises] == [Noise]


@aio
async def test_a_client_that_cannot_start_is_closed() -> None:
    class Failing(Client):
        async def start(self) -> None:
            await super().start()
            raise InvalidAnswer("no")

    ours, _ = memory_pair()
    with pytest.raises(InvalidAnswer):
        async with Failing(ours):
            raise AssertionError
    with pytest.raises(ConnectionLost):
        ours.write(b"x")

    def unmade(stream: Stream) -> Client:
        raise UsageError("cannot be made")

    for make in (unmade, Failing):
        stream, _ = memory_pair()
        with pytest.raises((InvalidAnswer, UsageError)):
            await started(stream, functools.partial(make, stream))
        with pytest.raises(ConnectionLost):
            stream.write(b"x")


@aio
async def test_the_observer_of_a_peer_is_that_of_its_feed() -> None:
    client, agent = client_and_agent()
    seen: list[model.Event] = []
    peer = WordsPeer(client, client, Path("/workspace"))
    assert peer.on_event is None
    peer.on_event = seen.append
    await peer.start()
    async with peer:
        agent.say({"method": "m", "params": {"thread": None, "text": "a"}})
        await turns()
    assert [event.seq for event in seen[:1]] == [1]
    assert client.connection.failure is not None


# -- events


@aio
async def test_an_observer_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    client, _ = client_and_agent()

    def fail(event: model.Event) -> None:
        raise ValueError

    feed = EventFeed("words", client.connection, fail)
    with caplog.at_level(logging.ERROR, "dragoman.client"):
        feed.emit_unknown("m", b"{}", "why")
    assert "on_event callback of a connection failed" in caplog.text
    await client.aclose()


@aio
async def test_the_end_of_a_connection_tells_how_the_program_ended() -> None:
    client, _ = client_and_agent()
    seen: list[Any] = []
    feed = EventFeed("words", client.connection, seen.append)
    feed.emit_over(ProcessExited(exit_code=3, stderr_tail="oh no"))
    feed.emit_over(ConnectionEnded())
    assert [(over.exit_code, over.stderr_tail) for over in seen] == [(3, "oh no"), (None, "")]
    assert [over.seq for over in seen] == [1, 2]
    await client.aclose()


# -- calls


@aio
async def test_an_answer_is_read_before_what_comes_behind_it() -> None:
    client, agent = client_and_agent()
    seen: list[str] = []
    client.on_event = lambda event: seen.append(event.native)
    async with client:

        def then(call: Call, raw: Raw) -> Any:
            seen.append("read")
            assert call.line is not None
            return msgspec.json.decode(raw)

        calling = client.connection.tasks.start(
            call_in_order(client.connection, "m", {}, then, timeout=5.0), "call"
        )
        id = (await agent.next())["id"]
        agent.say(
            {"id": id, "result": 5}, {"method": "behind", "params": {"thread": None, "text": ""}}
        )
        assert await soon(calling) == 5
        assert seen.index("read") < seen.index("behind")


@aio
async def test_what_reading_an_answer_raises_is_raised_to_the_caller() -> None:
    client, agent = client_and_agent()
    async with client:

        async def calling(raised: Exception, answer: dict[str, Any], **options: Any) -> Any:
            def then(call: Call, raw: Raw) -> Any:
                raise raised

            call = client.connection.tasks.start(
                call_in_order(client.connection, "m", {}, then, timeout=5.0, **options), "call"
            )
            agent.say({"id": (await agent.next())["id"], **answer})
            return await soon(call)

        with pytest.raises(InvalidAnswer):
            await calling(InvalidAnswer("malformed"), {"result": 1})
        with pytest.raises(ZeroDivisionError):
            await calling(ZeroDivisionError(), {"result": 1})
        refusal = {"error": {"code": 5, "message": "no"}}
        with pytest.raises(RemoteError):
            await calling(ValueError(), refusal)
        with pytest.raises(UsageError):
            await calling(ValueError(), refusal, explain=lambda error: UsageError("explained"))


@aio
async def test_a_caller_that_is_cancelled_gives_up_its_call() -> None:
    client, agent = client_and_agent()
    async with client:
        calling = client.connection.tasks.start(
            call_in_order(client.connection, "m", {}, lambda call, raw: None, timeout=None), "call"
        )
        id = (await agent.next())["id"]
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        agent.say({"id": id, "result": 1})
        await turns()


# -- sessions


def test_services_are_made_once_and_confined_to_the_folders(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    session = WorkspaceServices(tmp_path, [tmp_path / "more"])
    assert session.files() is session.files()
    assert session.terminals() is session.terminals()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileMissing("/x"), codes.NOT_FOUND),
        (TerminalUnknown("t1"), codes.NOT_FOUND),
        (ProgramNotFound("x"), codes.NOT_FOUND),
        (ArgumentInvalid("line"), codes.INVALID_PARAMS),
        (PathRefused("/x", "it is outside"), codes.INVALID_PARAMS),
        (FileFailed("/x", "disk"), codes.INTERNAL_ERROR),
        (SpawnError("no memory"), codes.INTERNAL_ERROR),
    ],
)
def test_a_refusal_of_a_service_has_a_code(error: Any, code: int) -> None:
    refusal = service_refusal(error)
    assert refusal.code == code
    assert refusal.data == {"errorClass": error.error_class}


@aio
async def test_a_turn_counts_the_answers_of_its_session() -> None:
    client, agent = client_and_agent()
    async with client:
        thread = Thread(client, "s1")
        thread.answered(QUESTION, Answer.ALLOW_ONCE)
        fail_turn(None, UsageError("no session"))
        fail_turn(thread, UsageError("no turn"))
        client.adopt(thread)
        async with thread.prompt("hi") as turn:
            answers: Sequence[Answer] = (Answer.ALLOW_ONCE, Answer.REJECT_ONCE, Answer.CANCEL)
            for answer in answers:
                thread.answered(QUESTION, answer)
            fail_turn(thread, UsageError("a mistake"))
            assert turn.cancelling
            await agent.stream.aclose()
            result = await soon(turn.wait())
    assert (result.approvals, [denial.title for denial in result.denials]) == (1, ["Write a file"])
    assert isinstance(result.error, UsageError)
    assert thread.let_go() is None


# -- lists in pages


def test_a_cursor_goes_from_page_to_page_to_the_end() -> None:
    cursor = Cursor("things")
    assert (cursor.value, cursor.over) == (None, False)
    cursor.advance("2")
    assert (cursor.value, cursor.over) == ("2", False)
    cursor.advance(None)
    assert cursor.over


def test_a_cursor_refuses_to_go_back_or_on_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = Cursor("things")
    for name in ("a", "b"):
        cursor.advance(name)
    with pytest.raises(InvalidAnswer, match="the agent's list of things does not end"):
        cursor.advance("a")
    monkeypatch.setattr(base, "MAX_PAGES", 3)
    with pytest.raises(InvalidAnswer, match="does not end"):
        cursor.advance("c")
