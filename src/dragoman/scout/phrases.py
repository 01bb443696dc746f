"""Words and names in what people write: the small grammar that questions and commands share.

Owns how a question is trimmed to its core, what counts as a name, as a path and as a range of
lines. It does not know what is asked; `questions` and `commands` do.
"""

from __future__ import annotations

import re
from typing import Final

MAX_QUESTION_SIZE: Final = 400
"""Characters of a question. A longer text is a task for a model, and matching it would be luck."""

_POLITE_BEFORE: Final = re.compile(
    r"(?:(?:hi|hello|hey|ok|okay|so|now|please|scout|and|then|just|quickly)\b[,!.: ]*)*"
    r"(?:(?:can|could|would|will) you\b ?)?(?:please\b ?)?"
    r"(?:i (?:want|need|would like) to (?:know|see|find)\b ?|i'd like to (?:know|see|find)\b ?"
    r"|do you know\b ?|let me (?:know|see)\b ?|(?:tell|show|give) (?:me|us)\b ?"
    r"|help me (?:to )?(?=find|see)|any idea\b ?)?",
    re.IGNORECASE,
)
_POLITE_AFTER: Final = re.compile(
    r"[,; ]*\b(?:please|thanks|thank you|for me"
    r"|(?:in|of|from|within|inside) (?:this|the|our|my) "
    r"(?:whole |entire |current )?"
    r"(?:repo|repository|project|code ?base|workspace|source(?: code)?|code))$",
    re.IGNORECASE,
)

_END: Final = re.compile(r"[?!,;:]+$|(?<=[^\s./])\.+$")

KINDS: Final = (
    r"(?:function|method|class|type|struct|structure|interface|trait|enum|record|object|module"
    r"|constant|const|variable|var|field|attribute|property|macro|symbol|name|identifier|exception"
    r"|error|component|hook|decorator|namespace|package|protocol|alias|union|key|setting|option)"
)
"""What people call the thing that a name belongs to."""

NAME: Final = r"[`'\"“‘]?(?P<symbol>[\w$@~][\w$@~.:#?!/\\-]*)(?:\(\s*\))?[`'\"”’]?"
SYMBOL: Final = rf"(?:the |our |a |an )?(?:{KINDS} (?:called |named )?)?{NAME}(?: {KINDS})?"
"""A name, perhaps with what sort of thing it is before or behind it."""

PATH: Final = r"[`'\"“‘]?(?P<path>[^\s`'\"“”‘’]+)[`'\"”’]?"
QUOTED: Final = r"(?:`(?P<q1>[^`]+)`|\"(?P<q2>[^\"]+)\"|'(?P<q3>[^']+)'|“(?P<q4>[^”]+)”)"

_SYMBOL_SHAPE: Final = re.compile(r"[\w$@~](?:[\w$.:#~-]*[\w$~])?[?!]?")
_CODE_SHAPE: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}|[A-Z][a-z0-9]+$|[_.:#$(]|\d")
_PRONOUNS: Final = frozenset({"it", "that", "this", "them", "they", "he", "she"})
_RANGE: Final = re.compile(
    r"(?P<path>.+?)(?::|#L| +(?=\d))(?P<first>\d{1,9})(?:(?:-|:|,|\.\.|-L)(?P<last>\d{1,9}))?$"
)


def core(text: str) -> str:
    """A question without its politeness, its line breaks and its final punctuation."""
    words = " ".join(text.split())
    if len(words) > MAX_QUESTION_SIZE:
        return ""
    while True:
        # Dots that stand alone are a folder.
        shorter = _POLITE_AFTER.sub("", _END.sub("", words).rstrip())
        if shorter == words:
            break
        words = shorter
    begun = _POLITE_BEFORE.match(words)
    rest = words[begun.end() :] if begun else words
    return (rest or words).lstrip(",: ")


def symbol(text: str | None) -> str | None:
    """The name that somebody means; None if it cannot be one."""
    if not text:
        return None
    name = text.strip("`'\"“”‘’").removesuffix("()").rstrip(".,;:")
    if not _SYMBOL_SHAPE.fullmatch(name) or len(name) > 200:
        return None
    return name


def is_pronoun(word: str) -> bool:
    """Whether a word means what was spoken of before."""
    return word.lower() in _PRONOUNS


def looks_like_code(word: str) -> bool:
    """Whether a single word can only be a name in a program."""
    return _CODE_SHAPE.search(word) is not None


def looks_like_path(word: str) -> bool:
    """Whether a word names a file or a folder rather than something in one."""
    from dragoman.scout import languages

    if "/" in word or "*" in word:
        return True
    known = languages.of_path(word) is not languages.OTHER
    # `os.path.join` and `Session.go` read like names too; only what files are really called counts.
    return (known and word.count(".") <= 2) or word in {"LICENSE", "NOTICE", ".gitignore"}


def quoted(match: re.Match[str]) -> str:
    """What stands between the quotes of a `QUOTED`."""
    return next((found for key, found in match.groupdict().items() if key[0] == "q" and found), "")


def line_range(text: str) -> tuple[str, int | None, int | None]:
    """A path and the lines that are named behind it: ``a.py:10-20``, ``a.py#L10``, ``a.py 10``."""
    cleaned = text.strip().strip("`'\"“”‘’")
    match = _RANGE.fullmatch(cleaned)
    if match is None:
        return cleaned, None, None
    first = int(match["first"])
    last = int(match["last"]) if match["last"] else None
    return match["path"].strip("`'\"“”‘’"), first, last
