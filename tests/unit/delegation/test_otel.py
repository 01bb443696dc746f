"""Spans and metrics by the GenAI conventions, and nothing at all without OpenTelemetry.

What needs the SDK is skipped where it is not installed; it is asked itself what it was told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.delegation import otel
from dragoman.delegation.otel import CONTEXT_KEYS, calling
from dragoman.store.ledger.records import Tokens
from dragoman.store.values import Charge, Provenance
from tests.unit.store.ledger.samples import START, attempt

ENDED = attempt(
    ended_at=START + 4,
    outcome="ok",
    model="gpt-5",
    tokens=Tokens(input=100, output=20, provenance=Provenance.REPORTED),
    cost=Charge(amount=0.5, currency="USD", provenance=Provenance.DERIVED),
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    otel._instruments.cache_clear()
    yield
    otel._instruments.cache_clear()


def test_without_the_package_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with calling(attempt()) as call:
        assert call.context() == {}
        call.ended(ENDED)


def test_an_error_in_the_work_goes_up_also_without_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ValueError, match="as it is"), calling(attempt()):
        raise ValueError("as it is")


class Told:
    """What OpenTelemetry was told, by its own SDK."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("opentelemetry.sdk")
        from importlib import import_module

        def part(name: str) -> Any:
            return import_module(f"opentelemetry.{name}")

        memory = part("sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
        traces = part("sdk.trace").TracerProvider()
        traces.add_span_processor(part("sdk.trace.export").SimpleSpanProcessor(memory))
        self.reader = part("sdk.metrics.export").InMemoryMetricReader()
        metrics = part("sdk.metrics").MeterProvider(metric_readers=[self.reader])
        monkeypatch.setattr(part("trace"), "get_tracer", traces.get_tracer)
        monkeypatch.setattr(part("metrics"), "get_meter", metrics.get_meter)
        self.memory = memory

    @property
    def span(self) -> Any:
        (span,) = self.memory.get_finished_spans()
        return span

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        return [point for each in metrics if each.name == name for point in each.data.data_points]


def test_a_turn_is_a_span_with_the_names_of_the_conventions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(monkeypatch)
    with calling(attempt(model="gpt-5-codex")) as call:
        call.ended(ENDED, conversation="s-1")
    assert told.span.name == "invoke_agent codex"
    assert told.span.kind.name == "CLIENT"
    assert told.span.status.status_code.name == "UNSET"
    assert dict(told.span.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "codex",
        "gen_ai.agent.name": "codex",
        "gen_ai.request.model": "gpt-5-codex",
        "gen_ai.response.model": "gpt-5",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "dragoman.job": "j-1",
        "dragoman.role": "review",
        "dragoman.tier": "strong",
        "dragoman.attempt": 1,
        "dragoman.runtime_role": "peer",
        "dragoman.outcome": "ok",
        "dragoman.cost": 0.5,
        "dragoman.cost.currency": "USD",
        "dragoman.cost.provenance": "derived",
    }


def test_a_turn_is_measured_in_seconds_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    with calling(attempt()) as call:
        call.ended(ENDED)
    (duration,) = told.points("gen_ai.client.operation.duration")
    assert (duration.sum, duration.count) == (4.0, 1)
    assert "error.type" not in duration.attributes
    tokens = told.points("gen_ai.client.token.usage")
    assert {point.attributes["gen_ai.token.type"]: point.sum for point in tokens} == {
        **{"input": 100, "output": 20},
    }


def test_a_turn_that_was_not_ok_is_an_error_with_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    with calling(attempt()) as call:
        call.ended(attempt(ended_at=START + 1, outcome="crashed", error_class="process_exited"))
    assert told.span.status.status_code.name == "ERROR"
    assert told.span.attributes["error.type"] == "process_exited"
    (duration,) = told.points("gen_ai.client.operation.duration")
    assert duration.attributes["error.type"] == "process_exited"
    assert told.points("gen_ai.client.token.usage") == []


def test_the_words_of_an_exception_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    with pytest.raises(ValueError, match="a secret"), calling(attempt()):
        raise ValueError("a secret")
    assert "a secret" not in told.span.to_json()


def test_the_peer_gets_the_context_of_our_span(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    with calling(attempt()) as call:
        context = call.context()
    assert set(context) <= set(CONTEXT_KEYS)
    version, trace, span, _ = context["traceparent"].split("-")
    assert version == "00"
    assert int(trace, 16) == told.span.context.trace_id
    assert int(span, 16) == told.span.context.span_id
