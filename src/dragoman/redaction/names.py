"""Patterns for names that announce a secret, and for the values after them.

Covers variables, fields, options and headers, and names in texts. The shapes of keys are in
`shapes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from dragoman.redaction.shapes import by_rarest, compiled

REDACTED: Final = "[redacted]"
"""The replacement for a secret."""

SECRET_NAME: Final = re.compile(
    r"(?:^|[_\-.])(?:api[_-]?keys?|keys?|tokens?|secrets?|passwords?|passwd|credentials?|bearer)$",
    re.IGNORECASE,
)
"""Matches a name that ends in a word for a secret, such as `api_key`."""

SHORTEST: Final = 6
"""Minimum length of a secret value that is searched for: shorter ones occur in ordinary words."""

SECRET_VARIABLE: Final = re.compile(
    SECRET_NAME.pattern + r"|passw(?:or)?d|passphrase|secret|(?:api|access|private)_?key"
    r"|(?:^|_)(?:auth_?)?tokens?(?:_|$)|credential|(?:^|_)(?:ssh|pg|db)?pass$|_(?:pat|pwd)$",
    re.IGNORECASE,
)
"""Matches the names of variables whose values are not written to disk: more names than are refused
in a settings file, because redacting too much does little harm here."""

_NAMES: Final = (
    r"(?:token|secret|passw|api[_-]?key|access[_-]?key|private[_-]?key|authorization|credential"
    r"|cookie|bearer|passphrase)"
)

_ENDINGS: Final = (
    r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key)"
)
"""Matches the end of a secret's name in a text, but not that of a name such as `max_tokens`."""

_VALUE: Final = r"""(?P<secret>(?<=")[^"\\\r\n]{1,4096}|(?<=')[^'\\\r\n]{1,4096}|[^\s"'\\&]+)"""
"""Matches the value after such a name, after an opening quote if there is one."""

# Names have a maximum length, because an unbounded one makes the search quadratic.
_TEXTS: Final = (
    # A variable in a command or a settings file, a part of a URL, an option.
    r"(?<![A-Za-z0-9_])[A-Z0-9_]{0,64}(?:TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY)[A-Z0-9_]{0,64}="
    rf"""\\*["']?{_VALUE}""",
    rf"""(?i)(?<![a-z0-9_-])[a-z0-9_-]{{0,64}}{_ENDINGS}=\\*["']?{_VALUE}""",
    rf"""(?i)(?<!\S)--?[a-z0-9_-]{{0,64}}{_ENDINGS}\s+["']?{_VALUE}""",
    r"(?i)bearer (?P<secret>[a-z0-9._~+/=-]{8,})",
    # A header as passed to curl, and a password as written in prose.
    r"""(?i)(?<![a-z0-9_-])(?:proxy-)?authorization\s*:\s*"""
    r"""(?:(?:basic|bearer|digest|token)\s+)?(?P<secret>[^\s"'\\]+)""",
    r"""(?i)(?<![a-z0-9_-])(?:set-)?cookie\s*:\s*(?P<secret>[^"'\\\r\n]+)""",
    r"""(?i)(?<![a-z0-9_-])(?:[a-z0-9-]{1,64}-(?:key|token|secret)|passw(?:or)?d)"""
    rf"""\s*:\s*["']?{_VALUE}""",
    # JSON inside a string, or a truncated line of it.
    rf"""(?is)"[^"\\]{{0,64}}?{_NAMES}[^"\\]{{0,64}}\\*"\s*:\s*\\*"(?P<secret>(?:[^"\\]|\\.)+)""",
)

_PAIR_NAME: Final = rf'(?i)"name\\*"\s*:\s*\\*"[^"\\]{{0,64}}?{_NAMES}'
_PAIR_VALUE: Final = r'(?s)"value\\*"\s*:\s*\\*"(?P<secret>(?:[^"\\]|\\.)+)'
"""Matches the `value` in a JSON object inside a text, if `_PAIR_NAME` has matched the `name` of a
secret."""

# The quick check, on a text in lower case: a few searches for a word, each many times as fast as a
# pattern, and a pattern only where the word was found. It may report a secret where there is none,
# but never misses one. A text may also be a line of JSON, where `\n` is escaped.
_WORDS: Final = by_rarest(
    (
        *("token", "secret", "passw", "passphrase", "key", "authorization", "credential", "cookie"),
        "bearer",
    )
)
_NAME: Final = (
    r"(?:token|secret|passw|passphrase|(?:api|access|private)[_-]?key|-key|authorization"
    r"|credential|cookie|bearer)"
)
_BLANK: Final = r"(?:\s|\\[nrtf])"
_QUICK: Final = (
    # A variable, a header or a setting; a key of an object.
    rf"{_NAME}(?:[a-z0-9_]{{0,64}}=|[a-z]{{0,4}}{_BLANK}*:|[^\"\\]{{0,64}}\\*\"{_BLANK}*:)"
    # An option of a command, in a text and in a list; the name next to a value.
    rf"|-[a-z0-9_-]{{0,64}}{_NAME}[a-z]{{0,4}}{_BLANK}"
    rf'|"-[^"]{{0,64}}{_NAME}[^"]{{0,64}}"\s*,'
    rf'|name\\*"{_BLANK}*:{_BLANK}*\\*"[^"]{{0,400}}?{_NAME}'
    r"|bearer [a-z0-9._~+/=-]{8}"
)


def has_word(text: str) -> bool:
    """Return whether a text contains a word that occurs in names of secrets, in upper or lower
    case."""
    low = text.lower()
    return any(rarest in low and any(word in low for word in words) for rarest, words in _WORDS)


def may_hold(text: str) -> bool:
    """Return whether a text may contain a secret that a name announces. A quick check that never
    misses one."""
    low = text.lower()
    for rarest, words in _WORDS:
        if rarest in low:
            for word in words:
                if word in low:
                    return compiled(_QUICK).search(low) is not None
    return False


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of secrets in a text, found by the names before them. They may overlap."""
    for pattern in _TEXTS:
        for found in compiled(pattern).finditer(text):
            yield found.span("secret")
    if compiled(_PAIR_NAME).search(text):
        for found in compiled(_PAIR_VALUE).finditer(text):
            yield found.span("secret")


def names_a_secret(name: str) -> bool:
    """Return whether a field with this name is assumed to contain a secret."""
    return compiled(f"(?i){_NAMES}").search(name) is not None


def redact_value(value: Any, text: Callable[[str], str]) -> Any:
    """Return a redacted copy of a JSON value.

    Three kinds of strings are replaced as a whole: those below a key that names a secret, those in
    the `value` next to a `name` that does (the form of environment variables and headers), and an
    argument after an option that does. The callback `text` redacts each key, and each string that
    is not replaced as a whole. Numbers are kept: a count of tokens is not a token.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        named = value.get("name")
        pair = isinstance(named, str) and names_a_secret(named)
        return {
            text(key): _redact_all(item, text)
            if names_a_secret(key) or (pair and key == "value")
            else redact_value(item, text)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            REDACTED if _follows_option(value, index) else redact_value(item, text)
            for index, item in enumerate(value)
        ]
    return value


def _follows_option(items: list[Any], index: int) -> bool:
    """Return whether an argument of a command follows an option that names a secret."""
    if not index:
        return False
    option, item = items[index - 1], items[index]
    return (
        isinstance(option, str)
        and isinstance(item, str)
        and option.startswith("-")
        and "=" not in option
        and len(option) <= 64
        and not item.isdecimal()
        and names_a_secret(option)
    )


def _redact_all(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {text(key): _redact_all(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [_redact_all(item, text) for item in value]
    return REDACTED if isinstance(value, str) and value else value
