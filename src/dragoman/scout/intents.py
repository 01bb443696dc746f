"""What scout can be asked for, as values.

Owns the closed set of intents: a question or a command becomes one of them, and one of them becomes
an answer. It does not know how people put it (`questions`, `commands`) nor how it is found out
(`answering`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

TAGS: Final = ("TODO", "FIXME", "XXX", "HACK", "BUG")
"""The words by which people mark what is left to do."""


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a name is defined."""

    symbol: str


@dataclass(frozen=True, slots=True)
class Uses:
    """Where a name is used, its definition left out."""

    symbol: str


@dataclass(frozen=True, slots=True)
class Callers:
    """Who calls a function."""

    symbol: str


@dataclass(frozen=True, slots=True)
class FindText:
    """Where some words stand, exactly so."""

    text: str


@dataclass(frozen=True, slots=True)
class FindFiles:
    """Files by name (a part of it, or with wildcards), or by language."""

    pattern: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """What is in a folder, so many levels deep."""

    path: str = ""
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """What there is: folders, languages, entry points."""

    path: str = ""


@dataclass(frozen=True, slots=True)
class Todos:
    """What is marked as left to do."""

    tags: tuple[str, ...] = TAGS
    words: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed lately, as git tells it."""

    count: int | None = None
    since: str = ""
    author: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file, or some lines of it. A negative `first` counts from the end."""

    path: str
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """How many files and lines there are."""

    path: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class Readme:
    """What the README says."""


@dataclass(frozen=True, slots=True)
class EntryPoints:
    """Where the programs of the repository begin."""


@dataclass(frozen=True, slots=True)
class Tests:
    """Where the tests are, or those about one thing."""

    about: str = ""


@dataclass(frozen=True, slots=True)
class Help:
    """What scout can do."""


@dataclass(frozen=True, slots=True)
class Save:
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
    | Changes
    | ReadFile
    | Count
    | Readme
    | EntryPoints
    | Tests
    | Help
    | Save
)
