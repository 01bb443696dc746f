from __future__ import annotations

from typing import get_args

from dragoman.scout import intents


def test_every_intent_has_a_sentence_that_says_what_is_asked_for() -> None:
    kinds = get_args(intents.Intent)
    assert len(kinds) > 10
    for kind in kinds:
        assert kind.__doc__
        assert kind.__doc__.partition("\n")[0].endswith(".") or "." in kind.__doc__


def test_intents_are_values() -> None:
    assert intents.Definition("x") == intents.Definition("x")
    assert intents.Definition("x") != intents.Definition("y")
    assert hash(intents.Todos()) == hash(intents.Todos())
