"""The small typed client of the dialect of threads."""

from __future__ import annotations

from typing import Any

from dragoman.client.legacy.threads import ThreadsClient
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.client.legacy.far_end import HELLOS, HostAgent
from tests.unit.rpc.other_side import soon

EXAMPLES = load("threads")


def pair(replies: dict[str, Any]) -> tuple[ThreadsClient, HostAgent]:
    ours, theirs = memory_pair()
    agent = HostAgent(theirs, {**HELLOS["threads"], **replies})
    theirs.start(agent)
    return ThreadsClient(ours), agent


def progress(agent: HostAgent, request: Any) -> None:
    agent.tell("whatever/progress", {"n": 1})
    agent.answer(request, EXAMPLES["complete"].body)


@aio
async def test_the_documents_conversation_is_held_as_written() -> None:
    client, agent = pair({"turn": progress})
    heard: list[tuple[str, Any]] = []
    async with client:
        thread = await soon(client.thread_start())
        state = await soon(client.thread_resume(thread.thread_id))
        result = await soon(
            client.turn(
                thread.thread_id,
                "Execute the build command",
                on_notification=lambda method, params: heard.append((method, params)),
            )
        )
    assert thread.thread_id == "thread-abc123"
    assert [turn.content for turn in state.turns] == ["It builds."]
    assert not isinstance(state.last_result, str | None)
    assert state.last_result.content == "Done."
    assert (result.status, result.content) == ("complete", "...")
    assert heard == [("whatever/progress", {"n": 1})]
    sent = [(m["method"], m["params"]) for m in agent.heard]
    assert sent == [(EXAMPLES[n].method, EXAMPLES[n].body) for n in ("start", "resume", "turn")]
    await agent.stream.aclose()


@aio
async def test_a_turn_that_failed_resolves_with_the_error() -> None:
    client, agent = pair({"turn": EXAMPLES["error"].body})
    async with client:
        result = await soon(client.turn("thread-abc123", "x"))
    assert result.status == "error"
    assert result.error is not None and result.error.code == "rate_limit"
    assert agent.prompts == 1
    await agent.stream.aclose()


@aio
async def test_the_handshake_names_the_service() -> None:
    client, agent = pair({})
    async with client:
        first = await soon(client.initialize())
        await soon(client.thread_start(service_name="mine"))
    assert first.thread_id == "thread-abc123"
    assert agent.params("initialize") == EXAMPLES["initialize"].body
    assert agent.params("threadStart")["service_name"] == "mine"
    await agent.stream.aclose()
