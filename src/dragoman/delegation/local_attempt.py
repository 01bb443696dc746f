"""Send a prompt to the local model, with the result and the events of a turn.

The local model has no tools and no workspace: it gets only the prompt and changes no files.
`delegation.local_model` makes the request.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final

from dragoman.client.budgets import Budgets
from dragoman.delegation.collect_facts import LOCAL
from dragoman.delegation.local_model import LocalModel, ask
from dragoman.events.model import Event, EventEnvelope, MessageDelta, Source, TurnEnded, TurnStarted
from dragoman.events.parts import Text
from dragoman.events.words import Role
from dragoman.runs.run_result import RunResult

SOURCE: Final = Source(LOCAL, LOCAL)
TURN: Final = "1"


async def ask_local(
    model: LocalModel,
    prompt: str,
    *,
    budgets: Budgets,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    on_event: Callable[[Event], None],
) -> RunResult:
    """Send the prompt once."""
    place = EventEnvelope(SOURCE, itertools.count(1), None)
    place.turn = TURN
    seen = RunResult(prompted=True, model=model.model)

    def said(text: str) -> None:
        seen.acted = True
        if seen.first_event_at is None:
            seen.first_event_at = clock()
        on_event(MessageDelta(*place.base("text", None), role=Role.AGENT, text=text))

    on_event(TurnStarted(*place.base("ask", None), prompt=(Text(prompt),)))
    answer = await ask(model, prompt, budgets=budgets, environ=environ, on_text=said)
    result = answer.result
    seen.result, seen.model = result, answer.model
    on_event(
        TurnEnded(
            *place.base("end", None),
            outcome=result.outcome,
            stop=result.stop,
            failure=result.failure,
            usage=result.usage,
        )
    )
    return seen
