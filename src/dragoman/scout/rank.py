"""Rank the files of a repository for the terms of a question, and say why.

Two steps, both deterministic. `shortlist` takes every file by its path and by how often each term
stands in it. `judge` reads the lines of one file and finds its best place. Rare terms weigh more.
A term in a file's name weighs most, then in the name of a definition, then in the first lines,
then in the text; terms close together weigh more. Tests, generated files, documents and data come
later. Pure: `answers.best_places` reads the files.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dragoman.scout import languages
from dragoman.scout.definitions import LOCAL, DefinitionMark, defined_in
from dragoman.scout.symbols import is_generated, is_test
from dragoman.scout.terms import matches, split_words, text_pattern

SHORTLIST_SIZE: Final = 120
"""Files whose lines are read."""

IN_NAME: Final = 4.0
IN_FOLDERS: Final = 1.0
IN_DEFINITION: Final = 2.0
IN_HEAD: Final = 1.5
IN_TEXT: Final = 1.0
CLOSE: Final = 1.0
"""Weights of what speaks for a file, each multiplied by the weight of the term."""

HEAD_LINES: Final = 10
"""First lines of a file, which usually say what it is for."""

WINDOW: Final = 4
"""Lines within which terms are close together."""

MANY: Final = 16
"""Lines with a term beyond which more of them make no difference."""

_RANKS: Final = (1.0, 0.6, 0.25)


@dataclass(frozen=True, slots=True)
class RankedPlace:
    """The best place of a file."""

    path: str
    line: int
    text: str
    score: float
    found: frozenset[str]
    """The terms that speak for it."""
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Weights:
    """How much each term counts, and which kinds of files are asked for."""

    terms: dict[str, float]
    tests: bool = False
    documents: bool = False
    patterns: dict[str, re.Pattern[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.patterns = {
            term: re.compile(text_pattern(term), re.ASCII if term.isascii() else 0)
            for term in self.terms
        }

    @property
    def total(self) -> float:
        return sum(self.terms.values()) or 1.0

    def covered(self, found: Iterable[str]) -> float:
        """The share of the question that these terms are."""
        return sum(self.terms[term] for term in found) / self.total

    def kind(self, path: str) -> float:
        """How likely a file of this kind is meant."""
        language = languages.of_path(path)
        factor = 0.4 if is_generated(path) else 1.0
        if is_test(path):
            return factor * (1.5 if self.tests else 0.35)
        if language.family == "prose":
            return factor * (2.0 if self.documents else 0.45)
        return factor * (1.0 if language.is_code else 0.4)


def weigh(
    terms: Iterable[str], files: int, found_in: Mapping[str, int], *, words: Iterable[str] = ()
) -> Weights:
    """The weights of terms: the fewer files have one, the more it weighs."""
    asked = set(words)
    return Weights(
        {term: math.log(1.5 + files / (1 + found_in.get(term, 0))) for term in terms},
        tests=bool(asked & {"test", "tests", "tested", "testing", "spec", "specs"}),
        documents=bool(asked & {"doc", "docs", "document", "documented", "documentation"}),
    )


def path_terms(path: str, terms: Iterable[str]) -> dict[str, tuple[float, bool]]:
    """The terms in a path: how well each fits, and whether it stands in the file's own name."""
    lower = path.lower()
    # Most paths have none, which this tells in no time: words that fit begin alike.
    terms = [term for term in terms if term[:4] in lower]
    if not terms:
        return {}
    folders, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    if stem in ("__init__", "index", "mod", "main", "__main__"):
        folders, _, stem = folders.rpartition("/")
    own, above = split_words(stem), split_words(folders)
    found: dict[str, tuple[float, bool]] = {}
    for term in terms:
        in_name = max((matches(term, word) for word in own), default=0.0)
        in_folders = max((matches(term, word) for word in above), default=0.0)
        if in_name >= in_folders and in_name:
            found[term] = in_name, True
        elif in_folders:
            found[term] = in_folders, False
    return found


def _path_score(path: str, weights: Weights) -> tuple[float, dict[str, tuple[float, bool]]]:
    found = path_terms(path, weights.terms)
    if not found:
        return 0.0, found
    # A name that says nothing else says more: `framing.py` before `framing_of_the_other_kind.py`.
    words = len(split_words(path.rpartition("/")[2].partition(".")[0])) or 1
    hits = sum(1 for fit, own in found.values() if own)
    precise = 0.6 + 0.4 * hits / max(words, hits, 1)
    score = sum(
        weights.terms[term] * fit * (IN_NAME * precise if own else IN_FOLDERS)
        for term, (fit, own) in found.items()
    )
    return score, found


def _text_score(counts: Mapping[str, int], weights: Weights) -> float:
    return sum(
        IN_TEXT * weights.terms[term] * min(1.0, math.log1p(number) / math.log1p(MANY))
        for term, number in counts.items()
    )


def shortlist(
    paths: Iterable[str], counts: Mapping[str, Mapping[str, int]], weights: Weights
) -> list[str]:
    """The files that are worth reading, by their paths and by how often terms stand in them."""
    scored: list[tuple[float, str]] = []
    for path in paths:
        inside = counts.get(path, {})
        score, found = _path_score(path, weights)
        if found or inside:
            share = weights.covered({*found, *inside})
            scored.append((-share * (score + _text_score(inside, weights)), path))
    # What kind of file it is takes longer to tell, so only the better ones are asked.
    better = heapq.nsmallest(10 * SHORTLIST_SIZE, scored)
    best = sorted((score * weights.kind(path), path) for score, path in better)
    return [path for _, path in best[:SHORTLIST_SIZE]]


def judge(
    path: str, lines: Sequence[str], counts: Mapping[str, int], weights: Weights
) -> RankedPlace:
    """The best place in a file, its score and the reasons."""
    language = languages.of_path(path)
    path_score, in_path = _path_score(path, weights)
    on_line: dict[int, set[str]] = {}
    best_definition: tuple[float, int, DefinitionMark] | None = None
    for number, line in enumerate(lines, 1):
        found = {term for term, pattern in weights.patterns.items() if pattern.search(line)}
        if not found:
            continue
        on_line[number] = found
        mark = defined_in(line, language)
        if mark is None:
            continue
        words = split_words(mark.name)
        fits = sum(
            weights.terms[term] * max((matches(term, word) for word in words), default=0.0)
            for term in found
        )
        # A short name that fits says more than a long one in which the term stands, too.
        score = fits * _RANKS[mark.rank] * (0.7 + 0.3 / max(1, len(words)))
        if score and (best_definition is None or score > best_definition[0]):
            best_definition = score, number, mark
    head = set().union(*(on_line.get(number, set()) for number in range(1, HEAD_LINES + 1)))
    near, near_line = _nearest(on_line, weights)
    near_share = sum(weights.terms[term] for term in near)
    found_terms = frozenset({*in_path, *counts, *(t for each in on_line.values() for t in each)})
    score = (
        path_score
        + _text_score(counts, weights)
        + IN_HEAD * sum(weights.terms[term] for term in head)
        + (IN_DEFINITION * best_definition[0] if best_definition else 0.0)
        + (CLOSE * near_share if len(near) > 1 else 0.0)
    )
    score *= weights.covered(found_terms) * weights.kind(path)
    at = near_line or 1
    if best_definition and best_definition[2].rank < LOCAL and best_definition[0] >= near_share / 2:
        at = best_definition[1]
    text = lines[at - 1] if at <= len(lines) else ""
    reasons = _reasons(in_path, best_definition, head, near, counts)
    return RankedPlace(path, at, text, score, found_terms, reasons)


def _nearest(on_line: Mapping[int, set[str]], weights: Weights) -> tuple[set[str], int]:
    """The terms of the best few lines, and the line of them that has the most."""
    best: tuple[float, int, set[str]] = (0.0, 0, set())
    for number in sorted(on_line):
        window = range(number, number + WINDOW)
        terms = set().union(*(on_line.get(each, set()) for each in window))
        score = sum(weights.terms[term] for term in terms)
        if score > best[0]:
            most = max(window, key=lambda each: (len(on_line.get(each, ())), -each))
            best = score, most, terms
    return best[2], best[1]


def _reasons(
    in_path: Mapping[str, tuple[float, bool]],
    definition: tuple[float, int, DefinitionMark] | None,
    head: set[str],
    near: set[str],
    counts: Mapping[str, int],
) -> tuple[str, ...]:
    reasons = []
    if any(own for _, own in in_path.values()):
        reasons.append("by its name")
    elif in_path:
        reasons.append("by its folder")
    if definition is not None and definition[2].rank < LOCAL:
        kind = definition[2].kind
        reasons.append(f"defines the {kind} `{definition[2].name}`")
    if len(near) > 1:
        reasons.append(f"{len(near)} of the words close together")
    elif head:
        reasons.append("its first lines mention it")
    elif not reasons:
        number = sum(counts.values())
        reasons.append(f"mentions it {number} times" if number > 1 else "mentions it")
    return tuple(reasons)
