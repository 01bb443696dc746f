"""Sort the lines that contain a name into definitions, uses and calls while a search runs.

Also finds the context of a line, by indentation. `definitions` decides what is a definition;
`answers.names` presents the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dragoman.scout import languages
from dragoman.scout.definitions import (
    LOCAL,
    TRUE,
    DefinitionMark,
    defined_in,
    is_call,
    name_pattern,
)
from dragoman.scout.hits import Hit

_SEPARATORS: Final = re.compile(r"::|\.|#|->|/|\\")
_TESTS: Final = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__)/|(?:^|/)(?:test_[^/]*|[^/]*_test\.\w+"
    r"|[^/]*[._]spec\.\w+|[^/]*\.test\.\w+|[^/]*Tests?\.\w+|conftest\.py)$"
)
_GENERATED: Final = re.compile(
    r"(?:^|/)(?:vendor|third_party|external|dist|build|generated|snapshots?|fixtures)/"
    r"|(?:^|/)[^/]*(?:\.min\.\w+|\.lock|-lock\.\w+|_pb2\w*\.py|\.generated\.\w+|\.snap)$"
)


class Defined(NamedTuple):
    """A place that defines the name."""

    mark: DefinitionMark
    hit: Hit


def is_test(path: str) -> bool:
    """Return whether a file is a test, by its name."""
    return _TESTS.search(path) is not None


def is_generated(path: str) -> bool:
    """Return whether a file is generated or third-party, by its name."""
    return _GENERATED.search(path) is not None


def split_name(symbol: str) -> tuple[str, str]:
    """Return the name in a symbol and its owner, which is empty if it has none: ``Session.prompt``
    is ``prompt`` of ``Session``."""
    parts = [part for part in _SEPARATORS.split(symbol.strip("$@~.:#")) if part]
    if not parts:
        return symbol, ""
    return parts[-1], parts[-2] if len(parts) > 1 else ""


class Sightings:
    """Sorts the lines that contain a name into definitions, uses and calls, as they are found."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.definitions: list[Defined] = []
        self.uses: list[Hit] = []
        self.calls: list[Hit] = []

    def __call__(self, hit: Hit) -> None:
        """Add one line, unless it does not contain the name."""
        language = languages.of_path(hit.path)
        if name_pattern(self.name, language.family).search(hit.text) is None:
            return
        mark = defined_in(hit.text, language)
        if mark is not None and mark.name == self.name:
            self.definitions.append(Defined(mark, hit))
            if mark.rank == LOCAL:
                self.uses.append(hit)
            return
        self.uses.append(hit)
        if is_call(hit.text, self.name, language):
            self.calls.append(hit)

    @property
    def known(self) -> bool:
        """Whether the name occurs anywhere."""
        return bool(self.definitions or self.uses)

    def best(self) -> list[Defined]:
        """Return the definitions that answer the question, most likely first.

        Those of the rank `LOCAL`, such as plain assignments, count only if there are no others.
        """
        ranked = sorted(self.definitions, key=_order)
        return [each for each in ranked if each.mark.rank < LOCAL] or ranked

    def other_uses(self) -> list[Hit]:
        """Return the uses of the name, without the lines that `best` returns."""
        shown = {(each.hit.path, each.hit.line) for each in self.best()}
        return in_order(hit for hit in self.uses if (hit.path, hit.line) not in shown)


def in_order(hits: Iterable[Hit]) -> list[Hit]:
    """Sort places by path and line, tests last."""
    return sorted(hits, key=lambda hit: (is_test(hit.path), hit.path, hit.line))


def _order(defined: Defined) -> tuple[int, bool, bool, bool, bool, str, int]:
    path = defined.hit.path
    return (
        defined.mark.rank,
        # A stub file only declares what another file defines.
        path.endswith((".pyi", ".d.ts")),
        is_generated(path),
        is_test(path),
        # A function of a module before a method of the same name.
        defined.hit.text[:1].isspace(),
        path,
        defined.hit.line,
    )


def around(lines: Sequence[str], index: int, path: str) -> list[DefinitionMark]:
    """Return the functions and types that contain a line, from the inside out, by indentation."""
    language = languages.of_path(path)
    found: list[DefinitionMark] = []
    indent = _indent(lines[index])
    for at in range(index - 1, -1, -1):
        if indent == 0:
            break
        line = lines[at]
        # A brace belongs to the line above it, which names its owner.
        if not line.strip(" \t{}()[];,") or _indent(line) >= indent:
            continue
        indent = _indent(line)
        mark = defined_in(line, language)
        if mark is not None and mark.rank == TRUE:
            found.append(mark)
    return found


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())
