"""List TODO, FIXME and similar marks in comments.

A mark is distinguished from a word in a sentence or a name. `turn_context` searches the files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from dragoman.scout import languages
from dragoman.scout.hits import Hit
from dragoman.scout.markdown import bullet, code, count, listed, paragraphs, place
from dragoman.scout.questions import Todos
from dragoman.scout.turn_context import ScoutAnswer, TurnContext, reservations

MAX_LISTED: Final = 50


def is_mark(text: str, tags: Sequence[str], path: str) -> bool:
    """Return whether one of the tags is a mark in this line, rather than a part of a name.

    In code it must be in a comment, either at its start or followed by a colon or a bracket. In
    prose it only has to be a word of its own.
    """
    word = "|".join(tags)
    language = languages.of_path(path)
    if not language.is_code:
        return re.search(rf"(?:^|[\s>*\-\[(#`])(?:{word})(?=[:(\]\s!]|$)", text) is not None
    signs = [re.escape(sign) for sign in language.comments] or ["#", "//"]
    opening = "|".join([*signs, '"""', "'''", "<!--", r"\{#", r"\{/\*"])
    comment = re.search(rf"(?:{opening})", text)
    if comment is None:
        return False
    rest = text[comment.end() :]
    return (
        re.match(rf"[\s*!/#\-@\[(]*(?:{word})(?!\w)", rest) is not None
        or re.search(rf"(?<!\w)(?:{word})(?=\s*[:(\]])", rest) is not None
    )


async def answer(context: TurnContext, asked: Todos) -> ScoutAnswer:
    """List the TODO comments and similar marks."""
    named = " and ".join(asked.tags) if len(asked.tags) < 3 else "marks such as TODO"
    await context.plan(f"Search for {named}", "Answer")
    under = (
        await context.in_thread(lambda _: context.reader.folder(asked.path)) if asked.path else ""
    )
    hits: list[Hit] = []
    words = asked.words.lower()

    def take(hit: Hit) -> None:
        if words in hit.text.lower() and is_mark(hit.text, asked.tags, hit.path):
            hits.append(hit)

    title = f"Search for {', '.join(asked.tags)}"
    patterns = {tag: rf"\b{tag}\b" for tag in asked.tags}
    found = await context.search(title, patterns, take, lambda: hits, under)
    await context.step()
    where = f" in {place(under)}" if under else ""
    about = f" about {code(asked.words)}" if asked.words else ""
    missed = reservations(found)
    if not hits:
        return ScoutAnswer(paragraphs(f"I found no {named}{about}{where}.", missed))
    pattern = re.compile(rf"(?<!\w)({'|'.join(asked.tags)})(?!\w)")
    kinds = Counter(tag[1] for hit in hits if (tag := pattern.search(hit.text)))
    tally = ", ".join(f"{number:,} {tag}" for tag, number in kinds.most_common())
    files = len({hit.path for hit in hits})
    number = count(len(hits), "place")
    verb = "is" if len(hits) == 1 else "are"
    head = f"There {verb} {number}{about}{where} in {count(files, 'file')} ({tally}):"
    lines = listed([bullet(hit) for hit in hits[:MAX_LISTED]], len(hits))
    return ScoutAnswer(paragraphs(head, lines, missed))
