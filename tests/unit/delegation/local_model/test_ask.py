"""The local model is asked over real HTTP, in both formats, and every ending has its outcome."""

from __future__ import annotations

import asyncio
import sys

import pytest

from dragoman.client.budgets import Budgets
from dragoman.delegation.local_model import LocalModel, ask
from dragoman.delegation.local_model.ask import LocalAnswer
from dragoman.delegation.local_model.model import Api
from dragoman.events.words import ErrorKind, Outcome
from dragoman.testing.fake_model import FakeModel
from tests.aio import aio

APIS: tuple[Api, ...] = ("anthropic", "openai")
KEYS = {"ANTHROPIC_API_KEY": "key-1", "OPENAI_API_KEY": "key-1"}
QUICK = Budgets(first_event=0.3, silence=0.3)


def model_at(url: str, api: Api, **more: str) -> LocalModel:
    base = url if api == "anthropic" else f"{url}/v1"
    return LocalModel(api=api, model="fake-model", base_url=base, **more)  # type: ignore[arg-type]


async def asked(api: Api, prompt: str, budgets: Budgets | None = None) -> LocalAnswer:
    async with FakeModel() as fake:
        return await ask(model_at(fake.url, api), prompt, budgets=budgets, environ=KEYS)


@pytest.mark.parametrize("api", APIS)
@aio
async def test_an_answer_is_streamed_counted_and_said_to_be_whose_it_is(api: Api) -> None:
    pieces: list[str] = []
    async with FakeModel() as fake:
        model = model_at(fake.url, api, system="Be brief.")
        answer = await ask(model, "hello there", environ=KEYS, on_text=pieces.append)
        (request,) = fake.requests
    result = answer.result
    assert result.ok
    assert result.text == "You said: hello there"
    assert len(pieces) > 1 and "".join(pieces) == result.text
    assert result.usage is not None
    assert result.usage.input_tokens and result.usage.output_tokens
    assert answer.model == "fake-model"
    assert answer.first_event_seconds is not None
    assert answer.first_event_seconds <= answer.seconds
    assert "key-1" in str(request.headers)
    assert "Be brief." in str(request.body)
    assert request.body["max_tokens"] == 8192
    assert "tools" not in request.body


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("status", "outcome", "kind", "retryable"),
    [
        (401, Outcome.AUTH_REQUIRED, ErrorKind.AUTH_REQUIRED, False),
        (403, Outcome.AUTH_REQUIRED, ErrorKind.AUTH_REQUIRED, False),
        (402, Outcome.QUOTA, ErrorKind.QUOTA, False),
        (404, Outcome.FAILED, ErrorKind.NOT_FOUND, False),
        (429, Outcome.QUOTA, ErrorKind.RATE_LIMITED, True),
        (500, Outcome.FAILED, ErrorKind.INTERNAL, False),
        (529, Outcome.FAILED, ErrorKind.OVERLOADED, True),
    ],
)
@aio
async def test_a_refusal_is_recognised_by_its_status_and_asked_only_once(
    api: Api, status: int, outcome: Outcome, kind: ErrorKind, retryable: bool
) -> None:
    async with FakeModel() as fake:
        answer = await ask(model_at(fake.url, api), f"HTTP:{status}", environ=KEYS)
        assert len(fake.requests) == 1
    failure = answer.result.failure
    assert failure is not None
    assert (answer.result.outcome, failure.kind, failure.retryable) == (outcome, kind, retryable)
    assert f"fake error {status}" in failure.message


@pytest.mark.parametrize("api", APIS)
@aio
async def test_an_answer_that_breaks_off_is_a_crash_with_the_text_so_far(api: Api) -> None:
    answer = await asked(api, "CUT")
    assert answer.result.outcome is Outcome.CRASHED
    assert answer.result.text
    assert answer.result.error is not None
    assert "was cut off" in str(answer.result.error)


@pytest.mark.parametrize("api", APIS)
@aio
async def test_a_model_that_does_not_answer_is_given_up(api: Api) -> None:
    answer = await asked(api, "HANG", QUICK)
    assert answer.result.outcome is Outcome.TIMED_OUT
    assert answer.first_event_seconds is None
    assert "nothing after the prompt for 0.3 s" in str(answer.result.error)


@pytest.mark.parametrize("api", APIS)
@aio
async def test_a_model_that_falls_silent_is_given_up_with_its_text(api: Api) -> None:
    answer = await asked(api, "HOLD", Budgets(first_event=20, silence=0.3))
    assert answer.result.outcome is Outcome.TIMED_OUT
    assert answer.result.text
    assert "nothing for 0.3 s" in str(answer.result.error)


@aio
async def test_the_whole_turn_has_a_limit_of_its_own() -> None:
    answer = await asked("openai", "SLOW", Budgets(total=0.5))
    assert answer.result.outcome is Outcome.TIMED_OUT
    assert "timed out after 0.5 s" in str(answer.result.error)


@pytest.mark.parametrize("api", APIS)
@aio
async def test_a_missing_server_is_a_network_error_that_ran_nothing(api: Api) -> None:
    async with FakeModel() as fake:
        url = fake.url
    answer = await ask(model_at(url, api), "hello", environ=KEYS)
    failure, error = answer.result.failure, answer.result.error
    assert failure is not None and error is not None
    assert (answer.result.outcome, failure.kind) == (Outcome.FAILED, ErrorKind.NETWORK)
    assert error.error_class == "connect_failed"
    assert not error.may_have_run


@aio
async def test_without_a_key_nothing_is_sent_and_no_other_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "somebody else's")
    async with FakeModel() as fake:
        answer = await ask(model_at(fake.url, "anthropic"), "hello", environ={})
        assert fake.requests == []
    assert answer.result.outcome is Outcome.AUTH_REQUIRED
    assert "set ANTHROPIC_API_KEY" in str(answer.result.error)


@aio
async def test_a_server_on_this_machine_needs_no_key_and_no_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with FakeModel() as fake:
        for api in APIS:
            environ = KEYS if api == "anthropic" else {}
            assert (await ask(model_at(fake.url, api), "hello", environ=environ)).result.ok
        assert "authorization" not in fake.requests[-1].headers


@pytest.mark.parametrize("api", APIS)
@aio
async def test_without_the_libraries_the_extra_is_named(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("anthropic", "httpx2"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("anthropic_messages", "openai_chat"):
        monkeypatch.delitem(sys.modules, f"dragoman.delegation.local_model.{name}", raising=False)
        monkeypatch.delattr(f"dragoman.delegation.local_model.{name}", raising=False)
    answer = await ask(model_at("http://127.0.0.1:1", api), "hello", environ=KEYS)
    assert answer.result.outcome is Outcome.UNSUPPORTED
    assert "dragoman[local]" in str(answer.result.error)


@pytest.mark.parametrize("api", APIS)
@aio
async def test_a_cancelled_question_is_cancelled_and_lets_go_of_the_connection(api: Api) -> None:
    async with FakeModel() as fake:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ask(model_at(fake.url, api), "HOLD", environ=KEYS))
            async with asyncio.timeout(20):
                await fake.wait_requests(1)
            task.cancel()
        assert task.cancelled()
