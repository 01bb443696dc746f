"""Prices and costs: what is known, how well, and what is not."""

from __future__ import annotations

import datetime
import math
import os
import sys
from pathlib import Path

import pytest

from dragoman.delegation.prices import Price, listed_prices, price, price_of, read_prices
from dragoman.errors import ConfigInvalid
from dragoman.events.parts import Cost, Usage
from dragoman.store.values import UNKNOWN, Charge, Provenance

TEN = Price(input=10.0, output=20.0, cache_read=1.0)
OWN = {"mine": TEN}


def test_every_listed_price_has_a_date_and_makes_sense() -> None:
    assert len(listed_prices()) >= 10
    for name, found in listed_prices().items():
        assert isinstance(found.date, datetime.date), name
        assert found.date <= datetime.date.today(), name
        assert 0 < found.input <= found.output, name
        assert found.cache_read is None or found.cache_read < found.input, name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-5-mini", "gpt-5-mini"),
        ("GPT-5-mini", "gpt-5-mini"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("gemini-2.5-flash-preview-05-06", "gemini-2.5-flash"),
    ],
)
def test_a_release_of_a_model_costs_what_the_model_does(model: str, name: str) -> None:
    assert price_of(model) is listed_prices()[name]


@pytest.mark.parametrize(
    "model", ["gpt-5-pro", "gemini-2.5-flash-lite", "gpt-5.9", "gpt-50", "gpt", "", None, "claude"]
)
def test_another_model_is_not_taken_for_a_known_one(model: str | None) -> None:
    assert price_of(model) is None


def test_own_prices_go_before_those_of_the_list() -> None:
    assert price_of("gpt-5", {"gpt-5": TEN}) is TEN
    assert price_of("house/mine", OWN) is TEN
    assert price_of("house/mine", {"mine": TEN, "house/mine": Price(input=1, output=1)}) is not TEN


def test_own_prices_are_a_file_beside_the_configuration(tmp_path: Path) -> None:
    assert read_prices(tmp_path) == {}
    (tmp_path / "prices.toml").write_text(
        '[models."gpt-5"]\ninput = 1\noutput = 2\ncurrency = "EUR"\n'
    )
    own = read_prices(tmp_path)
    assert own == {"gpt-5": Price(input=1, output=2, currency="EUR")}
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    assert price("gpt-5", usage, own).currency == "EUR"


@pytest.mark.parametrize(
    "text",
    [
        "[models.x",
        "[models.x]\ninput = 1",
        "[models.x]\ninput = -1\noutput = 1",
        "[models.x]\ninput = 1\noutput = 'much'",
        "[models.x]\ninput = 1\noutput = 1\nouptut = 2",
        "[model.x]\ninput = 1\noutput = 1",
        "\udcff",
    ],
)
def test_own_prices_that_cannot_be_read_are_refused_by_the_name_of_their_file(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "prices.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigInvalid, match="prices.toml"):
        read_prices(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes of POSIX")
def test_own_prices_in_a_named_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "prices.toml")
    with pytest.raises(ConfigInvalid, match="prices.toml: it is not a regular file"):
        read_prices(tmp_path)


def test_what_the_peer_reports_goes_before_what_can_be_derived() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=1, cost=Cost(0.125, "USD"))
    assert price("mine", usage, OWN) == Charge(
        amount=0.125, currency="USD", provenance=Provenance.REPORTED
    )


def test_a_cost_that_is_none_is_not_believed() -> None:
    for amount in (math.nan, math.inf, -1.0):
        told = Usage(input_tokens=1, output_tokens=1, cost=Cost(amount, "USD"))
        assert price("mine", told, OWN).provenance is Provenance.DERIVED


def test_a_cost_is_derived_from_tokens_of_both_kinds() -> None:
    usage = Usage(input_tokens=100_000, output_tokens=50_000)
    assert price("mine", usage, OWN) == Charge(
        amount=2.0, currency="USD", provenance=Provenance.DERIVED
    )


def test_cached_tokens_make_it_an_estimate() -> None:
    among = Usage(input_tokens=100_000, output_tokens=0, cache_read_tokens=60_000)
    beside = Usage(input_tokens=100_000, output_tokens=0, cache_read_tokens=600_000)
    for usage, amount in ((among, 0.46), (beside, 1.6)):
        found = price("mine", usage, OWN)
        assert found.amount == pytest.approx(amount)
        assert found.provenance is Provenance.ESTIMATED


def test_a_prompt_that_is_longer_than_the_price_is_for_makes_it_an_estimate() -> None:
    own = {"stepped": Price(input=1, output=2, long_prompt=200_000)}
    short = price("stepped", Usage(input_tokens=1000, output_tokens=1), own)
    long = price("stepped", Usage(input_tokens=300_000, output_tokens=1), own)
    assert short.provenance is Provenance.DERIVED
    assert long.provenance is Provenance.ESTIMATED


@pytest.mark.parametrize(
    ("model", "usage"),
    [
        ("mine", None),
        ("mine", Usage()),
        ("mine", Usage(input_tokens=5)),
        ("mine", Usage(total_tokens=5)),
        ("mine", Usage(input_tokens=-5, output_tokens=5)),
        ("mine", Usage(input_tokens=5, output_tokens=10**400)),
        ("nobody", Usage(input_tokens=5, output_tokens=5)),
        (None, Usage(input_tokens=5, output_tokens=5)),
    ],
)
def test_the_price_of_an_unknown_model_or_usage_is_unknown(
    model: str | None, usage: Usage | None
) -> None:
    assert price(model, usage, OWN) is UNKNOWN
    assert UNKNOWN.amount is None and UNKNOWN.provenance is Provenance.UNKNOWN
