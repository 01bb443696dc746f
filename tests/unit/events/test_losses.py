"""Losses are data: parts that have words, and names of capabilities that exist."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.dialects.acp.v1 import translate as acp
from dragoman.dialects.legacy import chained, keyed, oneshot, tagged, threads
from dragoman.events.losses import Loss, Part, parts_of
from dragoman.events.parts import Capabilities

EVERY = [acp.LOSSES, oneshot.LOSSES, threads.LOSSES, tagged.LOSSES, keyed.LOSSES, chained.LOSSES]
NAMES = {field.name for field in msgspec.structs.fields(Capabilities)}


@pytest.mark.parametrize("losses", EVERY)
def test_a_loss_names_capabilities_that_exist(losses: tuple[Loss, ...]) -> None:
    assert {name for loss in losses for name in loss.cannot} <= NAMES


@pytest.mark.parametrize("losses", EVERY)
def test_no_part_is_lost_twice(losses: tuple[Loss, ...]) -> None:
    parts = [part for loss in losses for part in loss.parts]
    assert len(set(parts)) == len(parts)
    assert parts_of(losses) == set(parts)


def test_every_part_is_lost_by_somebody() -> None:
    assert frozenset.union(*map(parts_of, EVERY)) == set(Part)
