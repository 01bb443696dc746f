"""Anthropic's API through its SDK: what is asked of it, and what the SDK must not do by itself."""

from __future__ import annotations

import contextlib

import pytest

from dragoman.delegation.local_model import LocalModel
from dragoman.delegation.local_model.anthropic_messages import stream
from dragoman.delegation.local_model.model import ModelChunk
from dragoman.errors import DragomanError, RemoteError
from dragoman.testing.fake_model import FakeModel
from tests.aio import aio
from tests.unit.delegation.local_model.test_openai_chat import serving


async def told(url: str, prompt: str) -> list[ModelChunk]:
    model = LocalModel(api="anthropic", model="fake-model", base_url=url, max_tokens=77)
    pieces = stream(model, prompt, key="key-1", connect_timeout=5.0)
    async with contextlib.aclosing(pieces):
        return [piece async for piece in pieces]


@aio
async def test_thoughts_are_signs_of_life_and_not_words_of_the_answer() -> None:
    async with FakeModel() as fake:
        pieces = await told(fake.url, "THINK")
        assert fake.requests[0].path == "/v1/messages"
        assert fake.requests[0].body["max_tokens"] == 77
        assert "system" not in fake.requests[0].body
    assert ModelChunk() in pieces
    text = "".join(piece.text for piece in pieces)
    assert text
    assert pieces[0].model == "fake-model"
    assert [piece.stop for piece in pieces if piece.stop] == ["end_turn"]


@aio
async def test_the_sdk_does_not_send_a_refused_prompt_again() -> None:
    async with FakeModel() as fake:
        with pytest.raises(DragomanError, match="fake error 529"):
            await told(fake.url, "HTTP:529*1")
        assert len(fake.requests) == 1


@aio
async def test_an_error_within_a_response_is_the_error_that_it_names() -> None:
    error = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    async with serving(head + error) as url:
        with pytest.raises(RemoteError) as caught:
            await told(url, "hello")
    assert (caught.value.code, caught.value.retryable, caught.value.may_have_run) == (
        529,
        True,
        True,
    )


@aio
async def test_credentials_that_lie_about_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "found-1")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "found-2")
    async with FakeModel() as fake:
        await told(fake.url, "hello")
        headers = str(fake.requests[0].headers)
    assert "key-1" in headers
    assert "found-1" not in headers and "found-2" not in headers
