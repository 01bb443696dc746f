"""Split a question or a name into search terms.

Drops stop words, splits camelCase and snake_case, and removes endings. A term stands for a word in
any form: `fram` for "frame", "frames" and "framing". Pure: `rank` scores files by terms, `search`
counts them in files.
"""

from __future__ import annotations

import functools
import re
from typing import Final

MAX_TERMS: Final = 8
"""Maximum number of terms in one question. Every file with a match is searched for each of them."""

STOP_WORDS: Final = frozenset(
    "a about actually after all also am an and any anything anywhere are as at be been before "
    "being but by can come comes could did do does doing done each either else ever every exactly "
    "for found from get gets give go goes going good got had happen happened happening happens has "
    "have having he hello help here hey hi how i if in inside into is it its just kept know let "
    "like live lives located look looked looking looks me my need no not now of off ok okay on one "
    "only onto or our out over please quickly s say says scout see she should show so some "
    "somewhere tell than thank thanks that the their them then there these they thing things this "
    "those through to under until up us very want was way we were what when where which while who "
    "whose why will with within without would you your".split()
)
"""Words that carry no meaning for a search."""

VAGUE_WORDS: Final = frozenset(
    "called class declaration declare declared declares define defined "
    "defines definition explain file files find function handle handled handles implement "
    "implementation implemented implements locate logic made make makes method module place "
    "places project repo repository responsible source used uses using work works".split()
)
"""Words that are typical of questions about code. They count only in a question without other
words."""

_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_ENDINGS: Final = (
    "ations", "ation", "ments", "ment", "ings", "ing", "ions", "ion", "ed", "es", "ly", "s", "e",
)  # fmt: skip


@functools.lru_cache(maxsize=50_000)
def split_words(name: str) -> tuple[str, ...]:
    """Return the words of a name or path in lower case:

    `HTTPServer.run_all` is http, server, run, all.
    """
    return tuple(part.lower() for part in _PARTS.findall(name))


@functools.lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return a word without its ending, as in query for queries and run for running. An ending is
    removed only if at least four letters stand before it, or three before a plural s."""
    if word.endswith(("ies", "ied")) and len(word) > 5:
        return f"{word[:-3]}y"
    for ending in _ENDINGS:
        left = len(word) - len(ending)
        if word.endswith(ending) and left >= (3 if ending == "s" else 4):
            if word.endswith("ss"):
                return word
            stemmed = word[:left]
            doubled = ending in ("ing", "ings", "ed") and stemmed[-1:] == stemmed[-2:-1]
            return stemmed[:-1] if doubled and stemmed[-1] not in "sl" else stemmed
    return word


def terms_of(text: str) -> dict[str, str]:
    """Return up to `MAX_TERMS` terms of a question in order, each with its original word."""
    found: dict[str, str] = {}
    vague: dict[str, str] = {}
    for word in re.findall(r"\w[\w'’]*", text):
        if word.lower().partition("'")[0].partition("’")[0] in STOP_WORDS:
            continue
        for part in split_words(word):
            if (len(part) > 1 or not part.isascii()) and part not in STOP_WORDS:
                (vague if part in VAGUE_WORDS else found).setdefault(stem(part), part)
    return dict(list((found or vague).items())[:MAX_TERMS])


def text_pattern(term: str) -> str:
    """Return a regular expression for a term at the start of a word, or at a capital letter inside
    one, as for `all` in `runAll`. A term that is not ASCII is matched anywhere.

    The letters come first: Python skips to a set of letters many times faster than to a boundary.
    """
    if not term.isascii():
        return re.escape(term)
    letters = "".join(f"[{letter}{letter.upper()}]" for letter in term)
    size = len(term)
    camel = f"(?<=[a-z]{term[0].upper()}.{{{size - 1}}})"
    return f"{letters}(?:(?<![A-Za-z].{{{size}}})|{camel})"


def literal_pattern(text: str) -> str:
    """Return a regular expression, for Python and ripgrep alike, for exactly this text."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def matches(term: str, word: str) -> float:
    """Return how well a word matches a term: 1 if the word is a form of the term, 0.5 if it begins
    with the term or is a beginning of it with at least four letters, otherwise 0."""
    if stem(word) == term:
        return 1.0
    begins = word.startswith(term) or (len(word) >= 4 and term.startswith(word))
    return 0.5 if begins else 0.0
