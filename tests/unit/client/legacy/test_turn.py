"""Turns in every dialect of the documents, against agents that speak its examples.

Above all: a prompt is sent once, whatever goes wrong with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from dragoman.client.conversation import Conversation, ConversationTurn
from dragoman.client.legacy import DIALECTS, DocumentOptions, DocumentPeer, register, unregister
from dragoman.dialects.legacy.base import ClientEnd, Message, PlaceOf, text_of
from dragoman.errors import (
    ConnectionLost,
    DragomanError,
    RemoteError,
    SessionUnusable,
    TurnInProgress,
    UsageError,
)
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.parts import Block
from dragoman.events.words import ErrorKind, Outcome, Role, ToolStatus
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.client.legacy.far_end import (
    PROMPT_NAMES,
    QUICK,
    SESSIONS,
    SILENCE,
    HostAgent,
    examples,
    garbage,
    hanging_up,
    meet,
    refusing,
)
from tests.unit.rpc.other_side import turns, until

Talk = Callable[[HostAgent, Any], None]

ANSWERS: dict[str, Any] = {
    "oneshot": examples("oneshot")["answer"],
    "threads": examples("threads")["complete"],
    "tagged": {"stopReason": "endTurn"},
    "keyed": {"stopReason": "end_turn"},
    "chained": {"turnId": "turn-uuid-789", "status": "processing"},
}


def finish(dialect: str, agent: HostAgent, request: Any) -> None:
    """End a turn well, in the dialect's own way."""
    agent.answer(request, ANSWERS[dialect])
    if dialect == "chained":
        agent.tell("message/delta", {"sessionId": SESSIONS[dialect], "delta": "hi"})
        agent.tell("turn/status", {"sessionId": SESSIONS[dialect], "status": "completed"})


def saying(dialect: str, *names: str) -> Talk:
    """Say examples of the document, then end the turn."""
    known = load(dialect)

    def talk(agent: HostAgent, request: Any) -> None:
        for name in names:
            message = dict(known[name].message)
            params = dict(message["params"])
            if "sessionId" in params:
                params["sessionId"] = SESSIONS[dialect]
            agent.tell(message["method"], params)
        if names and names[-1] in ("status", "error"):
            return
        finish(dialect, agent, request)

    return talk


# -- turns


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_prompt_becomes_events_and_a_result(dialect: str) -> None:
    examples_of = {
        "oneshot": ("chunk", "tool", "file"),
        "threads": (),
        "tagged": ("processing", "tool_running", "tool_completed", "final_chunk"),
        "keyed": ("chunk", "tool", "plan"),
        "chained": ("delta", "tool_start", "tool_result", "reasoning", "status"),
    }

    @aio
    async def run() -> None:
        talk = saying(dialect, *examples_of[dialect])
        async with (
            meet(dialect, {PROMPT_NAMES[dialect]: talk}) as (peer, agent),
            peer.session() as session,
        ):
            watched: list[model.Event] = []
            peer.on_event = watched.append
            async with session.prompt("hello") as turn:
                events = [event async for event in turn]
            assert isinstance(events[0], model.TurnStarted)
            assert isinstance(events[-1], model.TurnEnded)
            assert sum(isinstance(event, model.TurnEnded) for event in events) == 1
            assert turn.result.outcome is Outcome.OK
            assert [event.seq for event in events] == sorted(event.seq for event in events)
            told = [event for event in watched if not isinstance(event, model.Answered)]
            assert told == events
            assert all(event.session == session.id for event in events)
            assert agent.prompts == 1
            assert session.turn is None

    run()


@aio
async def test_what_a_oneshot_agent_leaves_open_is_closed_before_the_end() -> None:
    talk = saying("oneshot", "tool", "chunk")
    async with meet("oneshot", {"prompt": talk}) as (peer, _), peer.session() as session:
        async with session.prompt("x") as turn:
            events = [event async for event in turn]
        tools = [event for event in events if isinstance(event, model.ToolChanged)]
        assert [tool.status for tool in tools] == [ToolStatus.RUNNING, ToolStatus.OTHER]
        assert tools[0].tool_id == tools[1].tool_id
        assert events.index(tools[1]) == len(events) - 2


@aio
async def test_a_turn_is_closed_when_the_agent_dies() -> None:
    def die(agent: HostAgent, request: Any) -> None:
        agent.tell("tool_call", {"tool": "x"})
        hanging_up(agent, request)

    async with meet("oneshot", {"prompt": die}) as (peer, _), peer.session() as session:
        async with session.prompt("x") as turn:
            events = [event async for event in turn]
        assert turn.result.outcome is Outcome.CRASHED
        assert [e.status for e in events if isinstance(e, model.ToolChanged)] == [
            ToolStatus.RUNNING,
            ToolStatus.OTHER,
        ]
        assert isinstance(events[-1], model.TurnEnded)


@aio
async def test_a_failed_turn_of_a_thread_resolves() -> None:
    async with meet("threads", {"turn": examples("threads")["error"]}) as (peer, _):
        async with peer.session() as session:
            result = await session.ask("x")
    assert result.outcome is Outcome.QUOTA
    assert result.failure is not None and result.failure.kind is ErrorKind.RATE_LIMITED
    assert result.error is None


@aio
async def test_progress_of_a_thread_is_kept_as_unknown_events() -> None:
    def talk(agent: HostAgent, request: Any) -> None:
        agent.tell("some/progress", {"threadId": "thread-abc123", "n": 1})
        agent.tell("other", {"n": 2})
        agent.answer(request, examples("threads")["complete"])

    async with meet("threads", {"turn": talk}) as (peer, _), peer.session() as session:
        async with session.prompt("x") as turn:
            unknown = [e.native async for e in turn if isinstance(e, model.Unknown)]
        assert unknown == ["some/progress", "other"]


@aio
async def test_a_tool_error_is_a_failure() -> None:
    replies = {"session/prompt": {"stopReason": "tool_error"}}
    async with meet("keyed", replies) as (peer, _), peer.session() as session:
        assert (await session.ask("x")).outcome is Outcome.FAILED


@pytest.mark.parametrize("ack", ["sent", "sent_request", "sent_message", None])
def test_a_chained_prompt_may_be_acknowledged_or_never_answered(ack: str | None) -> None:
    known = examples("chained")

    def talk(agent: HostAgent, request: Any) -> None:
        if ack is not None:
            agent.answer(request, known[ack])
        for name, method in (("delta", "stream/chunk"), ("status", "message/status")):
            agent.tell(method, {**known[name], "sessionId": SESSIONS["chained"]})

    @aio
    async def run() -> None:
        async with meet("chained", {"prompt/send": talk}) as (peer, agent):
            async with peer.session() as session:
                for _ in range(2):
                    # Without an answer that names it, the same id is a late word about the first.
                    known["delta"] = {**known["delta"], "turnId": "t2"}
                    result = await session.ask("x")
                    assert (result.outcome, result.text) == (Outcome.OK, "Paris")
                    known["status"] = {**known["status"], "turnId": "t2"}
                    if ack is not None:
                        known[ack] = {"turnId": "t2", "status": "processing"}
            assert agent.prompts == 2

    run()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_turn_of_an_agent_that_has_died_is_crashed_and_nothing_has_run(dialect: str) -> None:
    @aio
    async def run() -> None:
        async with (
            meet(dialect, {PROMPT_NAMES[dialect]: hanging_up}) as (peer, agent),
            peer.session() as session,
        ):
            assert (await session.ask("x")).outcome is Outcome.CRASHED
            # The second one does not wait for the first, in a dialect with one turn at a time.
            for _ in range(2):
                result = await session.ask("later")
                assert result.outcome is Outcome.CRASHED
                assert isinstance(result.error, ConnectionLost)
                assert not result.error.may_have_run
            assert agent.prompts == 1

    run()


@aio
async def test_a_turn_whose_prompt_was_acknowledged_ends_with_the_connection() -> None:
    def talk(agent: HostAgent, request: Any) -> None:
        agent.answer(request, examples("chained")["sent"])
        hanging_up(agent, request)

    async with meet("chained", {"prompt/send": talk}) as (peer, _), peer.session() as session:
        result = await session.ask("x")
        assert result.outcome is Outcome.CRASHED
        assert result.error is not None and result.error.may_have_run


@aio
async def test_an_error_notification_ends_a_chained_turn_and_its_late_status_has_no_effect() -> (
    None
):
    def talk(agent: HostAgent, request: Any) -> None:
        body = {**examples("chained")["error"], "sessionId": SESSIONS["chained"]}
        agent.tell("error", body)
        agent.tell("turn/status", {**body, "status": "error"})

    async with meet("chained", {"prompt/send": talk}) as (peer, agent):
        async with peer.session() as session:
            first = await session.ask("x")
            assert first.outcome is Outcome.QUOTA
            late = {"sessionId": session.id, "turnId": "turn-uuid-789", "status": "completed"}

            def second(agent: HostAgent, request: Any) -> None:
                agent.tell("turn/status", late)
                agent.tell("message/delta", {"sessionId": session.id, "turnId": "t2", "delta": "b"})
                agent.tell("turn/status", {**late, "turnId": "t2"})

            agent.replies["prompt/send"] = second
            assert (await session.ask("y")).text == "b"


# -- one turn at a time


class WordsEnd(ClientEnd):
    """A dialect with one method, and messages that name no session."""

    name = "words"

    def prompting(self, session_id: str, blocks: Sequence[Block]) -> Sequence[Message]:
        return [("prompt", {"text": text_of(blocks)})]

    def notified(
        self, method: str, params: Raw, line: bytes, place_of: PlaceOf
    ) -> Sequence[model.Event]:
        word = msgspec.json.decode(params)["text"]
        return [model.MessageDelta(*place_of(None).base(method, line), Role.AGENT, word)]

    def answered(self, result: Raw, place: EventEnvelope) -> list[model.Event]:
        return [model.TurnEnded(*place.base("prompt", bytes(result)), Outcome.OK, "fine")]


@asynccontextmanager
async def two_sessions(
    dialect: str,
) -> AsyncIterator[tuple[DocumentPeer, HostAgent, Conversation, Conversation]]:
    """Two sessions of an agent that does not answer prompts by itself."""
    register("words", lambda options: WordsEnd())
    try:
        async with (
            meet(dialect, {"prompt": SILENCE}) as (peer, agent),
            peer.session() as one,
            peer.session() as two,
        ):
            yield peer, agent, one, two
    finally:
        unregister("words")


def end_turn(agent: HostAgent, text: str) -> None:
    """Answer the last prompt."""
    agent.tell("agent_message_chunk", {"text": text})
    agent.answer(agent.heard[-1], {"content": text, "finish_reason": "stop"})


@pytest.mark.parametrize("dialect", ["oneshot", "words"])
def test_turns_whose_messages_name_no_session_run_one_after_the_other(dialect: str) -> None:
    @aio
    async def run() -> None:
        async with two_sessions(dialect) as (_, agent, one, two), asyncio.TaskGroup() as group:
            first = group.create_task(one.ask("first"))
            await until(lambda: agent.prompts == 1)
            second = group.create_task(two.ask("second"))
            await turns()
            with pytest.raises(TurnInProgress):
                await two.ask("third")
            assert agent.prompts == 1
            end_turn(agent, "one")
            assert (await first).text == "one"
            await until(lambda: agent.prompts == 2)
            end_turn(agent, "two")
            assert (await second).text == "two"
            sent = [message["params"]["text"] for message in agent.heard[-2:]]
            assert sent == ["first", "second"]

    run()


@aio
async def test_a_turn_that_leaves_the_queue_lets_the_next_one_run() -> None:
    async with two_sessions("oneshot") as (peer, agent, one, two), asyncio.TaskGroup() as group:
        first = group.create_task(one.ask("first"))
        await until(lambda: agent.prompts == 1)
        leaving = group.create_task(two.ask("leaving"))
        await turns()
        leaving.cancel()
        async with peer.session() as closing:
            closed = group.create_task(refused(closing.prompt("closed")))
            await turns()
        last = group.create_task(two.ask("last"))
        await turns()
        end_turn(agent, "one")
        assert (await first).ok
        assert isinstance(await closed, SessionUnusable)
        await until(lambda: agent.prompts == 2)
        end_turn(agent, "two")
        assert (await last).text == "two"
        assert agent.heard[-1]["params"]["text"] == "last"


async def refused(turn: ConversationTurn) -> DragomanError:
    """Begin a turn that cannot begin."""
    with pytest.raises(DragomanError) as failed:
        await turn.begin()
    return failed.value


@aio
async def test_a_turn_that_cannot_begin_blocks_no_other() -> None:
    async with two_sessions("oneshot") as (_, agent, one, two), asyncio.TaskGroup() as group:
        async with one.prompt("first") as turn:
            await until(lambda: agent.prompts == 1)
            with pytest.raises(UsageError, match="only once"):
                await turn.begin()
            second = group.create_task(two.ask("second"))
            await turns()
            assert agent.prompts == 1
            end_turn(agent, "one")
            assert (await turn.wait()).text == "one"
        await until(lambda: agent.prompts == 2)
        end_turn(agent, "two")
        assert (await second).text == "two"


@aio
async def test_a_turn_that_waits_for_one_that_is_cancelled_waits_for_the_end_of_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = asyncio.Event()

    async with two_sessions("oneshot") as (peer, agent, one, two), asyncio.TaskGroup() as group:
        close = peer.client._stream.aclose

        async def close_slowly() -> None:
            await ended.wait()
            await close()

        monkeypatch.setattr(peer.client._stream, "aclose", close_slowly)
        async with one.prompt("first") as turn:
            await until(lambda: agent.prompts == 1)
            second = group.create_task(refused(two.prompt("second")))
            await turns()
            turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        await turns()
        assert not second.done()
        ended.set()
        error = await second
        assert isinstance(error, ConnectionLost) and not error.may_have_run
        assert agent.prompts == 1


# -- a prompt is sent once


FAILURES: dict[str, Any] = {
    "internal error": refusing(-32603, "Internal error"),
    "invalid params": refusing(-32602, "Invalid params"),
    "server error": refusing(-32000, "Authentication required"),
    "invalid request": refusing(-32600, "Invalid request"),
    "garbage": garbage,
    "end of stream": hanging_up,
    "timeout": SILENCE,
    "cancel": SILENCE,
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_prompt_is_never_sent_twice(dialect: str, failure: str) -> None:
    @aio
    async def run() -> None:
        budgets = QUICK
        if failure == "timeout":
            budgets = replace(QUICK, first_event=0.1, cancel_grace=0.1)
        options = DocumentOptions(budgets=budgets)
        replies = {PROMPT_NAMES[dialect]: FAILURES[failure], "session/cancel": {}}
        async with meet(dialect, replies, options=options) as (peer, agent):
            async with peer.session() as session:
                async with session.prompt("x") as turn:
                    if failure == "cancel":
                        await until(lambda: agent.prompts == 1)
                        turn.cancel()
                    result = await turn.wait()
                expected = {
                    "timeout": Outcome.TIMED_OUT,
                    "cancel": Outcome.CANCELLED,
                    "end of stream": Outcome.CRASHED,
                    "garbage": Outcome.PROTOCOL_ERROR,
                }.get(failure)
                assert expected is None or result.outcome is expected
                assert not result.ok
            assert agent.prompts == 1

    run()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_proof_that_nothing_ran_is_the_only_reason_for_another_name(dialect: str) -> None:
    @aio
    async def run() -> None:
        replies = {PROMPT_NAMES[dialect]: refusing(-32601, "Method not found")}
        async with meet(dialect, replies) as (peer, agent), peer.session() as session:
            result = await session.ask("x")
            assert result.outcome is Outcome.UNSUPPORTED
            assert ("supports none of" in str(result.error)) is (dialect == "chained")
            names = [m for m in agent.methods if m in ("prompt/send", "message/send")]
            assert agent.prompts == (4 if dialect == "chained" else 1)
            assert len(names) == (2 if dialect == "chained" else 0)

    run()


@aio
async def test_a_prompt_that_was_refused_by_name_is_sent_under_the_next_one_once() -> None:
    def talk(agent: HostAgent, request: Any) -> None:
        finish("chained", agent, request)

    async with meet("chained", {"chat/send": talk}) as (peer, agent):
        async with peer.session() as session:
            assert (await session.ask("x")).ok
            assert agent.methods[-3:] == ["prompt/send", "message/send", "chat/send"]
            assert (await session.ask("y")).ok
            assert agent.methods[-1] == "chat/send" and agent.prompts == 4


@aio
async def test_a_name_is_not_tried_after_the_agent_began_to_work() -> None:
    def talk(agent: HostAgent, request: Any) -> None:
        agent.tell("message/delta", {"sessionId": SESSIONS["chained"], "delta": "working"})
        agent.refuse(request, -32601, "Method not found")

    async with meet("chained", {"prompt/send": talk}) as (peer, agent):
        async with peer.session() as session:
            assert not (await session.ask("x")).ok
            assert agent.prompts == 1


@aio
async def test_a_name_is_not_tried_after_a_cancel() -> None:
    async with meet("chained", {"prompt/send": SILENCE}) as (peer, agent):
        async with peer.session() as session:
            async with session.prompt("x") as turn:
                await until(lambda: agent.prompts == 1)
                turn.cancel()
                agent.refuse(agent.heard[-1], -32601)
                assert (await turn.wait()).outcome is Outcome.CANCELLED
            assert agent.prompts == 1


# -- cancelling


@pytest.mark.parametrize("dialect", ["oneshot", "threads", "chained"])
def test_without_a_way_to_cancel_the_connection_ends(dialect: str) -> None:
    @aio
    async def run() -> None:
        async with meet(dialect, {PROMPT_NAMES[dialect]: SILENCE}) as (peer, agent):
            assert peer.capabilities.cancel is False
            async with peer.session() as session:
                async with session.prompt("x") as turn:
                    await until(lambda: agent.prompts == 1)
                    turn.cancel()
                    result = await turn.wait()
                assert result.outcome is Outcome.CANCELLED
            await until(lambda: agent.ended is not None)

    run()


@aio
async def test_a_tagged_cancel_is_a_request_whose_answer_is_ignored() -> None:
    def cancelled(agent: HostAgent, request: Any) -> None:
        agent.answer(request, {})
        prompt = next(m for m in agent.heard if m["method"] == "session/prompt")
        agent.answer(prompt, {"stopReason": "cancelled"})

    replies = {"session/prompt": SILENCE, "session/cancel": cancelled}
    async with meet("tagged", replies) as (peer, agent), peer.session() as session:
        async with session.prompt("x") as turn:
            await until(lambda: agent.prompts == 1)
            turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        assert agent.params("session/cancel") == {"sessionId": "session-1"}
        agent.replies["session/prompt"] = {"stopReason": "endTurn"}
        assert (await session.ask("y")).stop == "endTurn"


@aio
async def test_a_serial_agent_that_does_not_hear_a_cancel_is_given_up_after_the_grace() -> None:
    replies = {"session/prompt": SILENCE, "session/cancel": SILENCE}
    async with meet("tagged", replies) as (peer, agent), peer.session() as session:
        async with session.prompt("x") as turn:
            await until(lambda: agent.prompts == 1)
            turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        with pytest.raises(SessionUnusable):
            await session.ask("y")
        assert agent.prompts == 1


@aio
async def test_a_keyed_cancel_is_a_notification() -> None:
    async with meet("keyed", {"session/prompt": SILENCE}) as (peer, agent):
        async with peer.session() as session:
            async with session.prompt("x") as turn:
                await until(lambda: agent.prompts == 1)
                turn.cancel()
                await until(lambda: "session/cancel" in agent.methods)
                assert "id" not in agent.heard[-1]
                agent.answer(agent.heard[-2], {"stopReason": "cancelled"})
                assert (await turn.wait()).outcome is Outcome.CANCELLED


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("Rate limit exceeded", Outcome.QUOTA),
        ("the disk is full", Outcome.FAILED),
        ("Authentication required", Outcome.AUTH_REQUIRED),
    ],
)
def test_the_servers_own_errors_are_recognised_by_their_words(
    message: str, outcome: Outcome
) -> None:
    @aio
    async def run() -> None:
        replies = {"prompt/send": refusing(-32000, message)}
        async with meet("chained", replies) as (peer, _), peer.session() as session:
            result = await session.ask("x")
            assert result.outcome is outcome
            assert isinstance(result.error, RemoteError)
            assert result.failure is not None and result.failure.code == -32000

    run()


@aio
async def test_thoughts_are_not_the_answer() -> None:
    talk = saying("chained", "reasoning", "delta", "status")
    async with meet("chained", {"prompt/send": talk}) as (peer, _), peer.session() as session:
        async with session.prompt("x") as turn:
            roles = [e.role async for e in turn if isinstance(e, model.MessageDelta)]
        assert roles == [Role.THOUGHT, Role.AGENT]
        assert turn.result.text == "Paris"
