"""Which model is meant, and what is said when there is none."""

from __future__ import annotations

import pytest

from dragoman.errors import UsageError
from dragoman.events.parts import Choice, Option
from dragoman.hub.models import match, model_option

CHOICES = (
    Choice("gpt-5", "GPT-5"),
    Choice("gpt-5-mini", "GPT-5 mini"),
    Choice("gemini-3-pro-preview", "Gemini 3 Pro"),
)


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ("gpt-5", "gpt-5"),
        ("GPT-5 mini", "gpt-5-mini"),
        ("Gpt-5-Mini", "gpt-5-mini"),
        ("gemini-3-pro", "gemini-3-pro-preview"),
        ("gpt-5-preview", "gpt-5"),
    ],
)
def test_a_model_is_found_by_value_by_name_and_with_or_without_preview(
    wanted: str, value: str
) -> None:
    assert match(wanted, CHOICES, peer="x") == value


def test_an_unknown_model_is_an_error_that_lists_all_and_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        match("gtp-5-mini", CHOICES, peer="codex")
    assert "codex has no model 'gtp-5-mini'; did you mean gpt-5-mini?" in str(caught.value)
    assert "gpt-5, gpt-5-mini, gemini-3-pro-preview" in str(caught.value)


def test_two_that_fit_are_an_error_and_an_exact_one_is_not() -> None:
    twins = (Choice("pro", "a"), Choice("PRO", "b"))
    assert match("pro", twins, peer="x") == "pro"
    with pytest.raises(UsageError, match="could be pro and PRO: say which"):
        match("Pro", twins, peer="x")


def test_one_model_under_two_names_is_one() -> None:
    assert match("Pro", (Choice("pro-1", "pro"), Choice("pro-1", "Pro")), peer="x") == "pro-1"
    assert match("PRO", (Choice("pro-1", "pro"), Choice("pro-1", "Pro")), peer="x") == "pro-1"


def test_the_option_for_models_is_the_one_of_that_category_with_choices() -> None:
    mode = Option("mode", "Mode", "a", CHOICES, "mode")
    empty = Option("m0", "Model", "a", (), "model")
    model = Option("m1", "Model", "gpt-5", CHOICES, "model")
    assert model_option((mode, empty, model)) is model
    assert model_option((mode,)) is None
