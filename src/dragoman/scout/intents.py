"""What scout can be asked for, as values.

Owns the closed set of intents: a question or a command becomes one of them, and one of them becomes
an answer. It does not know how people put it (`questions`, `commands`) nor how it is found out
(`answers`).

They are Structs because so many dataclasses take longer to make than scout's start is allowed to.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

TAGS: Final = ("TODO", "FIXME", "XXX", "HACK", "BUG")
"""The words by which people mark what is left to do."""


class Definition(Struct, frozen=True):
    """Where a name is defined."""

    symbol: str


class Uses(Struct, frozen=True):
    """Where a name is used, its definition left out."""

    symbol: str


class Callers(Struct, frozen=True):
    """Who calls a function."""

    symbol: str


class FindText(Struct, frozen=True):
    """Where some words stand, exactly so."""

    text: str


class FindFiles(Struct, frozen=True):
    """Files by name (a part of it, or with wildcards), or by language."""

    pattern: str = ""
    language: str = ""


class Folder(Struct, frozen=True):
    """What is in a folder, so many levels deep."""

    path: str = ""
    depth: int = 1


class Layout(Struct, frozen=True):
    """What there is: folders, languages, entry points."""

    path: str = ""


class Todos(Struct, frozen=True):
    """What is marked as left to do."""

    tags: tuple[str, ...] = TAGS
    words: str = ""
    path: str = ""


class RecentChanges(Struct, frozen=True):
    """What changed lately, as git tells it."""

    count: int | None = None
    since: str = ""
    author: str = ""
    path: str = ""


class ReadFile(Struct, frozen=True):
    """A file, or some lines of it. A negative `first` counts from the end."""

    path: str
    first: int | None = None
    last: int | None = None


class CountFiles(Struct, frozen=True):
    """How many files and lines there are."""

    path: str = ""
    language: str = ""


class Readme(Struct, frozen=True):
    """What the README says."""


class EntryPoints(Struct, frozen=True):
    """Where the programs of the repository begin."""


class Tests(Struct, frozen=True):
    """Where the tests are, or those about one thing."""

    about: str = ""


class Help(Struct, frozen=True):
    """What scout can do."""


class Save(Struct, frozen=True):
    """Write the last answer to a file."""

    path: str


Intent: TypeAlias = (
    Definition
    | Uses
    | Callers
    | FindText
    | FindFiles
    | Folder
    | Layout
    | Todos
    | RecentChanges
    | ReadFile
    | CountFiles
    | Readme
    | EntryPoints
    | Tests
    | Help
    | Save
)
