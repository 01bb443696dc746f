"""Rungs measured in a turn: answer, streaming, token usage, turn ids, late updates, errors, cancel.

The rungs are `echo`, `streaming`, `usage`, `turn ids`, `late updates`, `errors` and `cancel`. The
first five share one prompt, because each prompt costs the user money.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dragoman.catalogue.open import judge
from dragoman.client.permissions import deny_all
from dragoman.client.results import Result
from dragoman.errors import BudgetExceeded, LineTooLong, RemoteError
from dragoman.events import model
from dragoman.events.words import Outcome, Role, outcome_of
from dragoman.verify import remedies
from dragoman.verify.canary_prompts import NEVER, fill
from dragoman.verify.rung import Rung, RungFinding, failed, passed, skipped, warned
from dragoman.verify.traffic import has_turn_id
from dragoman.verify.verification import TurnObservation, Verification, is_given_up

TOKEN: Final = "anchorage"
"""A word that is unlikely to appear in an answer by chance."""

SHOWN_SIZE: Final = 80

BAD_PARAMS: Final = -32602


async def echo(state: Verification) -> RungFinding:
    state.decide_with(deny_all)
    conversation = await state.conversation()
    told = await state.take_turn(conversation, fill(state.canaries.echo, token=TOKEN))
    result = judge(told.result, state.way.quirks)
    if result.outcome is Outcome.AUTH_REQUIRED:
        return failed(_why(result), remedies.LOGIN, echo=False, authenticated=False)
    if not result.ok or not result.text.strip():
        return failed(_why(result), _remedy(result), echo=False)
    state.told = told
    state.spoken = state.session_id == conversation.id
    text = " ".join(result.text.split())
    shown = text if len(text) <= SHOWN_SIZE else f"{text[:SHOWN_SIZE]}…"
    return passed(f"it said {shown!r}", echo=True, authenticated=True)


def _why(result: Result) -> str:
    """Describe how a turn ended, and with which failure or stop reason."""
    detail = result.failure.message if result.failure is not None else result.stop
    return f"the turn ended as {result.outcome.value}" + (f": {detail}" if detail else "")


def _remedy(result: Result) -> str:
    match result.outcome:
        case Outcome.CRASHED:
            return remedies.CRASHED
        case Outcome.PROTOCOL_ERROR if isinstance(result.error, LineTooLong):
            return remedies.LONG_LINE
        case Outcome.TIMED_OUT:
            return remedies.HANGS
        case _ if isinstance(result.error, RemoteError) and result.error.code == BAD_PARAMS:
            return remedies.OTHER_PARAMS
        case Outcome.EMPTY | Outcome.OK:
            return remedies.EMPTY
        case _:
            return remedies.ECHO


def _told(state: Verification) -> TurnObservation:
    assert state.told is not None
    return state.told


def _pieces(told: TurnObservation) -> list[model.MessageDelta]:
    return [
        event
        for event in told.events
        if isinstance(event, model.MessageDelta) and event.role is Role.AGENT and event.text
    ]


async def streaming(state: Verification) -> RungFinding:
    count = len(_pieces(_told(state)))
    if count > 1:
        return passed(f"the text came in {count} pieces", streaming=True)
    return warned("the text came in one piece", remedies.PIECES, streaming=False)


async def usage(state: Verification) -> RungFinding:
    used = _told(state).result.usage
    if used is None:
        return warned("it does not report its token usage", remedies.USAGE_UNKNOWN, usage=False)
    counts = {"in": used.input_tokens, "out": used.output_tokens, "in all": used.total_tokens}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count is not None)
    if not told:
        return warned(
            "it reports how full its context is, but not the token usage of a turn",
            remedies.USAGE_UNKNOWN,
            usage=False,
        )
    return passed(f"tokens: {told}", usage=True)


async def turn_ids(state: Verification) -> RungFinding:
    pieces = [event.raw for event in _pieces(_told(state)) if event.raw is not None]
    if not pieces:
        return skipped("no update came")
    if all(has_turn_id(line) for line in pieces):
        return passed("updates say to which turn they belong", turn_ids=True)
    return passed("updates do not say to which turn they belong", turn_ids=False)


async def late_updates(state: Verification) -> RungFinding:
    after = _told(state).after
    if after:
        kinds = ", ".join(sorted({event.native for event in after}))
        return warned(
            f"{len(after)} updates came after the end of the turn: {kinds}",
            remedies.LATE,
            late_updates=True,
        )
    return passed("nothing came after the end of the turn", late_updates=False)


async def errors(state: Verification) -> RungFinding:
    prompt = state.canaries.failure
    if prompt is None:
        return skipped("a real model cannot be made to fail on purpose")
    state.decide_with(deny_all)
    told = await state.take_turn(await state.conversation(), prompt)
    result = told.result
    if isinstance(result.error, BudgetExceeded):
        return warned(f"it did not report the failure: {result.error}", remedies.HANGS)
    if outcome_of(result.stop) is Outcome.OK:
        said = f" and the text {result.text.strip()[:SHOWN_SIZE]!r}" if result.text.strip() else ""
        return warned(
            f"a failed model call ended as {result.stop}{said}",
            remedies.ERRORS_AS_TEXT,
            errors_as_text=True,
        )
    return passed(
        f"a failed model call is reported as a failure: {_why(result)}", errors_as_text=False
    )


async def cancel(state: Verification) -> RungFinding:
    if not state.canaries.slow:
        return skipped(NEVER.format("takes long"))
    state.decide_with(deny_all)
    # A fast model may finish before the cancel arrives; then a longer turn is requested.
    for prompt in (state.canaries.slow, state.canaries.slower or state.canaries.slow):
        finding = await _cancelled(state, prompt)
        if finding is not None:
            return finding
    return skipped("the turn ended before the cancel could arrive, so it is not measured")


async def _cancelled(state: Verification, prompt: str) -> RungFinding | None:
    """Start a turn, cancel it and judge its end. Returns None if the turn ended normally before the
    cancel could arrive."""
    loop = asyncio.get_running_loop()
    conversation = await state.conversation()
    after, cancelled_at = 0, None
    async with state.turning(conversation, prompt) as turn:
        async for event in turn:
            if not isinstance(event, model.MessageDelta):
                continue
            if cancelled_at is not None:
                after += 1
            else:
                turn.cancel()
                cancelled_at = loop.time()
        result = turn.result
    lasted = 0.0 if cancelled_at is None else loop.time() - cancelled_at
    grace = state.limits.cancel_grace
    match result.outcome:
        case Outcome.CANCELLED if not is_given_up(conversation):
            return passed("a cancelled turn ended as cancelled", cancel=True)
        case Outcome.CANCELLED:
            return warned(
                f"it continued for {grace:g} s after the cancel", remedies.CANCEL, cancel=False
            )
        case Outcome.OK if lasted > state.limits.cancel_arrival:
            return warned(
                f"it continued for {lasted:.1f} s after the cancel, with {after} more pieces, and "
                "ended as if it had not been cancelled",
                remedies.CANCEL,
                cancel=False,
            )
        case Outcome.OK:
            return None
        case _:
            return warned(_why(result), remedies.CANCEL, cancel=False)


RUNGS: Final = (
    Rung(
        name="echo",
        asks="Does a prompt get an answer?",
        measure=echo,
        fields=("echo",),
        needs=("session",),
        turns=True,
    ),
    Rung(
        name="streaming",
        asks="Does the answer arrive in chunks?",
        measure=streaming,
        fields=("streaming",),
        needs=("echo",),
        turns=True,
    ),
    Rung(
        name="usage",
        asks="Does it report the tokens it used?",
        measure=usage,
        fields=("usage",),
        needs=("echo",),
        turns=True,
    ),
    Rung(
        name="turn ids",
        asks="Do updates name the turn that they belong to?",
        measure=turn_ids,
        fields=("turn_ids",),
        needs=("echo",),
        turns=True,
    ),
    Rung(
        name="late updates",
        asks="Do all updates arrive before the turn ends?",
        measure=late_updates,
        fields=("late_updates",),
        needs=("echo",),
        turns=True,
    ),
)

LATER: Final = (
    Rung(
        name="errors",
        asks="Is a failed model call reported as a failure?",
        measure=errors,
        fields=("errors_as_text",),
        needs=("echo",),
        turns=True,
    ),
    Rung(
        name="cancel",
        asks="Does it stop when it is cancelled?",
        measure=cancel,
        fields=("cancel",),
        needs=("echo",),
        turns=True,
    ),
)
"""The rungs that run after all others in the first process: `errors` leaves a failed turn behind,
and `cancel` may leave a turn running."""
