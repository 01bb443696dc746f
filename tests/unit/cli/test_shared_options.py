"""Options that commands share: one spelling and one explanation for each."""

from __future__ import annotations

from typing import get_args

from dragoman.cli.prompt_options import FORMATS
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat, Preset, YesOption
from dragoman.config.schema import Permissions


def test_formats_are_those_that_users_know() -> None:
    assert [each.value for each in ListFormat] == ["text", "json", "quiet"] == list(FORMATS)


def test_the_presets_are_those_of_the_settings() -> None:
    assert {preset.value for preset in Preset} == set(get_args(Permissions))


def test_every_shared_option_has_a_help_text() -> None:
    for option in (CwdOption, FormatOption, YesOption):
        _, info = get_args(option)
        assert info.help.endswith(".")
