from __future__ import annotations

from dragoman.agent import commands as syntax
from dragoman.scout.commands import COMMANDS
from dragoman.scout.questions import of_command


def test_every_command_can_be_offered_and_its_example_is_understood() -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    for command in COMMANDS:
        assert syntax.is_name(command.name)
        name, _, words = command.example.partition(" ")
        assert name == f"/{command.name}"
        assert of_command(command.name, words) is not None
