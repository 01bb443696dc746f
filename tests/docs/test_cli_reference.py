"""The pages about the command line match the command line."""

from __future__ import annotations

import re

import pytest

from dragoman.cli.exit_codes import MEANINGS, ExitCode
from dragoman.cli.output.jsonl import of_error, of_report
from dragoman.cli.output.renderer import TurnReport
from dragoman.cli.reference import helps, page
from dragoman.client.results import Result
from dragoman.errors import DragomanError
from dragoman.events.words import Outcome
from tests.docs.markdown import ROOT, section, table

REFERENCE = ROOT / "docs" / "reference"


def test_the_reference_is_what_help_says() -> None:
    again = "run python -m dragoman.cli.reference > docs/reference/cli.md"
    assert (REFERENCE / "cli.md").read_text("utf-8") == page(), again


HELPS = dict(helps())


def examples(text: str) -> list[str]:
    """Return the usage lines of a help text."""
    return text.partition("Examples:\n")[2].split("\n\n")[0].splitlines()


@pytest.mark.parametrize("path", HELPS, ids=" ".join)
def test_every_help_text_teaches_by_example(path: tuple[str, ...]) -> None:
    assert any(" ".join(path) in line for line in examples(HELPS[path]))


def test_every_example_calls_a_command_with_options_that_it_has() -> None:
    calls = [
        call.split()
        for text in HELPS.values()
        for line in examples(text)
        for call in re.findall(r"dragoman [^|)]*", line.partition(" -- ")[0])
    ]
    for words in calls:
        path = max((p for p in HELPS if tuple(words[: len(p)]) == p), key=len)
        # A group without a subcommand runs its default one.
        said = r"^  {}\s(?:(?!^  \S).)*The default\."
        pages = [path] + [
            sub
            for sub in HELPS
            if sub[:-1] == path
            and re.search(said.format(sub[-1]), HELPS[path], re.MULTILINE | re.DOTALL)
        ]
        options = [
            option
            for page in pages
            for option in re.findall(r"(?<!\S)--[a-z-]+", HELPS[page].partition("\nOptions:\n")[2])
        ]
        used = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        assert used <= {*options}, words
    assert len(calls) > len(HELPS)


def test_the_table_of_exit_codes_is_the_one_in_the_code() -> None:
    rows = table(section(REFERENCE / "exit-codes.md", "Exit codes"))
    assert rows == [[str(int(each)), f"`{each.name}`", MEANINGS[each]] for each in ExitCode]


def test_every_field_of_a_result_and_of_an_error_is_documented() -> None:
    result = Result(Outcome.OK, "text")
    report = TurnReport(peer="p", session="s", result=result, seconds=1.0, exit_code=0)
    for name, told in (("Result", of_report(report)), ("Error", of_error(DragomanError("x")))):
        rows = table(section(REFERENCE / "cli-json.md", name))
        assert [cells[0] for cells in rows] == [f"`{field}`" for field in told]
