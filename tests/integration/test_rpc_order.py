"""Order from the wire to the handler, and few writes and tasks on the way, under load."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, json

from dragoman import connect
from dragoman.events import model
from dragoman.events.words import Outcome
from dragoman.rpc import Connection, End, Router
from dragoman.testing.faults import FaultyStream, Rechunk
from dragoman.testing.scripted import Expect, Notify, Reply
from dragoman.transports.memory import MemoryStream, memory_pair
from tests.aio import aio
from tests.integration.acp_programs import TIMEOUT, scripted
from tests.unit.rpc.other_side import soon, until


class Update(Struct):
    session: str
    n: int


class Counting:
    """Counts the writes of a stream."""

    def __init__(self, stream: MemoryStream) -> None:
        self.writes = 0
        write = stream.write

        def counted(data: bytes) -> None:
            self.writes += 1
            write(data)

        stream.write = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(5))
@aio
async def test_every_session_sees_its_updates_in_order_and_its_end_last(seed: int) -> None:
    """Sessions are mixed on the wire, bytes are cut anywhere, and handlers wait random times."""
    chance = random.Random(seed)
    sessions = [f"s{n}" for n in range(8)]
    seen: dict[str, list[int | str]] = {session: [] for session in sessions}

    async def handle(update: Update) -> None:
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        seen[update.session].append(update.n)

    client_router = Router()
    client_router.on_notification("update", handle, Update, lane_of=lambda update: update.session)
    agent_router = Router()

    async def prompt(update: Update) -> str:
        for n in range(update.n):
            await agent.notify("update", Update(update.session, n))
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        return "end"

    agent_router.on_request("prompt", prompt, Update)

    def cut(data: bytes) -> list[bytes]:
        places = sorted(chance.randrange(len(data) + 1) for _ in range(3))
        return [data[a:b] for a, b in zip([0, *places], [*places, None], strict=True)]

    ours, theirs = memory_pair()
    async with (
        Connection(theirs, End.AGENT, agent_router) as agent,
        Connection(FaultyStream(ours, [Rechunk(cut=cut)]), End.CLIENT, client_router) as client,
    ):

        async def ask(session: str, count: int) -> None:
            await client.call("prompt", Update(session, count), after=client_router.lane(session))
            seen[session].append("end")

        counts = {session: chance.randrange(100) for session in sessions}
        await soon(asyncio.gather(*(ask(session, count) for session, count in counts.items())))
    assert seen == {session: [*range(count), "end"] for session, count in counts.items()}


@aio
async def test_a_slow_reader_of_a_turn_gets_every_event_in_order_and_the_end_last(
    tmp_path: Path,
) -> None:
    """The agent is a child process that sends more than may be queued, and its response with it."""
    count = 8000
    chance = random.Random(7)
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
    agent = scripted(
        Expect("session/prompt"),
        Notify("session/update", {"sessionId": "s1", "update": update}, times=count),
        Reply({"stopReason": "end_turn"}),
    )
    numbers: list[int] = []
    last: model.Event | None = None
    async with (
        asyncio.timeout(TIMEOUT),
        connect(agent, workspace=tmp_path) as peer,
        peer.session() as session,
        session.prompt("go") as turn,
    ):
        # The reader is so slow that the pipe stops the agent.
        await until(lambda: peer.client.connection.flow.paused)
        async for event in turn:
            assert not isinstance(last, model.TurnEnded)
            last = event
            if isinstance(event, model.MessageDelta):
                assert event.raw is not None
                numbers.append(json.decode(event.raw)["params"]["n"])
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
    assert numbers == list(range(count))
    assert isinstance(last, model.TurnEnded)
    assert (turn.result.outcome, turn.result.text) == (Outcome.OK, "x" * count)


@aio
async def test_many_notifications_need_few_tasks_and_few_writes() -> None:
    count = 20_000
    most = 0
    seen: list[int] = []

    async def handle(update: Update) -> None:
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        seen.append(update.n)

    router = Router()
    router.on_notification("update", handle, Update, lane_of=lambda update: update.session)
    ours, theirs = memory_pair()
    counting = Counting(theirs)
    async with Connection(theirs, End.AGENT) as agent, Connection(ours, End.CLIENT, router):
        before = len(asyncio.all_tasks())
        for n in range(count):
            await agent.notify("update", Update("s", n))
        await until(lambda: len(seen) == count)
    assert seen == list(range(count))
    assert most == before + 1
    # About 75 bytes each, and 64 KiB in a write.
    assert counting.writes < count / 400


@aio
async def test_the_answers_of_one_turn_leave_in_one_write() -> None:
    router = Router()
    router.on_request("echo", lambda raw: raw)
    ours, theirs = memory_pair()
    counting_ours, counting_theirs = Counting(ours), Counting(theirs)
    async with Connection(theirs, End.AGENT, router), Connection(ours, End.CLIENT) as client:
        answers = await soon(asyncio.gather(*(client.call("echo", n) for n in range(200))))
    assert [bytes(answer) for answer in answers] == [b"%d" % n for n in range(200)]
    assert (counting_ours.writes, counting_theirs.writes) == (1, 1)


@aio
async def test_both_ends_call_each_other_at_once_and_nothing_mixes() -> None:
    """Both count their ids from zero, so every id is in use twice."""
    chance = random.Random(3)

    def serving(name: str) -> Router:
        router = Router()

        async def answer(n: int) -> tuple[str, int]:
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            return name, n

        router.on_request("ask", answer, int)
        return router

    async def ask(connection: Connection, n: int) -> Any:
        return bytes(await connection.call("ask", n, timeout=60.0))

    ours, theirs = memory_pair()
    async with (
        Connection(theirs, End.AGENT, serving("agent")) as agent,
        Connection(ours, End.CLIENT, serving("client")) as client,
    ):
        answers = await soon(
            asyncio.gather(
                *(ask(client, n) for n in range(300)), *(ask(agent, n) for n in range(300))
            )
        )
    assert answers[:300] == [b'["agent",%d]' % n for n in range(300)]
    assert answers[300:] == [b'["client",%d]' % n for n in range(300)]
