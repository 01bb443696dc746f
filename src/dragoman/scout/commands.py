"""Slash commands, and what each of them asks for.

Owns the table: names, hints, descriptions, and how the input of each is read. A command is the
short and exact way to put what `questions` understands in plain English. It is pure; `agent`
offers the commands to clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dragoman.scout import languages, phrases
from dragoman.scout.intents import (
    TAGS,
    Callers,
    CountFiles,
    Definition,
    FindFiles,
    FindText,
    Folder,
    Help,
    Intent,
    Layout,
    ReadFile,
    RecentChanges,
    Save,
    Todos,
    Uses,
)


@dataclass(frozen=True, slots=True)
class ScoutCommand:
    """One row. `read` makes an intent of the input, or None if that is no input for it."""

    name: str
    hint: str
    description: str
    example: str
    read: Callable[[str], Intent | None]


def _named(kind: Callable[[str], Intent]) -> Callable[[str], Intent | None]:
    def read(words: str) -> Intent | None:
        name = phrases.symbol(words)
        return None if name is None else kind(name)

    return read


def _required(kind: Callable[[str], Intent]) -> Callable[[str], Intent | None]:
    def read(words: str) -> Intent | None:
        return kind(words.strip("`'\"“”")) if words.strip("`'\"“” ") else None

    return read


def _read_file(words: str) -> Intent | None:
    path, first, last = phrases.line_range(words)
    return ReadFile(path, first, last) if path else None


def _files(words: str) -> Intent | None:
    known = languages.named(words)
    if known is not None:
        return FindFiles(language=known.name)
    return FindFiles(words) if words else None


def _count(words: str) -> Intent | None:
    known = languages.named(words) if words else None
    return CountFiles(language=known.name) if known else CountFiles(words)


_TODO_PATH: Final = re.compile(r"(?:^|\s)in (\S+)")


def _todos(words: str) -> Intent | None:
    path = ""
    if match := _TODO_PATH.search(words):
        path, words = match[1], words[: match.start()] + words[match.end() :]
    rest = words.split()
    tags = tuple(word for word in rest if word in TAGS)
    others = [word for word in rest if word not in TAGS]
    return Todos(tags or TAGS, " ".join(others).removeprefix("about "), path)


_SINCE: Final = re.compile(r"(?:^|\s)since (.+)")
_BY: Final = re.compile(r"(?:^|\s)by (\S+)")


def _changes(words: str) -> Intent | None:
    since = author = path = ""
    count = None
    if match := _SINCE.search(words):
        since, words = match[1].strip(), words[: match.start()]
    if match := _BY.search(words):
        author, words = match[1], words[: match.start()] + words[match.end() :]
    for word in words.split():
        if word.isdecimal() and len(word) < 5:
            count = int(word)
        elif word != "in":
            path = word
    return RecentChanges(count, since, author, path)


COMMANDS: Final = (
    ScoutCommand("find", "NAME", "Where a name is defined", "/find connect", _named(Definition)),
    ScoutCommand("uses", "NAME", "Where a name is used", "/uses Session.prompt", _named(Uses)),
    ScoutCommand("calls", "NAME", "Who calls a function", "/calls parse_range", _named(Callers)),
    ScoutCommand(
        "text",
        "WORDS",
        "Where some words stand, exactly so",
        "/text not found",
        _required(FindText),
    ),
    ScoutCommand(
        "files", "PATTERN or LANGUAGE", "Files by name or by language", "/files *.toml", _files
    ),
    ScoutCommand(
        "tree",
        "[FOLDER]",
        "A folder with what is below it",
        "/tree src",
        lambda words: Folder(words, depth=3),
    ),
    ScoutCommand(
        "layout",
        "[FOLDER]",
        "Folders, languages and entry points",
        "/layout",
        lambda words: Layout(words),
    ),
    ScoutCommand(
        "todo",
        "[TAG] [in FOLDER] [WORDS]",
        "What is marked as left to do",
        "/todo FIXME in src",
        _todos,
    ),
    ScoutCommand(
        "changes",
        "[COUNT] [PATH] [by AUTHOR] [since WHEN]",
        "What changed lately, as git tells it",
        "/changes 5 src since yesterday",
        _changes,
    ),
    ScoutCommand(
        "read", "FILE[:FIRST-LAST]", "A file, or lines of it", "/read app.py:10-20", _read_file
    ),
    ScoutCommand(
        "count", "[FOLDER or LANGUAGE]", "How many files and lines there are", "/count src", _count
    ),
    ScoutCommand(
        "save",
        "FILE",
        "Write the last answer to a file, after asking",
        "/save notes.md",
        _required(Save),
    ),
    ScoutCommand("help", "", "What scout can do", "/help", lambda words: Help()),
)

BY_NAME: Final = {command.name: command for command in COMMANDS}
