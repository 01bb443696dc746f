"""Answers about names in programs, and about words as they stand.

Owns the steps from a name to its definitions, uses and callers, and how they are told. The lines
are sorted by `symbols`; what was not found is said, and a name that stands nowhere is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, assert_never

from dragoman.errors import ServiceError
from dragoman.scout import languages, symbols
from dragoman.scout.hits import Hit, Query
from dragoman.scout.intents import Callers, Definition, FindText, Uses
from dragoman.scout.markdown import bullet, code, count, fence, paragraphs, place
from dragoman.scout.symbols import Defined, Sightings
from dragoman.scout.turn_context import ScoutAnswer, TurnContext, reservations

MAX_LISTED: Final = 30
"""Places that are listed; the answer says how many there are."""

MAX_DEFINITIONS: Final = 12
SNIPPET: Final = 10
"""Lines of the best definition that are shown."""

MAX_TEXTS: Final = 20_000
"""Lines that are taken in a search for some words."""

Asked: TypeAlias = Definition | Uses | Callers | FindText


async def answer(context: TurnContext, asked: Asked) -> ScoutAnswer:
    """Answer a question about a name or some words."""
    match asked:
        case Definition():
            return await _definition(context, asked.symbol)
        case Uses():
            return await _uses(context, asked.symbol)
        case Callers():
            return await _callers(context, asked.symbol)
        case FindText():
            return await _text(context, asked.text)
        case _ as never:
            assert_never(never)


class _Name:
    """A name that was looked for, and what was found of it."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.name, self.container = symbols.split_name(symbol)
        self.seen = Sightings(self.name)
        self.best: list[Defined] = []
        self.note = ""
        """What has to be said about the answer before it is given."""
        self.missed = ""

    async def look(
        self, context: TurnContext, title: str, shown: Callable[[], Sequence[Hit]]
    ) -> None:
        """Search, and choose the definitions that are meant. `shown` is what was looked for."""
        seen = self.seen
        searched = await context.search(
            f"{title} {code(self.name)}",
            Query((self.name,)),
            seen,
            shown,
        )
        self.missed = reservations(searched)
        self.best = seen.best()
        if self.container and self.best:
            found, container = self.best, self.container
            inside = await context.in_thread(
                lambda stop: symbols.belonging(found, container, context.reader, stop)
            )
            if inside:
                self.best = inside
            else:
                self.note = f"I found no {code(self.symbol)} as such; this is {code(self.name)}."

    def unknown(self) -> ScoutAnswer:
        text = f"I found no {code(self.symbol)} in this folder."
        return ScoutAnswer(paragraphs(text, self.missed), answered=False)


async def _definition(context: TurnContext, symbol: str) -> ScoutAnswer:
    await context.plan(f"Search for {code(symbol)}", "Tell definitions from uses", "Answer")
    asked = _Name(symbol)
    seen = asked.seen
    await asked.look(
        context, "Search for", lambda: [each.hit for each in seen.best()] or seen.other_uses()
    )
    await context.step()
    if not seen.known:
        return asked.unknown()
    exports = seen.exports()
    if not asked.best:
        mentions = _listed(seen.other_uses(), 5, seen.use_count)
        told = [*_defined(exports), *mentions]
        text = f"I found no definition of {code(symbol)} in this folder, only mentions of it:"
        # It is used here and defined elsewhere, or in a way I do not know: not an answer.
        return ScoutAnswer(paragraphs(text, told, asked.missed), answered=False, symbol=symbol)
    first = asked.best[0]
    snippet = await _snippet(context, first.hit)
    await context.step()
    language = languages.of_path(first.hit.path)
    where = place(first.hit.path, first.hit.line)
    kind = f"{first.mark.kind}, {language.name}"
    if len(asked.best) == 1:
        head = f"{code(symbol)} is defined in {where} ({kind}):"
        rest: list[str] = []
    else:
        number = count(len(asked.best), "place")
        head = f"{code(symbol)} is defined in {number}. First of all in {where} ({kind}):"
        rest = _defined(asked.best[1:MAX_DEFINITIONS])
        if len(asked.best) > MAX_DEFINITIONS:
            rest.append(f"- … and {len(asked.best) - MAX_DEFINITIONS:,} more")
    passed_on = ["Passed on by:", *_defined(exports[:5])] if exports else []
    return ScoutAnswer(
        paragraphs(asked.note, head, snippet, rest, passed_on, asked.missed),
        symbol=symbol,
        path=first.hit.path,
    )


async def _uses(context: TurnContext, symbol: str) -> ScoutAnswer:
    await context.plan(f"Search for {code(symbol)}", "Leave out its definition", "Answer")
    asked = _Name(symbol)
    seen = asked.seen
    await asked.look(context, "Search for uses of", seen.other_uses)
    await context.step()
    if not seen.known:
        return asked.unknown()
    uses = seen.other_uses()
    shown_as_definition = seen.use_count - len(uses) if len(seen.uses) < symbols.MAX_KEPT else 0
    total = max(seen.use_count - shown_as_definition, len(uses))
    defined = ["Defined in:", *_defined(asked.best[:5])] if asked.best else []
    await context.step()
    if not uses:
        text = f"{code(symbol)} is not used anywhere in this folder."
        return ScoutAnswer(paragraphs(asked.note, text, defined, asked.missed), symbol=symbol)
    files = len({hit.path for hit in uses} | set(seen.files))
    head = f"{code(symbol)} is used in {count(total, 'place')} in {count(files, 'file')}:"
    return ScoutAnswer(
        paragraphs(asked.note, head, _listed(uses, MAX_LISTED, total), defined, asked.missed),
        symbol=symbol,
    )


async def _callers(context: TurnContext, symbol: str) -> ScoutAnswer:
    await context.plan(f"Search for calls of {code(symbol)}", "See what they stand in", "Answer")
    asked = _Name(symbol)
    seen = asked.seen
    await asked.look(context, "Search for calls of", lambda: seen.in_order(seen.calls))
    await context.step()
    if not seen.known:
        return asked.unknown()
    calls = seen.in_order(seen.calls)
    told = await context.in_thread(
        lambda stop: symbols.callers(calls[:MAX_LISTED], context.reader, stop)
    )
    await context.step()
    defined = ["Defined in:", *_defined(asked.best[:5])] if asked.best else []
    if not calls:
        text = f"Nobody calls {code(symbol)} in this folder."
        return ScoutAnswer(paragraphs(asked.note, text, defined, asked.missed), symbol=symbol)
    files = len({hit.path for hit in calls})
    lines = [bullet(hit, f"in {code(name)}:" if name else "") for hit, name in told]
    if seen.call_count > len(lines):
        lines.append(f"- … and {seen.call_count - len(lines):,} more")
    number = count(seen.call_count, "place")
    head = f"{code(symbol)} is called in {number} in {count(files, 'file')}:"
    return ScoutAnswer(paragraphs(asked.note, head, lines, defined, asked.missed), symbol=symbol)


async def _text(context: TurnContext, text: str) -> ScoutAnswer:
    shown = code(text)
    await context.plan(f"Search for {shown}", "Answer")
    if not text.strip():
        return ScoutAnswer("There is nothing to search for.", answered=False)
    hits: list[Hit] = []

    def sink(hit: Hit) -> bool:
        hits.append(hit)
        return len(hits) < MAX_TEXTS

    searched = await context.search(
        f"Search for {shown}", Query((text,), words=False), sink, lambda: sorted(hits)
    )
    await context.step()
    missed = reservations(searched)
    if not hits:
        return ScoutAnswer(paragraphs(f"{shown} stands nowhere in this folder.", missed))
    hits.sort()
    files = len({hit.path for hit in hits})
    head = f"{shown} stands in {count(len(hits), 'line')} in {count(files, 'file')}:"
    return ScoutAnswer(paragraphs(head, _listed(hits, MAX_LISTED, len(hits)), missed))


# -- telling


def _defined(found: Sequence[Defined]) -> list[str]:
    return [bullet(each.hit, f"({each.mark.kind}):") for each in found]


def _listed(hits: Sequence[Hit], limit: int, total: int) -> list[str]:
    lines = [bullet(hit) for hit in hits[:limit]]
    if total > limit:
        lines.append(f"- … and {total - min(limit, len(hits)):,} more")
    return lines


async def _snippet(context: TurnContext, hit: Hit) -> str:
    """The first lines of a definition."""
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
