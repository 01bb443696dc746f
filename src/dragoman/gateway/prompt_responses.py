"""Translate results and errors of a peer's turn into ACP prompt responses and JSON-RPC errors.

Stop reasons that ACP v1 does not define are mapped to defined ones, because strict clients reject
them. `gateway.client_session` and `gateway.acp_passthrough` send the responses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from dragoman.client.conversation import Result
from dragoman.client.results import with_end
from dragoman.decoders import typed_decoder
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import shape, translate
from dragoman.errors import (
    AuthRequired,
    DragomanError,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Usage
from dragoman.events.words import Outcome, outcome_of
from dragoman.wire import codes, messages

_STOPS: Final[dict[Outcome, acp.StopReason]] = {
    Outcome.OK: acp.StopReason.END_TURN,
    Outcome.EMPTY: acp.StopReason.END_TURN,
    Outcome.DENIED: acp.StopReason.END_TURN,
    Outcome.REFUSED: acp.StopReason.REFUSAL,
    Outcome.TRUNCATED: acp.StopReason.MAX_TOKENS,
    Outcome.CANCELLED: acp.StopReason.CANCELLED,
    # The turn is over, and the protocol has no stop reason for an unknown end. The agent's own stop
    # reason is sent as well.
    Outcome.UNKNOWN: acp.StopReason.END_TURN,
}
Refusal: TypeAlias = Callable[[DragomanError], RemoteError]
"""Converts an error from the peer, or from the connection to it, into the error for the client."""

_KNOWN: Final = frozenset(map(str, acp.StopReason))


class _Ended(Struct):
    stopReason: str


_ended: Final = typed_decoder(_Ended)


def response(
    result: Result,
    ended: model.TurnEnded | None,
    *,
    refusal: Refusal | None = None,
) -> acp.PromptResponse:
    """Return the response to a prompt. Raises `RemoteError` for a turn that failed.

    `refusal` converts the error of the turn, if it has one; by default the function of that name in
    this module. A stop reason of ACP is kept. From a peer that speaks ACP, the response is kept
    whole, except for a stop reason that ACP does not define.
    """
    native = _native(ended)
    if native is not None:
        return translated(native)
    extra = _used(None if ended is None else ended.usage)
    if result.stop in _KNOWN and result.outcome in _STOPS:
        return acp.PromptResponse(stop_reason=result.stop, extra=extra)
    stop = _STOPS.get(result.outcome)
    failed = result.error or (result.failure if result.outcome is Outcome.UNKNOWN else None)
    if stop is not None and failed is None:
        ours = {shape.STOP: result.stop}
        if ended is not None and ended.outcome is not outcome_of(result.stop):
            ours[shape.OUTCOME] = ended.outcome.value
        meta = {shape.META: ours} if result.stop else None
        return acp.PromptResponse(stop_reason=stop, extra=extra, meta=meta)
    raise failure(result, refusal)


def translated(answer: acp.PromptResponse) -> acp.PromptResponse:
    """Return a peer's response to a prompt with a stop reason that ACP defines; the peer's own is
    kept in `_meta` if it differs. Raises `RemoteError` if its stop reason means that the turn
    failed."""
    if answer.stop_reason in _KNOWN:
        return answer
    word = answer.stop_reason
    outcome = outcome_of(word)
    if outcome not in _STOPS:
        raise RemoteError(
            codes.INTERNAL_ERROR,
            f"the agent ended its turn with the stop reason {word!r}",
            {"outcome": outcome.value, shape.STOP: word},
        )
    theirs = (answer.meta or {}).get(shape.META)
    ours = {**(theirs if isinstance(theirs, dict) else {}), shape.STOP: word}
    meta = {**(answer.meta or {}), shape.META: ours}
    return replace(answer, stop_reason=_STOPS[outcome], meta=meta)


def prompt_result(raw: Raw) -> Any:
    """Return the result of a prompt for an ACP client: the peer's own bytes, unless their stop
    reason must be translated. Raises `RemoteError` if the stop reason means that the turn failed,
    and `InvalidAnswer` if `raw` is not the result of a prompt."""
    try:
        # One small decode for each turn: only an unusual response is decoded completely.
        if _ended(raw).stopReason in _KNOWN:
            return raw
        answer = acp.SESSION_PROMPT.decode_result(raw)
    except messages.UNDECODABLE as error:
        raise InvalidAnswer(f"invalid response to {acp.SESSION_PROMPT.name}: {error}") from error
    return translated(answer)


def _used(usage: Usage | None) -> dict[str, Any] | None:
    """Return the token counts of a turn in the field `usage`, which is not stable yet but which
    agents send; None if they are unknown."""
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    total = usage.total_tokens
    told = {
        "totalTokens": usage.input_tokens + usage.output_tokens if total is None else total,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "thoughtTokens": usage.thought_tokens,
        "cachedReadTokens": usage.cache_read_tokens,
        "cachedWriteTokens": usage.cache_write_tokens,
    }
    counts: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    if total is None:
        # The protocol requires a total; the agent gave none.
        counts["_meta"] = {shape.META: {shape.SUMMED: True}}
    return {"usage": counts}


def _native(ended: model.TurnEnded | None) -> acp.PromptResponse | None:
    if ended is None or ended.raw is None or ended.native != acp.SESSION_PROMPT.name:
        return None
    if ended.source.spoken != translate.DIALECT:
        # Other dialects have a method of this name too, with other fields in its result.
        return None
    message = messages.decode(ended.raw)
    if not isinstance(message, messages.ResultResponse) or ended.failure is not None:
        return None
    try:
        return acp.SESSION_PROMPT.decode_result(message.result)
    except msgspec.ValidationError:
        return None


def failure(result: Result, refuse: Refusal | None = None) -> RemoteError:
    """Return the error response to the prompt of a turn that failed. `refuse` converts the turn's
    error, if it has one; by default `refusal`."""
    if result.error is not None:
        error = (refuse or refusal)(result.error)
    else:
        failed = result.failure
        text = failed.message if failed is not None else result.stop
        error = RemoteError(codes.INTERNAL_ERROR, text or f"the turn ended as {result.outcome}")
        if result.outcome is Outcome.AUTH_REQUIRED:
            error = RemoteError(codes.AUTH_REQUIRED, text or "Authentication required")
    if error.data is None:
        error.data = {"outcome": result.outcome.value}
    elif not isinstance(result.error, RemoteError):
        error.data = {"outcome": result.outcome.value, **error.data}
    if result.error is None or isinstance(result.error, RemoteError):
        error.data = with_end(error.data, result)
    return error


def refusal(error: DragomanError) -> RemoteError:
    """Convert an error of the peer, or of the connection to it, to the error for the client."""
    match error:
        case AuthRequired():
            return RemoteError(codes.AUTH_REQUIRED, error.message, error.data)
        case RemoteError():
            return RemoteError(error.code, error.message, error.data)
        case _:
            # "Invalid params" means that nothing ran.
            wrong = isinstance(error, UsageError) and not error.may_have_run
            code = codes.INVALID_PARAMS if wrong else codes.INTERNAL_ERROR
            text = str(error)
            if isinstance(error, ProtocolMismatch) and error.hint:
                # Clients show their user only the message.
                text = f"{text}; {error.hint}"
            return RemoteError(code, text, error_data(error))


def error_data(error: DragomanError) -> dict[str, Any]:
    """Return the data of an error response: what the client needs to know about an error that
    dragoman raised."""
    return {
        "errorClass": error.error_class,
        "blame": error.blame,
        "retryable": error.retryable,
        "mayHaveRun": error.may_have_run,
    }
