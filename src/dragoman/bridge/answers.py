"""How what happened at the peer is answered to a client of ACP v1.

Owns the way from results and errors of the conversation API to prompt responses and the
protocol's errors. It sends nothing: `link` does.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dragoman.client.conversation import Result
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, DragomanError, RemoteError, UsageError
from dragoman.events import model
from dragoman.events.parts import Usage
from dragoman.events.words import Outcome
from dragoman.wire import codes, messages

_STOPS: Final[dict[Outcome, acp.StopReason]] = {
    Outcome.OK: acp.StopReason.END_TURN,
    Outcome.EMPTY: acp.StopReason.END_TURN,
    Outcome.DENIED: acp.StopReason.END_TURN,
    Outcome.REFUSED: acp.StopReason.REFUSAL,
    Outcome.TRUNCATED: acp.StopReason.MAX_TOKENS,
    Outcome.CANCELLED: acp.StopReason.CANCELLED,
}


def response(result: Result, ended: model.TurnEnded | None) -> acp.PromptResponse:
    """The answer to a prompt; raises `RemoteError` for a turn that failed.

    A word of ACP for the end is kept, and an answer of a peer that speaks ACP is kept whole.
    """
    native = _native(ended)
    if native is not None:
        return native
    extra = _used(None if ended is None else ended.usage)
    if result.stop in set(acp.StopReason) and result.outcome in _STOPS:
        return acp.PromptResponse(stop_reason=result.stop, extra=extra)
    stop = _STOPS.get(result.outcome)
    if stop is not None and result.error is None:
        return acp.PromptResponse(stop_reason=stop, extra=extra)
    raise failure(result)


def _used(usage: Usage | None) -> dict[str, Any] | None:
    """The tokens of a turn, where agents put them although that is not stable yet."""
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
    return {"usage": {name: value for name, value in told.items() if value is not None}}


def _native(ended: model.TurnEnded | None) -> acp.PromptResponse | None:
    if ended is None or ended.raw is None or ended.native != acp.SESSION_PROMPT.name:
        return None
    message = messages.decode(ended.raw)
    if not isinstance(message, messages.Result) or ended.failure is not None:
        return None
    try:
        return acp.SESSION_PROMPT.decode_result(message.result)
    except msgspec.ValidationError:
        return None


def failure(result: Result) -> RemoteError:
    """The error that answers the prompt of a turn that failed."""
    if result.error is not None:
        error = refusal(result.error)
    else:
        failed = result.failure
        text = failed.message if failed is not None else result.stop
        error = RemoteError(codes.INTERNAL_ERROR, text or f"the turn ended as {result.outcome}")
        if result.outcome is Outcome.AUTH_REQUIRED:
            error = RemoteError(codes.AUTH_REQUIRED, text or "Authentication required")
    if error.data is None:
        error.data = {"outcome": result.outcome.value}
    return error


def refusal(error: DragomanError) -> RemoteError:
    """What a client gets for an error on the way to the peer, or of the peer itself."""
    match error:
        case AuthRequired():
            return RemoteError(codes.AUTH_REQUIRED, error.message, error.data)
        case RemoteError():
            return RemoteError(error.code, error.message, error.data)
        case UsageError():
            return RemoteError(codes.INVALID_PARAMS, str(error), {"errorClass": error.error_class})
        case _:
            return RemoteError(codes.INTERNAL_ERROR, str(error), {"errorClass": error.error_class})
