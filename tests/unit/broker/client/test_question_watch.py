"""Follow and answer the questions of one broker, over its socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from dragoman.broker.client.question_watch import answer_question, watch_questions
from dragoman.broker.protocol import QUESTION, SETTLED, Settled, ShownQuestion
from dragoman.errors import ConnectError, RemoteError
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.console.broker_place import broker, submit
from tests.unit.console.place import TIMEOUT, short_paths

YES = {"outcome": {"outcome": "selected", "optionId": "yes"}}


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


@aio
async def test_questions_come_as_they_are_asked_and_go_as_they_are_answered(paths: Paths) -> None:
    asked: asyncio.Queue[ShownQuestion] = asyncio.Queue()
    settled: asyncio.Queue[Settled] = asyncio.Queue()
    connected = asyncio.Event()
    tasks = TaskOwner("test")
    async with broker(paths) as (at, record), at.caller() as mine:
        watching = tasks.start(
            watch_questions(
                record.address,
                record.name,
                answers=True,
                on_question=asked.put_nowait,
                on_settled=settled.put_nowait,
                on_connected=lambda found: connected.set(),
            ),
            "watch",
        )
        async with asyncio.timeout(TIMEOUT):
            await connected.wait()
            await submit(mine, await mine.new(at.folder), "ask edit")
            question = await asked.get()
            with pytest.raises(RemoteError):
                await answer_question(record.address, question.id, "other", YES)
            assert await answer_question(record.address, question.id, question.digest, YES)
            assert (await settled.get()).id == question.id
            assert not await answer_question(record.address, question.id, question.digest, YES)
    async with asyncio.timeout(TIMEOUT):
        # The broker has ended, and so has this.
        await asyncio.wait({watching})
    await tasks.aclose()


@aio
async def test_what_arrives_with_the_response_is_passed_on_after_it(paths: Paths) -> None:
    def shown(id: str) -> dict[str, object]:
        about = {"sessionId": "s", "key": "k", "job": None, "askedAt": 1.0}
        return {"id": id, "digest": "d", "method": "m", "params": {}, **about}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        id = json.loads(await reader.readline())["id"]
        lines = (
            {"id": id, "result": {"questions": [shown("old")]}},
            {"method": QUESTION, "params": shown("new")},
            {"method": SETTLED, "params": {"id": "old", "by": "caller"}},
        )
        writer.write(b"".join(json.dumps({"jsonrpc": "2.0", **e}).encode() + b"\n" for e in lines))
        await reader.read()
        writer.close()

    paths.runtime.mkdir(parents=True)
    address = str(paths.runtime / "fake")
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    tasks = TaskOwner("test")
    async with await asyncio.start_unix_server(answer, address), asyncio.timeout(TIMEOUT):
        tasks.start(
            watch_questions(
                address,
                "fake",
                answers=True,
                on_question=lambda question: heard.put_nowait(("asked", question.id)),
                on_settled=lambda over: heard.put_nowait(("settled", over.id)),
                on_connected=lambda found: heard.put_nowait(("connected", "")),
            ),
            "watch",
        )
        found = [await heard.get() for _ in range(4)]
        await tasks.aclose()
    assert found == [("connected", ""), ("asked", "old"), ("asked", "new"), ("settled", "old")]


@aio
async def test_a_broker_that_is_not_there_is_an_error(paths: Paths) -> None:
    with pytest.raises(ConnectError):
        await watch_questions(
            str(paths.runtime / "none"),
            "none",
            answers=True,
            on_question=lambda question: None,
            on_settled=lambda over: None,
            on_connected=lambda found: None,
        )
