"""OpenTelemetry spans and metrics for attempts, with the names of the GenAI conventions.

Also passes the trace context to the peer. Does nothing without the extra ``dragoman[otel]``.
OpenTelemetry's own configuration selects the exporter. Prompts and answers are never recorded.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from dragoman.store.ledger.records import AttemptRecord
from dragoman.version import __version__

SCOPE: Final = "dragoman"
OPERATION: Final = "invoke_agent"

CONTEXT_KEYS: Final = ("traceparent", "tracestate", "baggage")
"""The keys that ACP reserves in ``_meta`` for a trace context."""

# Bucket boundaries recommended by the conventions, and more for turns that last an hour: otherwise
# most turns of a coding agent would fall into the last bucket.
DURATIONS: Final = tuple(0.01 * 2**power for power in range(19))
TOKEN_COUNTS: Final = tuple(4**power for power in range(14))


class _Instruments:
    """Tracer, propagator and histograms, created once."""

    def __init__(self) -> None:
        self.trace = import_module("opentelemetry.trace")
        self.propagate = import_module("opentelemetry.propagate")
        self.tracer = self.trace.get_tracer(SCOPE, __version__)
        meter = import_module("opentelemetry.metrics").get_meter(SCOPE, __version__)
        self.duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_COUNTS,
        )


@functools.cache
def _instruments() -> _Instruments | None:
    try:
        return _Instruments()
    except ImportError:
        return None


class AttemptSpan:
    """The span of one attempt; does nothing without OpenTelemetry."""

    def __init__(self, instruments: _Instruments | None, span: Any) -> None:
        self._instruments = instruments
        self._span = span

    def context(self) -> dict[str, str]:
        """Return the trace context for a peer's ``_meta``; empty without tracing."""
        if self._instruments is None:
            return {}
        carrier: dict[str, str] = {}
        trace = self._instruments.trace
        self._instruments.propagate.inject(carrier, context=trace.set_span_in_context(self._span))
        return {name: carrier[name] for name in CONTEXT_KEYS if name in carrier}

    def ended(self, attempt: AttemptRecord, *, conversation: str | None = None) -> None:
        """Record how the attempt ended."""
        if self._instruments is None:
            return
        self._span.set_attributes(_known(_of_end(attempt, conversation)))
        common = _known({**_of_start(attempt), "gen_ai.response.model": attempt.model})
        if attempt.outcome != "ok":
            common["error.type"] = _error_type(attempt)
            self._span.set_attribute("error.type", common["error.type"])
            code = self._instruments.trace.StatusCode.ERROR
            self._span.set_status(self._instruments.trace.Status(code, attempt.outcome or ""))
        if attempt.seconds is not None:
            self._instruments.duration.record(attempt.seconds, common)
        common.pop("error.type", None)
        for kind, count in (("input", attempt.tokens.input), ("output", attempt.tokens.output)):
            if count is not None:
                self._instruments.tokens.record(count, {**common, "gen_ai.token.type": kind})


@contextlib.contextmanager
def calling(attempt: AttemptRecord) -> Iterator[AttemptSpan]:
    """Context manager: open a span around one attempt, and yield it. The caller must call `ended`
    to record how the attempt ended."""
    instruments = _instruments()
    if instruments is None:
        yield AttemptSpan(None, None)
        return
    with instruments.tracer.start_as_current_span(
        f"{OPERATION} {attempt.peer}",
        kind=instruments.trace.SpanKind.CLIENT,
        attributes=_known({**_of_start(attempt), **_of_work(attempt)}),
        # An exception's text may contain secrets; `ended` records its type.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield AttemptSpan(instruments, span)


def _of_start(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": attempt.peer,
        "gen_ai.agent.name": attempt.peer,
        "gen_ai.request.model": attempt.model,
    }


def _of_work(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "dragoman.job": attempt.job,
        "dragoman.role": attempt.role,
        "dragoman.tier": attempt.tier,
        "dragoman.attempt": attempt.number,
        "dragoman.runtime_role": attempt.runtime_role,
    }


def _of_end(attempt: AttemptRecord, conversation: str | None) -> dict[str, Any]:
    return {
        "gen_ai.conversation.id": conversation,
        "gen_ai.response.model": attempt.model,
        "gen_ai.usage.input_tokens": attempt.tokens.input,
        "gen_ai.usage.output_tokens": attempt.tokens.output,
        "dragoman.outcome": attempt.outcome,
        "dragoman.cost": attempt.cost.amount,
        "dragoman.cost.currency": attempt.cost.currency,
        "dragoman.cost.provenance": attempt.cost.provenance.value,
    }


def _error_type(attempt: AttemptRecord) -> str:
    return attempt.error_class or attempt.outcome or "_OTHER"


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes without None values, which OpenTelemetry does not accept."""
    return {name: value for name, value in attributes.items() if value is not None}
