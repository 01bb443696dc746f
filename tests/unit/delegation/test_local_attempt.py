"""The local model gives what any other attempt gives: events and a result."""

from __future__ import annotations

from dragoman.client.budgets import Budgets
from dragoman.delegation.local_attempt import ask_local
from dragoman.delegation.local_model import LocalModel
from dragoman.events.model import Event, MessageDelta, TurnEnded, TurnStarted
from dragoman.events.words import Outcome
from dragoman.runs.run_result import RunResult
from dragoman.testing.fake_model import FakeModel
from tests.aio import aio


async def asked(url: str, prompt: str) -> tuple[RunResult, list[Event]]:
    events: list[Event] = []
    seen = await ask_local(
        LocalModel(api="openai", model="small", base_url=f"{url}/v1"),
        prompt,
        budgets=Budgets(),
        environ={},
        clock=lambda: 5.0,
        on_event=events.append,
    )
    return seen, events


@aio
async def test_an_answer_comes_in_pieces_and_ends_with_its_usage() -> None:
    async with FakeModel() as fake:
        seen, events = await asked(fake.url, "hello there")
    assert isinstance(events[0], TurnStarted) and isinstance(events[-1], TurnEnded)
    pieces = [event.text for event in events if isinstance(event, MessageDelta)]
    assert "".join(pieces) == "You said: hello there" and len(pieces) > 1
    assert seen.result is not None and seen.result.ok and seen.result.usage is not None
    assert (seen.prompted, seen.acted, seen.first_event_at) == (True, True, 5.0)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@aio
async def test_a_server_that_is_gone_is_a_result_too() -> None:
    seen, events = await asked("http://127.0.0.1:9", "hello")
    assert seen.result is not None and seen.result.outcome is Outcome.FAILED
    assert not seen.acted and seen.first_event_at is None
    ended = events[-1]
    assert isinstance(ended, TurnEnded) and ended.outcome is Outcome.FAILED
