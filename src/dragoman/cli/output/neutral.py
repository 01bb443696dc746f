"""Text of others, made harmless for a terminal.

Owns the one replacement of control characters. An agent's words, a file's name, an error's text:
all may hold escape sequences that set a window's title, hide what was printed, or type into the
shell. What is shown to a person goes through here first; JSON needs it not, since it escapes them.
"""

from __future__ import annotations

from typing import Final

_KEPT: Final = "\n\t"

_POWERLESS: Final[dict[int, str]] = {
    # Control characters become their pictures: ESC is shown as such, and nothing is lost silently.
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT},
    0x7F: "\u2421",
    # C1 controls: some terminals take 0x9B for ESC [.
    **{code: "\ufffd" for code in range(0x80, 0xA0)},
    # Characters that turn the direction of writing, so that a command reads otherwise than it runs.
    **{code: "\ufffd" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    0x2028: "\n",
    0x2029: "\n",
    # Half of a pair, which no encoder takes.
    **{code: "\ufffd" for code in range(0xD800, 0xE000)},
}


def neutral(text: str) -> str:
    """The text without anything that a terminal would obey, beside newlines and tabs.

    A carriage return before a newline is dropped; alone it is shown, because it could overwrite the
    line that it ends.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return text.translate(_POWERLESS)


def one_line(text: str, *, width: int = 0) -> str:
    """The same on one line, cut to `width` characters where that is not 0."""
    flat = " ".join(neutral(text).split())
    return flat if not width or len(flat) <= width else flat[: max(width - 1, 0)] + "…"
