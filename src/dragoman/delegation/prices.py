"""Cost of a turn: price list per model, token arithmetic, and the provenance of the amount.

A cost reported by the peer takes precedence over a computed one, and the user's ``prices.toml``
over the list in this package. `store.ledger` stores the amounts.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from dragoman.config.safe_files import read_file
from dragoman.decoders import convert_typed
from dragoman.errors import ConfigInvalid
from dragoman.events.parts import Usage
from dragoman.store.ledger.records import plausible_count
from dragoman.store.values import DOLLARS, UNKNOWN, Charge, Provenance
from dragoman.wire.messages import UNDECODABLE

MILLION: Final = 1_000_000
FILE_NAME: Final = "prices.toml"

Rate = Annotated[float, Meta(ge=0)]


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of one model for a million tokens."""

    input: Rate
    output: Rate
    cache_read: Rate | None = None
    """Cached input; if not set, it costs as much as other input."""
    cache_write: Rate | None = None
    long_prompt: int | None = None
    """The number of input tokens from which another price applies. That price is not listed, so the
    cost of such a turn counts as an estimate."""
    currency: str = DOLLARS
    date: datetime.date | None = None
    """The day on which the price was looked up."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    models: dict[str, Price]


@functools.cache
def listed_prices() -> Mapping[str, Price]:
    """Return the prices that come with dragoman."""
    text = resources.files("dragoman.delegation").joinpath(FILE_NAME).read_bytes()
    return convert_typed(msgspec.toml.decode(text), _File).models


def read_prices(config: Path) -> Mapping[str, Price]:
    """Return the user's own prices from `prices.toml` in the configuration directory; empty if
    there is none.

    Raises `ConfigInvalid` if the file cannot be read: a wrong price is worse than none.
    """
    file = config / FILE_NAME
    data = read_file(file)
    if data is None:
        return {}
    try:
        return convert_typed(msgspec.toml.decode(data), _File).models
    except UNDECODABLE as error:
        raise ConfigInvalid(str(file), str(error)) from error


def price_of(model: str | None, prices: Mapping[str, Price] | None = None) -> Price | None:
    """Return the price of a model, or None if it is unknown. `prices` are the user's own and take
    precedence over the list."""
    if not model:
        return None
    # Gateways put the provider before the name: openai/gpt-5.
    plain = model.rsplit("/", 1)[-1].lower()
    for known in (prices or {}, listed_prices()):
        for wanted in (model.lower(), plain):
            fitting = [name for name in known if _stands_for(name.lower(), wanted)]
            if fitting:
                return known[max(fitting, key=len)]
    return None


_RELEASES: Final = ("latest", "preview", "exp")


def _stands_for(name: str, model: str) -> bool:
    """Return whether a name in the list means this model or one of its releases."""
    if model == name:
        return True
    rest = model.removeprefix(f"{name}-")
    # Another word after the hyphen is another model with its own price: gpt-5-pro.
    return rest != model and (rest[0:1].isdigit() or rest.split("-")[0] in _RELEASES)


def price(
    model: str | None, usage: Usage | None, prices: Mapping[str, Price] | None = None
) -> Charge:
    """Return the cost of a turn: the one that the peer reported, else one computed from its tokens
    and the model's price, else `UNKNOWN`. `prices` are the user's own."""
    if usage is None:
        return UNKNOWN
    if usage.cost is not None and math.isfinite(usage.cost.amount) and usage.cost.amount >= 0:
        return Charge(
            amount=usage.cost.amount, currency=usage.cost.unit, provenance=Provenance.REPORTED
        )
    found = price_of(model, prices)
    read, written = map(plausible_count, (usage.input_tokens, usage.output_tokens))
    if found is None or read is None or written is None:
        # A cost computed from only one of the two counts would be too low.
        return UNKNOWN
    fresh, guessed = read, False
    cost = 0.0
    for cached, rate in (
        (plausible_count(usage.cache_read_tokens), found.cache_read),
        (plausible_count(usage.cache_write_tokens), found.cache_write),
    ):
        if cached:
            # Some peers count these as part of their input, others separately, and none of them
            # says which.
            guessed = True
            if cached <= fresh:
                fresh -= cached
            cost += cached * (found.input if rate is None else rate)
    if found.long_prompt is not None and read >= found.long_prompt:
        guessed = True
    cost += fresh * found.input + written * found.output
    return Charge(
        amount=cost / MILLION,
        currency=found.currency,
        provenance=Provenance.ESTIMATED if guessed else Provenance.DERIVED,
    )
