"""Whether a retry may help depends on the kind of an error, not on the dialect that reports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.catalogue.descriptor import Quirks
from dragoman.catalogue.open import judge
from dragoman.client.results import Result, explain
from dragoman.delegation.local_model.failures import from_status
from dragoman.delegation.local_model.failures import judge as judge_model
from dragoman.dialects.codex.failures import failure_of
from dragoman.dialects.legacy import base
from dragoman.errors import RemoteError
from dragoman.events import model
from dragoman.events.parts import Failure
from dragoman.events.words import ErrorKind, Outcome
from tests.unit.dialects.document_reading import Places

PASSING = {ErrorKind.OVERLOADED, ErrorKind.RATE_LIMITED, ErrorKind.NETWORK}


def acp(code: int, message: str) -> Failure:
    return explain(RemoteError(code, message))[1]


def codex(word: str) -> Failure:
    return failure_of({"message": "no", "codexErrorInfo": word})


def legacy(kind: ErrorKind) -> Failure:
    place = Places("bare")("s")
    _, end = base.failed(place, "x", b"{}", "error", kind=kind, code=7, message="no")
    assert isinstance(end, model.TurnEnded) and end.failure is not None
    return end.failure


def as_text(text: str) -> Failure:
    found = judge(Result(Outcome.OK, text), Quirks(error_texts=("Error:",))).failure
    assert found is not None
    return found


def from_model(status: int) -> Failure:
    return judge_model(from_status(status, {"error": {"message": "no"}}, {}, variable="KEY"))[1]


@pytest.mark.parametrize(
    ("reported", "arguments", "kind"),
    [
        (acp, (-32001, "overloaded"), ErrorKind.OVERLOADED),
        (acp, (-32603, "429 Too Many Requests"), ErrorKind.RATE_LIMITED),
        (acp, (-32603, "it broke"), ErrorKind.INTERNAL),
        (acp, (-32601, "no such method"), ErrorKind.METHOD_NOT_FOUND),
        (codex, ("serverOverloaded",), ErrorKind.OVERLOADED),
        (codex, ("rateLimitExceeded",), ErrorKind.RATE_LIMITED),
        (codex, ("httpConnectionFailed",), ErrorKind.NETWORK),
        (codex, ("internalServerError",), ErrorKind.OVERLOADED),
        (legacy, (ErrorKind.OVERLOADED,), ErrorKind.OVERLOADED),
        (legacy, (ErrorKind.RATE_LIMITED,), ErrorKind.RATE_LIMITED),
        (legacy, (ErrorKind.INTERNAL,), ErrorKind.INTERNAL),
        (as_text, ("Error: 429 too many",), ErrorKind.RATE_LIMITED),
        (as_text, ("Error: 400 no",), ErrorKind.PEER),
        (from_model, (529,), ErrorKind.OVERLOADED),
        (from_model, (429,), ErrorKind.RATE_LIMITED),
        (from_model, (500,), ErrorKind.INTERNAL),
    ],
)
def test_the_kind_alone_decides_whether_a_retry_may_help(
    reported: Callable[..., Failure], arguments: tuple[Any, ...], kind: ErrorKind
) -> None:
    failure = reported(*arguments)
    assert (failure.kind, failure.retryable) == (kind, kind in PASSING)
