"""Table of the slash commands: names, inputs, descriptions, examples.

`questions.of_command` reads the input of each. This module is loaded at start-up and contains only
data.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ScoutCommand(NamedTuple):
    """A slash command of scout: its name, the hint for its input, a description and an example."""

    name: str
    hint: str
    description: str
    example: str


COMMANDS: Final = (
    ScoutCommand("search", "WORDS", "The best matches for some words", "/search line framing"),
    ScoutCommand("find", "NAME", "Where a name is defined", "/find connect"),
    ScoutCommand("uses", "NAME", "Where a name is used", "/uses Session.prompt"),
    ScoutCommand("calls", "NAME", "Which functions call a function", "/calls parse_range"),
    ScoutCommand("text", "WORDS", "Lines that contain exactly this text", "/text not found"),
    ScoutCommand("layout", "[DIRECTORY]", "Directories, languages and entry points", "/layout"),
    ScoutCommand(
        "todo",
        "[TAG] [in DIRECTORY] [WORDS]",
        "TODO, FIXME and similar comments",
        "/todo FIXME in src",
    ),
    ScoutCommand("read", "FILE[:FIRST-LAST]", "A file, or lines of it", "/read app.py:10-20"),
    ScoutCommand("save", "FILE", "Write the last answer to a file, after asking", "/save notes.md"),
    ScoutCommand("help", "", "What scout can do", "/help"),
)
