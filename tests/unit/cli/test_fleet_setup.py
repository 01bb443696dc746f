"""Shared functions of the fleet commands."""

from __future__ import annotations

import pytest

from dragoman.cli import shared_options
from dragoman.cli.fleet_setup import require_positive, words_of
from dragoman.errors import UsageError
from tests.unit.cli.calling import Shell


def test_a_list_of_words_is_split_at_commas_without_empty_words() -> None:
    assert words_of(" linux, gpu,,") == ("linux", "gpu")
    assert words_of(None) == ()


def test_a_number_that_is_not_positive_is_rejected() -> None:
    require_positive("--lease", 0.1)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="--lease"):
            require_positive("--lease", wrong)


def test_without_the_extra_the_error_says_what_to_install(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_options, "find_spec", lambda name: None)
    said = shell("fleet", "jobs")
    assert said.code == 2 and "dragoman[fleet]" in said.err
