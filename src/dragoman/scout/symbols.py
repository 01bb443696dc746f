"""A name in a repository: where it is defined, where it is used, who calls it.

Owns the sorting of lines into definitions and uses while a search runs, within bounds, and their
order in an answer. What makes a line a definition is in `definitions`; who finds the lines is
`search`; how it is told is `answers`.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import Final, NamedTuple

from dragoman.errors import ServiceError
from dragoman.scout import languages, outline
from dragoman.scout.definitions import (
    EXPORT,
    LOCAL,
    TRUE,
    VALUE,
    DefinitionMark,
    classify,
    is_call,
    name_pattern,
)
from dragoman.scout.file_reader import FileReader
from dragoman.scout.hits import Hit

MAX_HITS: Final = 200_000
"""Lines that are looked at for one name: a second's work. Names that stand in more are words of the
language, and then the answer says that it is not complete."""

MAX_KEPT: Final = 2000
"""Places of each kind that are kept."""

MAX_LOOKED_INTO: Final = 40
"""Files that are opened to see what stands around a line."""

_SEPARATORS: Final = re.compile(r"::|\.|#|->|/|\\")
_TESTS: Final = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__)/|(?:^|/)(?:test_[^/]*|[^/]*_test\.\w+"
    r"|[^/]*[._]spec\.\w+|[^/]*\.test\.\w+|[^/]*Tests?\.\w+|conftest\.py)$"
)
_FOREIGN: Final = re.compile(r"(?:^|/)(?:vendor|third_party|external|dist|build|generated)/")


class Defined(NamedTuple):
    """A place that defines the name."""

    mark: DefinitionMark
    hit: Hit


def is_test(path: str) -> bool:
    """Whether a file is a test, by its name."""
    return _TESTS.search(path) is not None


def split_name(symbol: str) -> tuple[str, str]:
    """A name and what it belongs to: ``Session.prompt`` is ``prompt`` of ``Session``."""
    parts = [part for part in _SEPARATORS.split(symbol.strip("$@~.:#")) if part]
    if not parts:
        return symbol, ""
    return parts[-1], parts[-2] if len(parts) > 1 else ""


class Sightings:
    """Takes lines as they are found, and sorts them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.definitions: list[Defined] = []
        self.uses: list[Hit] = []
        self.calls: list[Hit] = []
        self.use_count = 0
        self.call_count = 0
        self.files: Counter[str] = Counter()
        """How often each file uses the name."""
        self._seen = 0

    def __call__(self, hit: Hit) -> bool:
        """One line; False if that was enough."""
        self._seen += 1
        language = languages.of_path(hit.path)
        if name_pattern(self.name, language.family).search(hit.text) is None:
            return self._seen < MAX_HITS
        mark = classify(hit.text, self.name, language, hit.path)
        if mark is not None and len(self.definitions) < MAX_KEPT:
            self.definitions.append(Defined(mark, hit))
        if mark is None or mark.rank >= LOCAL:
            self.use_count += 1
            self.files[hit.path] += 1
            if len(self.uses) < MAX_KEPT:
                self.uses.append(hit)
        if mark is None and is_call(hit.text, self.name, language):
            self.call_count += 1
            if len(self.calls) < MAX_KEPT:
                self.calls.append(hit)
        return self._seen < MAX_HITS

    @property
    def known(self) -> bool:
        """Whether the name stands anywhere at all."""
        return bool(self.definitions or self.use_count)

    def best(self) -> list[Defined]:
        """The definitions that answer the question, the likeliest first.

        What is only assigned somewhere counts if there is nothing better.
        """
        named = _modules_named(self.exports())
        ranked = sorted(
            self.definitions,
            # What the package itself passes on is what people mean by the name.
            key=lambda each: (each.mark.rank, not _is_named(each.hit.path, named), *_order(each)),
        )
        for allowed in ((TRUE, VALUE), (LOCAL,)):
            chosen = [each for each in ranked if each.mark.rank in allowed]
            if chosen:
                return chosen
        return []

    def exports(self) -> list[Defined]:
        """Where it is passed on, or only announced."""
        return sorted((d for d in self.definitions if d.mark.rank == EXPORT), key=_order)

    def other_uses(self) -> list[Hit]:
        """Uses without the lines that are shown as its definitions."""
        shown = {(each.hit.path, each.hit.line) for each in self.best()}
        return sorted(
            (hit for hit in self.uses if (hit.path, hit.line) not in shown),
            key=lambda hit: (is_test(hit.path), hit.path, hit.line),
        )

    def in_order(self, hits: list[Hit]) -> list[Hit]:
        return sorted(hits, key=lambda hit: (is_test(hit.path), hit.path, hit.line))


_MODULE: Final = re.compile(r"""(?:from|import|require\()\s*["']?[./]*([\w./-]+)""")


def _modules_named(exports: list[Defined]) -> set[str]:
    """The modules that exporting lines take the name from, with dots between the parts."""
    return {
        found.replace("/", ".").strip(".")
        for each in exports
        for found in _MODULE.findall(each.hit.text)
    }


def _is_named(path: str, modules: set[str]) -> bool:
    dotted = path.rpartition(".")[0].replace("/", ".").removesuffix(".__init__")
    return any(dotted == module or dotted.endswith(f".{module}") for module in modules)


def _order(defined: Defined) -> tuple[int, bool, bool, bool, bool, str, int]:
    path = defined.hit.path
    return (
        defined.mark.rank,
        # A stub file announces what another file defines.
        path.endswith((".pyi", ".d.ts")),
        _FOREIGN.search(path) is not None,
        is_test(path),
        # A function of a module before a method of the same name.
        defined.hit.text[:1].isspace(),
        path,
        defined.hit.line,
    )


def belonging(
    found: list[Defined], container: str, reader: FileReader, stop: threading.Event
) -> list[Defined]:
    """Those of the definitions that stand in a class, or whatever it is, of that name."""
    kept: list[Defined] = []
    lines: dict[str, list[str]] = {}
    for each in found:
        path = each.hit.path
        if path not in lines:
            if len(lines) >= MAX_LOOKED_INTO:
                continue
            try:
                lines[path] = reader.all_lines(path, stop)
            except ServiceError:
                lines[path] = []
        index = each.hit.line - 1
        if index < len(lines[path]) and outline.is_inside(
            lines[path], index, container, languages.of_path(path)
        ):
            kept.append(each)
    return kept


def callers(hits: list[Hit], reader: FileReader, stop: threading.Event) -> list[tuple[Hit, str]]:
    """Each call with the name of the function that it stands in, where that can be seen."""
    lines: dict[str, list[str]] = {}
    told: list[tuple[Hit, str]] = []
    for hit in hits:
        if hit.path not in lines and len(lines) < MAX_LOOKED_INTO:
            try:
                lines[hit.path] = reader.all_lines(hit.path, stop)
            except ServiceError:
                lines[hit.path] = []
        known = lines.get(hit.path, [])
        name = outline.enclosing_function(known, hit.line - 1) if hit.line <= len(known) else ""
        told.append((hit, name))
    return told
