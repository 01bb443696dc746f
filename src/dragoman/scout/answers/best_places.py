"""Answer any question with the best places for its words, and say why each was chosen.

`search` counts the words in all files, `rank` orders the files and picks the lines. `nearest` lists
places for a name that `names` did not find.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import Final

from dragoman.errors import ServiceError
from dragoman.scout import rank
from dragoman.scout.commands import COMMANDS
from dragoman.scout.file_reader import FileReader
from dragoman.scout.hits import Hit
from dragoman.scout.markdown import clip, code, count, paragraphs, place
from dragoman.scout.questions import QUESTIONS, BestPlaces
from dragoman.scout.rank import RankedPlace
from dragoman.scout.search import count_lines, find_files_with
from dragoman.scout.terms import literal_pattern, terms_of, text_pattern
from dragoman.scout.turn_context import ScoutAnswer, TurnContext, reservations

MAX_PLACES: Final = 8
MAX_NEAREST: Final = 3

FEW: Final = 1 / 3
"""A question counts as answered only if more than this share of its words was found."""


async def answer(context: TurnContext, asked: BestPlaces) -> ScoutAnswer:
    """Answer a question with the places that match its words best."""
    terms = terms_of(asked.text)
    words = list(terms.values())
    if not terms:
        return ScoutAnswer(cannot("It contains nothing to search for."), answered=False)
    named = ", ".join(code(word) for word in words)
    await context.plan(f"Search for {named}", "Rank the files", "Answer")
    places, missing, missed = await find_places(context, asked.text, terms)
    if asked.why_not:
        head = cannot(asked.why_not)
        listed = ["These places may help:", *_listed(places[:MAX_NEAREST])] if places else []
        return ScoutAnswer(paragraphs(head, listed, missed), answered=False)
    lost = f"Nothing found for {', '.join(code(terms[term]) for term in missing)}."
    if not places or len(terms) - len(missing) <= FEW * len(terms):
        near = ["The nearest places:", *_listed(places[:MAX_NEAREST])] if places else []
        return ScoutAnswer(paragraphs(lost, near, missed, cannot("")), answered=False)
    head = f"The best {count(len(places), 'place')} for {named}:"
    if len(places) == 1:
        head = f"The best place for {named}:"
    most = max(each.terms for each in places)
    partly = f"No file has more than {most} of these words." if most < len(terms) else ""
    told = paragraphs(head, _listed(places), lost if missing else partly, missed)
    return ScoutAnswer(told, path=places[0].path)


async def nearest(context: TurnContext, symbol: str) -> list[str]:
    """Return the best places for the words of a name that was not found, as lines; empty if there
    are none."""
    terms = terms_of(symbol)
    if not terms:
        return []
    places, _, _ = await find_places(context, symbol, terms)
    return ["The nearest places:", *_listed(places[:MAX_NEAREST])] if places else []


async def find_places(
    context: TurnContext, text: str, terms: dict[str, str]
) -> tuple[list[RankedPlace], list[str], str]:
    """Return the best places, the terms without a match, and what the search may have missed."""
    title = f"Search for {', '.join(terms.values())}"
    async with context.tool(title, "search", "search", {"terms": list(terms.values())}, "") as call:
        patterns = {term: text_pattern(term) for term in terms}
        any_of = "|".join(f"(?i:{literal_pattern(term)})" for term in terms)
        found = await find_files_with(context.root, any_of, list_all=True)
        counts = await context.in_thread(
            lambda stop: count_lines(context.root, patterns, found, stop)
        )
        files: Counter[str] = Counter()
        for path in found.files:
            files.update({*rank.path_terms(path, terms), *counts.get(path, ())})
        await context.step()
        words = re.findall(r"\w+", text.lower())
        weights = rank.weigh(terms, len(found.files), files, words)
        places = await context.in_thread(
            lambda stop: _judged(context.reader, found.files, counts, weights, stop)
        )
        hits = [Hit(each.path, each.line, each.text) for each in places]
        await context.report_search(call, hits, found)
    await context.step()
    return places, [term for term in terms if not files[term]], reservations(found)


def _judged(
    reader: FileReader,
    files: list[str],
    counts: dict[str, dict[str, int]],
    weights: rank.Weights,
    stop: threading.Event,
) -> list[RankedPlace]:
    """Read the files on the shortlist, and return up to `MAX_PLACES` of their best places, best
    first."""
    places = []
    for path in rank.shortlist(files, counts, weights):
        try:
            lines = reader.all_lines(path, stop)
        except ServiceError:
            lines = []  # Only its path is known: it is a picture, or gone by now.
        places.append(rank.judge(path, lines, counts.get(path, {}), weights))
    return sorted(places, key=lambda each: (-each.score, each.path))[:MAX_PLACES]


def _listed(places: list[RankedPlace]) -> list[str]:
    lines = []
    for number, each in enumerate(places, 1):
        text = clip(each.text.strip())
        shown = f": {code(text)}" if text else ""
        lines.append(f"{number}. {place(each.path, each.line)} ({', '.join(each.reasons)}){shown}")
    return lines


def cannot(reason: str) -> str:
    """Return a text that says that a question cannot be answered, why, and which ones can."""
    examples = ", ".join(code(kind.examples[0]) for kind in QUESTIONS[:4])
    return (
        f"I cannot answer that.{f' {reason}' if reason else ''} I have no model: I answer"
        f" questions about the files in this directory, such as {examples}."
        f" {code('/help')} lists all I can do."
    )


def abilities() -> str:
    """Return every kind of question with an example, and every command."""
    return paragraphs(
        "I answer questions about the files in this directory by searching them, without a model:",
        [f"- {kind.asks}: {code(kind.examples[0])}" for kind in QUESTIONS],
        "There are also commands:",
        [f"- {code(f'/{each.name} {each.hint}'.strip())}: {each.description}" for each in COMMANDS],
    )
