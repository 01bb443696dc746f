"""What a line of a chat means, its completions, and the pages of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.cli.chat_commands import (
    COMMANDS,
    OwnCommand,
    choice_page,
    cost_page,
    help_page,
    meaning_of,
    piped_meaning,
    suggestions,
)
from dragoman.errors import UsageError
from dragoman.events.parts import Cost, SlashCommand, Usage

THEIRS = (SlashCommand("dance", "Dance a little", "where"), SlashCommand("model", "Theirs"))


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("/model", OwnCommand("model", "")),
        ("  /model  gpt 5 ", OwnCommand("model", "gpt 5")),
        ("/exit", OwnCommand("quit", "")),
        ("/peers", OwnCommand("peer", "")),
        ("/dance home", "/dance home"),
        ("//model", "/model"),
        ("//", "/"),
        ("/usr/bin/python is old", "/usr/bin/python is old"),
        ("/", "/"),
        ("hello /model", "hello /model"),
    ],
)
def test_a_line_is_a_command_of_ours_or_a_prompt(line: str, meant: OwnCommand | str) -> None:
    assert meaning_of(line, ["dance"]) == meant


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("/help", OwnCommand("help", "")),
        (" /exit\n", OwnCommand("quit", "")),
        ("/model", "/model"),
        ("quit", "quit"),
    ],
)
def test_without_a_terminal_only_three_commands_exist(line: str, meant: OwnCommand | str) -> None:
    assert piped_meaning(line) == meant


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("/modle x", "did you mean /mode or /model? //modle sends it as text"),
        ("/danse", "did you mean /dance? //danse sends it as text"),
        ("/zzzzzz", "/help lists the commands. //zzzzzz sends it as text"),
        ("/cost all", "/cost takes no argument"),
    ],
)
def test_an_unknown_command_is_an_error_with_a_suggestion(line: str, advice: str) -> None:
    with pytest.raises(UsageError) as caught:
        meaning_of(line, ["dance"])
    assert advice in str(caught.value)


def test_help_names_every_command_and_how_to_reach_one_that_ours_hides() -> None:
    page = help_page(THEIRS, keys=True)
    assert all(f"  /{name}" in page for name in COMMANDS)
    assert "  /dance where " in page and "  //model " in page and "Alt-Enter, Ctrl-J" in page
    assert "Alt-Enter" not in help_page((), keys=False)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_fits_the_terminal(width: int) -> None:
    theirs = (SlashCommand("review", "Look at what has changed and say what is wrong " * 4),)
    lines = help_page(theirs, keys=True, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line.startswith("  ") for line in lines)


# -- completion


def completed(text: str, workspace: Path = Path("/")) -> list[str]:
    """The texts after the completion."""
    names = {"model": [("small", ""), ("large", ""), ("bad name", ""), ("evil\x1b[2J", "")]}
    found = suggestions(
        text, theirs=THEIRS, names=lambda name: names.get(name, ()), workspace=workspace
    )
    return [text[: len(text) - each.replaces] + each.text for each in found]


def test_commands_of_both_sides_and_the_names_behind_them_are_completed() -> None:
    assert completed("/mod") == ["/model", "/mode"]
    assert completed("/d") == ["/dance"]
    assert completed("/model l") == ["/model large"]
    assert completed("/model ") == ["/model small", "/model large"]
    assert completed("/cost ") == completed("//mod") == completed("mod") == []


def test_files_of_the_workspace_are_completed_where_one_is_mentioned(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "src" / "deep").mkdir(parents=True)
    for name in ("setup.py", "some notes.md", ".hidden", "src/main.py", 'src/a"b'):
        (root / name).write_text("")
    (tmp_path / "secret").write_text("")
    assert completed("look at @s", root) == [
        "look at @setup.py",
        'look at @"some notes.md"',
        "look at @src/",
    ]
    assert completed("@src/", root) == ["@src/deep/", "@src/main.py"]
    assert completed('@"some n', root) == ['@"some notes.md"']
    assert completed("@.h", root) == ["@.hidden"]
    assert (
        completed("me@s", root) == completed("@../s", root) == completed("@/etc/pass", root) == []
    )


# -- pages


def test_the_value_in_use_is_marked_also_if_it_is_not_offered() -> None:
    assert choice_page("mode", [("a", "A"), ("b", "B")], "b") == "  a  A\n* b  B\n"
    assert choice_page("mode", [("a", "A")], "x") == "* x\n  a  A\n"
    assert choice_page("mode", [], None) == "the agent does not report its modes\n"


def test_the_cost_is_the_sum_of_the_turns_and_says_what_is_unknown() -> None:
    paid = Usage(input_tokens=1000, output_tokens=5, cost=Cost(0.25, "USD"))
    assert cost_page([]) == "no turns yet\n"
    assert cost_page([paid, paid]) == "2 turns, 2,000 in + 10 out tokens, 0.5000 USD\n"
    assert cost_page([paid, None]) == (
        "2 turns, 1,000 in + 5 out tokens, 0.2500 USD, cost of 1 unknown\n"
    )
    assert cost_page([None]) == "1 turn, cost of all unknown\n"
