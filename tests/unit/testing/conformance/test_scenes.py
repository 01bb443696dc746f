"""What the probe says is what it means to say: strange where it should be, and only there."""

from __future__ import annotations

import json

import pytest

from dragoman.testing.conformance import scenes, shapes
from dragoman.testing.conformance.client_checks import CHECKS


def test_every_group_of_updates_belongs_to_a_check() -> None:
    assert scenes.UPDATES.keys() <= CHECKS.keys()


def test_early_and_late_updates_and_those_after_a_cancel_are_nothing_strange() -> None:
    for update in (*scenes.EARLY, *scenes.LATE, *scenes.AFTER_CANCEL, scenes.chunk("x")):
        assert shapes.update(update) == ""


def test_strange_updates_are_strange_and_still_have_what_is_required() -> None:
    strange = [u for us in list(scenes.UPDATES.values())[:2] for u in us if shapes.update(u)]
    assert len(strange) >= 6
    for updates in scenes.UPDATES.values():
        for update in updates:
            assert isinstance(update["sessionUpdate"], str)


def test_stray_answers_are_messages_and_noise_is_none() -> None:
    for line in scenes.STRAY.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"
    for line in scenes.ODD_JSON.splitlines():
        assert not json.loads(line) or not isinstance(json.loads(line), dict)
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(scenes.NOISE)


@pytest.mark.parametrize(
    ("capabilities", "good"),
    [
        (None, True),
        ({}, True),
        ({"fs": {"readTextFile": True}, "elicitation": {"form": {}, "url": None}}, True),
        ([], False),
        ({"terminal": "yes"}, False),
        ({"session": {"configOptions": {"boolean": True}}}, False),
    ],
)
def test_capabilities_of_a_client_are_judged(capabilities: object, good: bool) -> None:
    assert (scenes.client_capabilities(capabilities) == "") is good
