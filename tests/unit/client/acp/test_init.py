"""The names of the typed client."""

from __future__ import annotations

import pytest

from dragoman.client import acp
from dragoman.client.results import Result


def test_every_public_name_is_there() -> None:
    assert [name for name in acp.__all__ if getattr(acp, name).__name__ != name] == []


def test_the_former_name_of_a_result_works_for_one_release() -> None:
    with pytest.warns(DeprecationWarning, match="Result"):
        assert acp.TurnResult is Result


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        acp.Nothing  # noqa: B018
