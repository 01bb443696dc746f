"""Send one prompt to the local model: timeouts, text assembly, outcome. Never retries.

The timeouts are those of any turn (`client.budgets`). The outcome is ok only if there is text and
the model reported why it stopped. `anthropic_messages` and `openai_chat` implement the APIs.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from dragoman.client.budgets import Budgets
from dragoman.client.results import Result
from dragoman.delegation.local_model import failures
from dragoman.delegation.local_model.model import LocalModel, ModelChunk
from dragoman.errors import BudgetExceeded, DragomanError, InvalidAnswer
from dragoman.events.parts import Usage
from dragoman.events.words import Outcome, outcome_of
from dragoman.rpc.tasks import in_thread

CONNECT_TIMEOUT: Final = 10.0
"""Timeout in seconds for the connection alone: a machine that is off does not answer at all."""

MAX_TEXT_SIZE: Final = 8 * 1024 * 1024
"""Maximum length of an answer, in characters. No model writes that much; the limit stops a broken
server that never ends its answer."""

_STOPS: Final[Mapping[str, Outcome]] = {
    "stop_sequence": Outcome.OK,
    "eos": Outcome.OK,
    "model_context_window_exceeded": Outcome.TRUNCATED,
    "content_filter": Outcome.REFUSED,
}
"""Stop reasons that these APIs use but agents do not."""


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """Answer of the local model."""

    result: Result
    model: str
    """The model that the API reports; the requested one if it does not report any."""
    seconds: float
    first_event_seconds: float | None
    """Seconds from the request to the first chunk; None if there was none."""


async def ask(
    model: LocalModel,
    prompt: str,
    *,
    budgets: Budgets | None = None,
    environ: Mapping[str, str] | None = None,
    on_text: Callable[[str], None] | None = None,
) -> LocalAnswer:
    """Send the prompt once, and return the answer. `on_text` is called with each piece of text. A
    `DragomanError` is not raised: it is in the result, with the text received before it."""
    answer = _Growing()
    started = time.monotonic()
    error: DragomanError | None = None
    try:
        key = model.key(os.environ if environ is None else environ)
        pieces = await _stream(model, prompt, key)
        async with contextlib.aclosing(_within(pieces, budgets or Budgets())) as timed:
            async for told in timed:
                answer.add(told, time.monotonic() - started)
                if told.text and on_text is not None:
                    on_text(told.text)
    except DragomanError as problem:
        error = problem
    return LocalAnswer(
        result=answer.result(error),
        model=answer.model or model.model,
        seconds=time.monotonic() - started,
        first_event_seconds=answer.first_at,
    )


async def _stream(model: LocalModel, prompt: str, key: str) -> AsyncGenerator[ModelChunk, None]:
    name = "anthropic_messages" if model.api == "anthropic" else "openai_chat"
    try:
        # Imported on first use and in a thread: these libraries take seconds to load.
        where = f"dragoman.delegation.local_model.{name}"
        module = await in_thread(where, lambda _: importlib.import_module(where))
    except ImportError as error:
        raise failures.missing_library(error) from error
    pieces: AsyncGenerator[ModelChunk, None] = module.stream(
        model, prompt, key=key, connect_timeout=CONNECT_TIMEOUT
    )
    return pieces


async def _within(
    pieces: AsyncGenerator[ModelChunk, None], budgets: Budgets
) -> AsyncGenerator[ModelChunk, None]:
    """Yield the chunks, each under its timeout. Raises `BudgetExceeded`."""
    loop = asyncio.get_running_loop()
    over_at = None if budgets.total is None else loop.time() + budgets.total
    name, limit = "first_event", budgets.first_event
    try:
        while True:
            due_at = None if limit is None else loop.time() + limit
            if over_at is not None and (due_at is None or over_at < due_at):
                due_at, name, limit = over_at, "total", budgets.total
            try:
                async with asyncio.timeout_at(due_at):
                    told = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise BudgetExceeded(name, limit or 0.0) from error
            yield told
            name, limit = "silence", budgets.silence
    finally:
        await pieces.aclose()


class _Growing:
    """Assembles an answer from its chunks."""

    def __init__(self) -> None:
        self.model = ""
        self.first_at: float | None = None
        self._texts: list[str] = []
        self._size = 0
        self._stop = ""
        self._usage: Usage | None = None

    def add(self, told: ModelChunk, at: float) -> None:
        if self.first_at is None:
            self.first_at = at
        if told.text:
            self._texts.append(told.text)
            self._size += len(told.text)
            if self._size > MAX_TEXT_SIZE:
                raise InvalidAnswer(f"the response is longer than {MAX_TEXT_SIZE} characters")
        self.model = told.model or self.model
        self._stop = told.stop or self._stop
        if told.usage is not None:
            self._usage = _merged(self._usage, told.usage)

    def result(self, error: DragomanError | None) -> Result:
        text = "".join(self._texts)
        if error is not None:
            outcome, failure = failures.judge(error)
            return Result(outcome, text, self._stop, failure, self._usage, error=error)
        if not self._stop:
            # The stream ended without a finish reason: the answer may be incomplete.
            cut = InvalidAnswer("the response ended before it was complete")
            outcome, failure = failures.judge(cut)
            return Result(outcome, text, "", failure, self._usage, error=cut)
        outcome = _STOPS.get(self._stop) or outcome_of(self._stop)
        if outcome is Outcome.OK and not text.strip():
            outcome = Outcome.EMPTY
        return Result(outcome, text, self._stop, usage=self._usage)


def _merged(old: Usage | None, new: Usage) -> Usage:
    """Merge two usage reports.

    Later numbers replace earlier ones; those that are not reported again are kept.
    """
    if old is None:
        return new
    told = {name: value for name, value in msgspec.structs.asdict(new).items() if value is not None}
    return msgspec.structs.replace(old, **told)
