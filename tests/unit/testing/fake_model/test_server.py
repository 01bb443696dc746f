"""The fake model as agents see it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dragoman.errors import UsageError
from dragoman.testing.fake_model import FakeModel, server
from tests.aio import aio
from tests.unit.testing.fake_model.asking import TIMEOUT, ask, connect, request

CHAT = "/v1/chat/completions"


def chat(text: str, *, stream: bool = True) -> dict[str, Any]:
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}


QUESTIONS = [
    (CHAT, chat("hello", stream=False)),
    ("/v1/responses", {"input": "hello"}),
    ("/v1/messages?beta=true", {"messages": [{"role": "user", "content": "hello"}]}),
    ("/v1beta/models/g:generateContent", {"contents": [{"parts": [{"text": "hello"}]}]}),
]


@pytest.mark.parametrize(("target", "body"), QUESTIONS)
@aio
async def test_every_format_is_answered_at_once_and_in_pieces(
    target: str, body: dict[str, Any]
) -> None:
    async with FakeModel() as model:
        whole = await ask(model, target, body)
        assert whole.headers["content-type"] == "application/json"
        assert "You said: hello" in whole.body.decode()
        target = target.replace(":generate", ":streamGenerate")
        streamed = await ask(model, target, {**body, "stream": True})
        assert streamed.headers["content-type"] == "text/event-stream"
        assert len(streamed.events) > 3
        assert [asked.text for asked in model.questions] == ["hello", "hello"]


@pytest.mark.parametrize(("target", "body"), QUESTIONS)
@aio
async def test_every_format_has_its_own_errors(target: str, body: dict[str, Any]) -> None:
    text = json.dumps(body).replace("hello", "HTTP:429")
    async with FakeModel() as model:
        got = await ask(model, target, text.encode())
        assert got.status == 429
        assert got.json["error"]["message"] == "fake error 429"


@aio
async def test_an_error_can_pass_after_some_times() -> None:
    async with FakeModel() as model:
        statuses = [(await ask(model, CHAT, chat("HTTP:500*2"))).status for _ in range(3)]
        assert statuses == [500, 500, 200]
        assert (await ask(model, CHAT, chat("HTTP:503*2 other"))).status == 503


@aio
async def test_the_same_conversation_gets_the_same_id_and_another_one_another() -> None:
    async with FakeModel() as model:
        ids = [
            (await ask(model, CHAT, chat(text, stream=False))).json["id"]
            for text in ("a", "a", "b")
        ]
        assert ids[0] == ids[1] != ids[2]


@aio
async def test_lists_of_models_have_the_shape_of_their_api() -> None:
    async with FakeModel(models=("one", "two")) as model:
        openai = (await ask(model, "/v1/models", method="GET")).json
        assert [entry["id"] for entry in openai["data"]] == ["one", "two"]
        google = (await ask(model, "/v1beta/models", method="GET")).json
        assert [entry["name"] for entry in google["models"]] == ["models/one", "models/two"]
        assert (await ask(model, "/v1/models/one", method="GET")).json["id"] == "one"


@aio
async def test_tokens_are_counted() -> None:
    async with FakeModel() as model:
        for target in ("/v1beta/models/g:countTokens", "/v1/messages/count_tokens"):
            assert (await ask(model, target, {"a": "b" * 40})).json["totalTokens"] > 10
        assert model.questions == []


@aio
async def test_what_is_not_there_is_said_so_and_recorded() -> None:
    async with FakeModel() as model:
        assert (await ask(model, "/nowhere?x=1", {"a": 1})).status == 404
        assert (await ask(model, "/", method="HEAD")).status == 200
        recorded = model.requests[0]
        assert (recorded.method, recorded.path, recorded.query) == ("POST", "/nowhere", "x=1")
        assert (recorded.body, recorded.asked) == ({"a": 1}, None)
        assert recorded.headers["host"] == "x"


@aio
async def test_only_the_newest_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "KEPT_REQUESTS", 2)
    async with FakeModel() as model:
        for text in "abc":
            await ask(model, CHAT, chat(text))
        assert [asked.text for asked in model.questions] == ["b", "c"]
        async with asyncio.timeout(TIMEOUT):
            await model.wait_requests(3)


async def first_chunk(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(TIMEOUT):
        while b'"content": "' not in (line := await reader.readline()) or b'""' in line:
            pass


@aio
async def test_a_held_answer_goes_on_when_it_is_released() -> None:
    async with FakeModel() as model:
        reader, writer = await connect(model)
        writer.write(request("POST", CHAT, chat("HOLD it")))
        await first_chunk(reader)
        model.release()
        async with asyncio.timeout(TIMEOUT):
            rest = await reader.readuntil(b"[DONE]")
        assert b'"it"' in rest
        writer.close()
        await writer.wait_closed()


@aio
async def test_an_answer_that_is_cut_ends_in_the_middle() -> None:
    async with FakeModel() as model:
        reader, writer = await connect(model)
        writer.write(request("POST", CHAT, chat("CUT it")))
        async with asyncio.timeout(TIMEOUT):
            data = await reader.read()
        assert b'"You "' in data
        assert b"[DONE]" not in data
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("text", ["SLOW", "HOLD", "HANG"])
@aio
async def test_closing_breaks_every_answer_that_is_under_way(text: str) -> None:
    async with FakeModel() as model:
        reader, writer = await connect(model)
        writer.write(request("POST", CHAT, chat(text)))
        async with asyncio.timeout(TIMEOUT):
            await model.wait_requests(1)
    async with asyncio.timeout(TIMEOUT):
        await reader.read()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("text", ["SLOW", "HOLD", "HANG"])
@aio
async def test_an_agent_that_goes_away_is_noticed(text: str) -> None:
    async with FakeModel() as model:
        _, writer = await connect(model)
        writer.write(request("POST", CHAT, chat(text)))
        async with asyncio.timeout(TIMEOUT):
            await model.wait_requests(1)
            writer.close()
            await writer.wait_closed()
            await asyncio.wait(list(model._tasks._tasks))
        assert (await ask(model, CHAT, chat("again"))).status == 200


@aio
async def test_a_question_that_is_held_may_be_asked_without_pieces() -> None:
    async with FakeModel() as model:
        model.release()
        got = await ask(model, CHAT, chat("HOLD", stream=False))
        assert got.json["choices"][0]["message"]["content"] == "You said: HOLD"


@aio
async def test_two_agents_are_served_at_once() -> None:
    async with FakeModel() as model:
        reader, writer = await connect(model)
        writer.write(request("POST", CHAT, chat("HOLD")))
        await first_chunk(reader)
        assert (await ask(model, CHAT, chat("me too"))).status == 200
        model.release()
        async with asyncio.timeout(TIMEOUT):
            await reader.readuntil(b"[DONE]")
        writer.close()
        await writer.wait_closed()


@aio
async def test_there_is_no_address_outside_of_the_block() -> None:
    model = FakeModel()
    with pytest.raises(UsageError, match="not running"):
        _ = model.url
    await model.aclose()
    async with model:
        assert model.url.startswith("http://127.0.0.1:")
        with pytest.raises(UsageError, match="already serving"):
            await model.__aenter__()
    with pytest.raises(UsageError, match="not running"):
        _ = model.url


@aio
async def test_a_response_that_is_no_longer_awaited_is_not_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeModel() as model:
        _, writer = await connect(model)
        writer.write(request("POST", CHAT, chat("CHUNKS:2000")))
        writer.transport.abort()
        assert (await ask(model, CHAT, chat("again"))).status == 200
    assert caplog.records == []
