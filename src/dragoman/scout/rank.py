"""Rank the files of a repository for the terms of a question, and say why.

Two steps, both deterministic. `shortlist` scores every file by its path and by how often each term
occurs in it. `judge` reads the lines of one file and finds its best place. Rare terms weigh more. A
term in a file's name weighs most, then in the name of a definition, then in the first lines, then
in the text; terms close together weigh more. Tests, generated files, documents and data rank lower.
Pure: `answers.best_places` reads the files.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from dragoman.scout import languages
from dragoman.scout.definitions import LOCAL, DefinitionMark, defined_in
from dragoman.scout.symbols import is_generated, is_test
from dragoman.scout.terms import matches, split_words, text_pattern

SHORTLIST_SIZE: Final = 120
"""Maximum number of files whose lines are read."""

IN_NAME: Final = 4.0
IN_FOLDERS: Final = 1.0
IN_DEFINITION: Final = (2.0, 1.2, 0.5)
"""Scores of a term in the name of a definition, by the rank of the definition."""
IN_HEAD: Final = 1.5
IN_TEXT: Final = 1.0
CLOSE: Final = 1.0
"""Scores of a term by where it is found, and an additional one (`CLOSE`) for terms that are close
together. Each is multiplied by the weight of the term."""

HEAD_LINES: Final = 10
"""Number of lines at the start of a file, which usually describe it."""

WINDOW: Final = 4
"""Number of lines within which terms count as close together."""

MANY: Final = 16
"""Maximum number of lines with a term that count towards the score."""

_OF_TESTS: Final = {"test", "tests", "tested", "testing", "spec", "specs"}
_OF_DOCUMENTS: Final = {"doc", "docs", "document", "documented", "documentation"}

InPath: TypeAlias = dict[str, tuple[float, bool]]
"""The terms in a path: how well each matches, and whether it is in the file's own name."""


class RankedPlace(NamedTuple):
    """The best place of a file."""

    path: str
    line: int
    text: str
    score: float
    terms: int
    """How many of the terms the file has, in its path or its text."""
    reasons: tuple[str, ...]


class Weights:
    """The weight of each term, and which kinds of files the question is about."""

    def __init__(self, terms: Mapping[str, float], words: Iterable[str] = ()) -> None:
        self.terms = terms
        self.patterns = {term: re.compile(text_pattern(term)) for term in terms}
        self._total = sum(terms.values()) or 1.0
        self._tests = not _OF_TESTS.isdisjoint(words)
        self._documents = not _OF_DOCUMENTS.isdisjoint(words)

    def sum(self, terms: Iterable[str]) -> float:
        return sum(self.terms[term] for term in terms)

    def covered(self, terms: Iterable[str]) -> float:
        """Return the share of the question's total weight that these terms have."""
        return self.sum(terms) / self._total

    def kind(self, path: str) -> float:
        """Return the factor for a file by its kind (test, document, data, generated): below 1 if
        the question is unlikely to be about such files, above 1 if it asks for them."""
        language = languages.of_path(path)
        factor = 0.4 if is_generated(path) else 1.0
        if is_test(path):
            return factor * (1.5 if self._tests else 0.35)
        if language.family == "prose":
            return factor * (2.0 if self._documents else 0.45)
        return factor * (1.0 if language.is_code else 0.4)


def weigh(
    terms: Iterable[str], files: int, found_in: Mapping[str, int], words: Iterable[str]
) -> Weights:
    """Return the weights of terms: the fewer files contain a term, the more it weighs. `files` is
    the number of all files, `found_in` that of the files with each term. `words` are all words of
    the question, which may ask for tests or documents."""
    rarity = {term: math.log(1.5 + files / (1 + found_in.get(term, 0))) for term in terms}
    return Weights(rarity, list(words))


def path_terms(path: str, terms: Iterable[str]) -> InPath:
    """Return the terms that a path contains, and how well each matches."""
    lower = path.lower()
    # Most paths have none, which this check shows at once: matching words share a prefix.
    terms = [term for term in terms if term[:4] in lower]
    if not terms:
        return {}
    folders, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    if stem in ("__init__", "index", "mod", "main", "__main__"):
        folders, _, stem = folders.rpartition("/")
    own, above = split_words(stem), split_words(folders)
    found: InPath = {}
    for term in terms:
        in_name = max((matches(term, word) for word in own), default=0.0)
        in_folders = max((matches(term, word) for word in above), default=0.0)
        if in_name or in_folders:
            found[term] = max(in_name, in_folders), in_name >= in_folders
    return found


def _path_score(path: str, found: InPath, weights: Weights) -> float:
    # A shorter name is more specific: `framing.py` before `framing_of_the_other_kind.py`.
    hits = sum(own for _, own in found.values())
    words = len(split_words(path.rpartition("/")[2].partition(".")[0])) if hits else 1
    in_name = IN_NAME * (0.6 + 0.4 * hits / max(words, hits, 1))
    return sum(
        weights.terms[term] * fit * (in_name if own else IN_FOLDERS)
        for term, (fit, own) in found.items()
    )


def _text_score(counts: Mapping[str, int], weights: Weights) -> float:
    return IN_TEXT * sum(
        weights.terms[term] * min(1.0, math.log1p(number) / math.log1p(MANY))
        for term, number in counts.items()
    )


def shortlist(
    paths: Iterable[str], counts: Mapping[str, Mapping[str, int]], weights: Weights
) -> list[str]:
    """Return up to `SHORTLIST_SIZE` files worth reading, best first, judged by their paths and by
    how often terms occur in them."""
    scored: list[tuple[float, str]] = []
    for path in paths:
        inside, found = counts.get(path, {}), path_terms(path, weights.terms)
        if found or inside:
            score = _path_score(path, found, weights) + _text_score(inside, weights)
            scored.append((-score * weights.covered({*found, *inside}), path))
    # The kind of a file takes longer to find, so only the better ones are examined.
    better = heapq.nsmallest(10 * SHORTLIST_SIZE, scored)
    best = sorted((score * weights.kind(path), path) for score, path in better)
    return [path for _, path in best[:SHORTLIST_SIZE]]


def judge(
    path: str, lines: Sequence[str], counts: Mapping[str, int], weights: Weights
) -> RankedPlace:
    """Return the best place in a file, with its score and the reasons for it. `counts` are the
    numbers of lines with each term."""
    in_path = path_terms(path, weights.terms)
    on_line = {
        number: found
        for number, line in enumerate(lines, 1)
        if (found := {term for term, each in weights.patterns.items() if each.search(line)})
    }
    defined, defined_at, mark = _best_definition(path, lines, on_line, weights)
    head = set().union(*(on_line.get(number, ()) for number in range(1, HEAD_LINES + 1)))
    near, near_at = _nearest(on_line, weights)
    score = (
        _path_score(path, in_path, weights)
        + defined
        + IN_HEAD * weights.sum(head)
        + _text_score(counts, weights)
        + (CLOSE * weights.sum(near) if len(near) > 1 else 0.0)
    )
    has = {*in_path, *counts}
    score *= weights.covered(has) * weights.kind(path)
    is_shown = mark is not None and mark.rank < LOCAL and defined >= weights.sum(near)
    at = defined_at if is_shown else near_at or 1
    reasons = []
    if in_path:
        own = any(own for _, own in in_path.values())
        reasons.append("by its name" if own else "by its directory")
    if mark is not None and mark.rank < LOCAL:
        reasons.append(f"defines the {mark.kind} `{mark.name}`")
    if len(near) > 1:
        reasons.append(f"{len(near)} of the words close together")
    elif head:
        reasons.append("its first lines mention it")
    text = lines[at - 1] if at <= len(lines) else ""
    return RankedPlace(path, at, text, score, len(has), tuple(reasons or ["mentions it"]))


def _best_definition(
    path: str, lines: Sequence[str], on_line: Mapping[int, set[str]], weights: Weights
) -> tuple[float, int, DefinitionMark | None]:
    """Return the best matching definition: its score, its line, and what it is."""
    language = languages.of_path(path)
    best: tuple[float, int, DefinitionMark | None] = (0.0, 0, None)
    for number, terms in on_line.items():
        mark = defined_in(lines[number - 1], language)
        if mark is None:
            continue
        words = split_words(mark.name)
        fits = sum(
            weights.terms[term] * max((matches(term, word) for word in words), default=0.0)
            for term in terms
        )
        # A short matching name is more specific than a long one that contains the term.
        score = fits * IN_DEFINITION[mark.rank] * (0.7 + 0.3 / max(1, len(words)))
        if score > best[0]:
            best = score, number, mark
    return best


def _nearest(on_line: Mapping[int, set[str]], weights: Weights) -> tuple[set[str], int]:
    """Return the terms in the best group of `WINDOW` lines, and the line in it that contains the
    most; an empty set and 0 if no line has a term."""
    best: tuple[float, set[str], int] = (0.0, set(), 0)
    for number in on_line:
        window = range(number, number + WINDOW)
        terms = set().union(*(on_line.get(each, ()) for each in window))
        if weights.sum(terms) > best[0]:
            most = max(window, key=lambda each: (len(on_line.get(each, ())), -each))
            best = weights.sum(terms), terms, most
    return best[1], best[2]
