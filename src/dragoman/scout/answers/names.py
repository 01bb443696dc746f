"""Answer questions about names in programs, and about lines with an exact text.

`symbols` sorts the lines into definitions, uses and calls. If a name has no match, the nearest
places are listed, but the question is not answered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from dragoman.errors import ServiceError
from dragoman.scout import languages, symbols
from dragoman.scout.answers import best_places
from dragoman.scout.definitions import LOCAL, TRUE
from dragoman.scout.file_reader import FileReader
from dragoman.scout.hits import Hit
from dragoman.scout.markdown import bullet, code, count, fence, listed, paragraphs, place
from dragoman.scout.questions import BestPlaces, Definition, Uses
from dragoman.scout.symbols import Defined, Sightings
from dragoman.scout.terms import literal_pattern
from dragoman.scout.turn_context import ScoutAnswer, TurnContext, reservations

MAX_LISTED: Final = 30
"""Maximum number of places to list; the answer says how many there are."""

MAX_DEFINITIONS: Final = 12
SNIPPET: Final = 10
"""Number of lines of the best definition to show."""

MAX_LOOKED_INTO: Final = 40
"""Maximum number of files to open to find the context of a line."""


class _Name:
    """A name that was searched for, and its matches."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.name, self.container = symbols.split_name(symbol)
        self.seen = Sightings(self.name)
        self.best: list[Defined] = []
        self.note = ""
        """What to say before the answer."""
        self.missed = ""

    @property
    def found(self) -> str:
        """The name that the answer is about."""
        return code(self.name if self.note else self.symbol)

    async def look(
        self, context: TurnContext, title: str, shown: Callable[[], Sequence[Hit]]
    ) -> None:
        """Search, and choose the relevant definitions. `shown` returns the lines to show in the
        tool call."""
        patterns = {self.name: literal_pattern(self.name)}
        found = await context.search(f"{title} {code(self.name)}", patterns, self.seen, shown)
        self.missed = reservations(found)
        self.best = self.seen.best()
        if self.container and self.best:
            hits = [each.hit for each in self.best]
            around = await context.in_thread(lambda stop: _around(context.reader, hits, stop))
            inside = [
                each
                for each, names in zip(self.best, around, strict=True)
                if self.container in names or f"{self.container}::" in each.hit.text
            ]
            if inside:
                self.best = inside
            else:
                self.note = f"I found no {code(self.symbol)}; this is {code(self.name)}."
        await context.step()

    async def unknown(self, context: TurnContext) -> ScoutAnswer:
        text = f"I found no {code(self.symbol)} in this directory."
        near = await best_places.nearest(context, self.symbol)
        return ScoutAnswer(paragraphs(text, near, self.missed), answered=False)


async def definition(context: TurnContext, asked: Definition) -> ScoutAnswer:
    """Answer where a name is defined."""
    symbol = asked.symbol
    await context.plan(f"Search for {code(symbol)}", "Tell definitions from uses", "Answer")
    name = _Name(symbol)
    seen = name.seen
    await name.look(
        context, "Search for", lambda: [each.hit for each in seen.best()] or seen.other_uses()
    )
    if asked.question and not _is_meant(asked.question, name.best):
        return await best_places.answer(context, BestPlaces(asked.question))
    if not seen.known:
        return await name.unknown(context)
    if not name.best:
        mentions = listed([bullet(hit) for hit in seen.other_uses()[:5]], len(seen.uses))
        text = f"I found no definition of {code(symbol)} in this directory, only mentions of it:"
        # The name is used here but defined elsewhere, or in a way that scout does not recognise, so
        # this is not an answer.
        return ScoutAnswer(paragraphs(text, mentions, name.missed), answered=False, symbol=symbol)
    first = name.best[0]
    snippet = await _snippet(context, first.hit)
    await context.step()
    where = place(first.hit.path, first.hit.line)
    kind = f"{first.mark.kind}, {languages.of_path(first.hit.path).name}"
    head = f"{name.found} is defined in {where} ({kind}):"
    if len(name.best) > 1:
        number = count(len(name.best), "place")
        head = f"{name.found} is defined in {number}. The best match is {where} ({kind}):"
    rest = listed(_defined(name.best[1:MAX_DEFINITIONS]), len(name.best) - 1)
    text = paragraphs(name.note, head, snippet, rest, name.missed)
    return ScoutAnswer(text, symbol=symbol, path=first.hit.path)


async def uses(context: TurnContext, asked: Uses) -> ScoutAnswer:
    """Answer where a name is used or called."""
    symbol, calls = asked.symbol, asked.calls
    what, verb = ("calls", "called") if calls else ("uses", "used")
    await context.plan(f"Search for {what} of {code(symbol)}", "Leave out its definition", "Answer")
    name = _Name(symbol)
    seen = name.seen

    def wanted() -> list[Hit]:
        return symbols.in_order(seen.calls) if calls else seen.other_uses()

    await name.look(context, f"Search for {what} of", wanted)
    if not seen.known:
        return await name.unknown(context)
    hits = wanted()
    shown = hits[:MAX_LISTED]
    around = await context.in_thread(lambda stop: _around(context.reader, shown, stop))
    lines = [
        bullet(hit, f"in {code(names[0])}:" if names and calls else "")
        for hit, names in zip(shown, around, strict=True)
    ]
    files = count(len({hit.path for hit in hits}), "file")
    head = f"{name.found} is {verb} in {count(len(hits), 'place')} in {files}:"
    if not hits:
        head = f"{name.found} is not {verb} anywhere in this directory."
    defined = ["Defined in:", *_defined(name.best[:5])] if name.best else []
    text = paragraphs(name.note, head, listed(lines, len(hits)), defined, name.missed)
    return ScoutAnswer(text, symbol=symbol)


async def text_lines(context: TurnContext, text: str) -> ScoutAnswer:
    """List the lines that contain exactly this text."""
    shown = code(text)
    await context.plan(f"Search for {shown}", "Answer")
    hits: list[Hit] = []
    patterns = {text: literal_pattern(text)}
    found = await context.search(f"Search for {shown}", patterns, hits.append, lambda: hits)
    await context.step()
    missed = reservations(found)
    if not hits:
        return ScoutAnswer(paragraphs(f"{shown} does not occur in this directory.", missed))
    files = len({hit.path for hit in hits})
    head = f"{shown} occurs in {count(len(hits), 'line')} in {count(files, 'file')}:"
    lines = listed([bullet(hit) for hit in hits[:MAX_LISTED]], len(hits))
    return ScoutAnswer(paragraphs(head, lines, missed))


def _is_meant(question: str, best: Sequence[Defined]) -> bool:
    """Return whether a word in a question is meant as a name, judged by its best definition and the
    question: "where is the parser?" is rarely about a variable."""
    if not best or best[0].mark.rank == LOCAL:
        return False
    is_main = best[0].mark.rank == TRUE and not symbols.is_test(best[0].hit.path)
    return is_main or "defin" in question or "declar" in question


def _defined(found: Sequence[Defined]) -> list[str]:
    return [bullet(each.hit, f"({each.mark.kind}):") for each in found]


def _around(reader: FileReader, hits: Sequence[Hit], stop: threading.Event) -> list[list[str]]:
    """Return the names of the functions and types that contain each place, from the inside out.
    Only the first few files are read."""
    files: dict[str, list[str]] = {}
    found = []
    for hit in hits:
        if hit.path not in files:
            try:
                few = len(files) < MAX_LOOKED_INTO
                files[hit.path] = reader.all_lines(hit.path, stop) if few else []
            except ServiceError:
                files[hit.path] = []
        lines = files[hit.path]
        marks = symbols.around(lines, hit.line - 1, hit.path) if hit.line <= len(lines) else []
        found.append([mark.name for mark in marks])
    return found


async def _snippet(context: TurnContext, hit: Hit) -> str:
    """Return the first lines of a definition in a fence; only the found line if they cannot be
    read."""
    title = f"Read {place(hit.path, hit.line)}"
    raw = {"path": hit.path if hit.path.isprintable() else "", "line": hit.line}
    async with context.tool(title, "read", "read", raw) as call:
        try:
            part = await context.in_thread(
                lambda stop: context.reader.part(hit.path, hit.line, hit.line + SNIPPET - 1, stop)
            )
        except ServiceError as error:
            await call.fail(str(error))
            return fence([hit.text])
        await context.report(call, [hit], count(len(part.lines), "line"))
    lines = part.lines
    while lines and not lines[-1].strip():
        lines.pop()
    return fence(lines, languages.of_path(hit.path))
