"""An agent that serves a client of the dialect of threads."""

from __future__ import annotations

from typing import Any

from dragoman.agent import Agent, Session, Turn
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.agent.speech.client_of_document import make_agent, served

EXAMPLES = load("threads")


@aio
async def test_the_documents_conversation_is_answered() -> None:
    async with served() as client:
        thread = await client.play(EXAMPLES["start"])
        id = thread["threadId"]
        assert id.startswith("thread-") and list(thread) == ["threadId"]
        result = await client.call("turn", {"threadId": id, "text": "Execute the build command"})
        assert result == {
            "threadId": id,
            "turnId": "turn-1",
            "status": "complete",
            "content": "You said: Execute the build command",
            "usage": {"input_tokens": 1234, "output_tokens": 5678},
        }
        assert client.told == [
            ("turn_progress", {"threadId": id, "turnId": "turn-1", "text": result["content"]})
        ]


@aio
async def test_a_handshake_is_answered_with_a_thread_that_works() -> None:
    async with served() as client:
        thread = await client.play(EXAMPLES["initialize"])
        result = await client.call("turn", {**thread, "text": "hi"})
        assert result["status"] == "complete"


@aio
async def test_a_turn_that_fails_is_a_result_with_an_error() -> None:
    async with served() as client:
        thread = await client.play(EXAMPLES["start"])
        for text, code in (
            ("refuse", "auth_required"),
            ("fail", "internal_error"),
            ("long", "max_tokens"),
        ):
            result = await client.call("turn", {**thread, "text": text})
            assert result["status"] == "error" and result["error"]["code"] == code
            assert "secret" not in str(result)
            assert set(result) <= {"threadId", "turnId", "status", "error", "content"}


@aio
async def test_a_resumed_thread_tells_what_was_said_on_this_connection() -> None:
    async with served() as client:
        thread = await client.play(EXAMPLES["start"])
        empty = await client.call("threadResume", thread)
        assert empty == thread
        await client.call("turn", {**thread, "text": "hi"})
        state = await client.call("threadResume", thread)
        assert [(t["text"], t["content"]) for t in state["turns"]] == [("hi", "You said: hi")]
        assert state["lastResult"]["turnId"] == "turn-1"


@aio
async def test_a_thread_of_another_day_is_loaded_by_the_agent() -> None:
    agent = make_agent()

    @agent.load_session
    async def load_session(session: Session, replay: Turn) -> None:
        await replay.echo("Does it ")
        await replay.echo("build?")
        await replay.think("hm")
        await replay.say("It builds.")
        await replay.echo("And now?")
        await replay.say("Still.")

    async with served(agent) as client:
        state = await client.play(EXAMPLES["resume"])
        assert [(t["text"], t["content"]) for t in state["turns"]] == [
            ("Does it build?", "It builds."),
            ("And now?", "Still."),
        ]
        assert state["lastResult"]["content"] == "Still."
        assert client.told == []
        turn: Any = await client.call("turn", {"threadId": "thread-abc123", "text": "hi"})
        assert turn["status"] == "complete"


@aio
async def test_a_thread_is_resumed_without_history_or_not_at_all() -> None:
    agent = Agent("forgetful")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say("ok")

    async with served(agent) as client:
        refusal = await client.refused("threadResume", EXAMPLES["resume"].body)
        assert refusal["code"] == -32002

    @agent.resume_session
    async def resume(session: Session) -> None:
        session.state.resumed = True

    async with served(agent) as client:
        assert await client.play(EXAMPLES["resume"]) == {"threadId": "thread-abc123"}
