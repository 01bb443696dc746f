"""Draw the picture in the README: a real run of `dragoman run scout …`, as a terminal shows it.

    python scripts/render_run.py > docs/images/run.svg        or: make picture

The command runs in a pseudo-terminal, with temporary directories. The script handles only what
dragoman prints: text, line ends, styles, and rows that are erased and drawn again. Anything else is
an error. tests/docs/test_picture.py compares the picture with the current output of the command.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "images" / "run.svg"

QUESTION: Final = "where is Connection defined?"
SHOWN: Final = f'$ dragoman run scout "{QUESTION}"'

COLUMNS: Final = 100
ROWS: Final = 50

FOLDERS: Final = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")

COLOURS: Final = {"31": "#f47067", "32": "#8ddb8c", "33": "#e0b45c", "36": "#6cb6d9"}
"""The colours that dragoman uses, for a dark background."""

GROUND, INK, FAINT = "#1c2128", "#d5dbe3", "#8a94a1"

ADVANCE: Final = 8.0
"""Width of a character, in the units of the picture."""
LEADING: Final = 18.0
"""Height of a line."""
MARGIN: Final = 16.0

_SEQUENCE: Final = re.compile(r"\x1b\[([0-9;]*)([mAJ])|(\r\n|\n|\r)")

_PASSING: Final = (
    (re.compile(r"\bj-[0-9a-z]{12}\b"), "j-xxxxxxxxxxxx"),
    (re.compile(r"\b\d+\.\d s\b"), "0.0 s"),
    (re.compile(r"\bin [\d,]+ files\b"), "in 0 files"),
)
"""Text that differs in every run, or whenever a file is added to the project."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive characters of a line with the same style, given as the SGR codes."""

    text: str
    style: tuple[str, ...] = ()


Line = tuple[Piece, ...]


def record() -> str:
    """Run the command in a terminal and return its output."""
    with tempfile.TemporaryDirectory(prefix="dragoman-picture-") as home:
        environ = {
            "HOME": home,
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(ROOT / "src"),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            # A process kept for the next command would outlive its directories.
            "DRAGOMAN_WARM": "0",
            **{f"DRAGOMAN_{name}": f"{home}/{name.lower()}" for name in FOLDERS},
        }
        argv = [sys.executable, "-m", "dragoman", "run", "scout", QUESTION]
        return _in_terminal(argv, environ)


def _in_terminal(argv: list[str], environ: dict[str, str]) -> str:
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            os.chdir(ROOT)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.execve(argv[0], argv, environ)
        finally:
            os._exit(127)
    taken: list[bytes] = []
    try:
        while True:
            try:
                data = os.read(descriptor, 65536)
            except OSError:
                break  # The other side of the terminal is closed.
            if not data:
                break
            taken.append(data)
    finally:
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
    shown = b"".join(taken).decode()
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise RuntimeError(f"the command exited with {code}: {shown}")
    return shown


def lines_of(shown: str) -> list[Line]:
    """The lines on the screen after the run, starting with the command."""
    rows: list[list[tuple[str, tuple[str, ...]]]] = [[]]
    row = column = 0
    style: tuple[str, ...] = ()
    parts = iter(_SEQUENCE.split(shown))
    for text in parts:
        if not text.isprintable():
            raise ValueError(f"cannot draw: {text!r}")
        for character in text:
            if column == COLUMNS:
                row, column = row + 1, 0
            rows += [[] for _ in range(row + 1 - len(rows))]
            rows[row][column : column + 1] = [(character, style)]
            column += 1
        number, action, end = next(parts, None), next(parts, None), next(parts, None)
        if action == "m":
            style = () if number in ("", "0") else tuple((number or "").split(";"))
        elif action == "A":
            row = max(row - int(number or 1), 0)
        elif action == "J":
            del rows[row][column:], rows[row + 1 :]
        elif end is not None:
            row, column = row + ("\n" in end), 0
            rows += [[] for _ in range(row + 1 - len(rows))]
    if not rows[-1]:
        rows.pop()
    return [(Piece(SHOWN, ("1",)),), *map(_line, rows)]


def _line(row: list[tuple[str, tuple[str, ...]]]) -> Line:
    runs = groupby(row, key=lambda each: each[1])
    return tuple(Piece("".join(text for text, _ in run), style) for style, run in runs)


def draw(lines: list[Line]) -> str:
    """The picture as SVG. Every line is one element, so that its text can be read back."""
    width, height = 2 * MARGIN + COLUMNS * ADVANCE, 2 * MARGIN + len(lines) * LEADING
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">',
        f"<title>{escape(SHOWN)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>',
        f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" fill="{INK}">',
    ]
    for number, line in enumerate(lines, 1):
        y = MARGIN + number * LEADING - 5
        # On each line, because Chromium does not inherit it: several blanks would be drawn as one,
        # and the rest stretched to the given length.
        place = f'x="{MARGIN:g}" y="{y:g}" xml:space="preserve"'
        at = [sum(len(piece.text) for piece in line[:count]) for count in range(len(line))]
        drawn.append(f"<text {place}>{''.join(map(_span, line, at))}</text>")
    return "\n".join([*drawn, "</g>", "</svg>", ""])


def _span(piece: Piece, at: int) -> str:
    # With a position and a length, the columns line up in any font.
    place = f'x="{MARGIN + at * ADVANCE:g}"'
    marks = [place, f'textLength="{len(piece.text) * ADVANCE:g}"']
    for number in piece.style:
        if number == "1":
            marks.append('font-weight="bold"')
        elif number == "2":
            marks.append(f'fill="{FAINT}"')
        elif number == "3":
            marks.append('font-style="italic"')
        elif number == "4":
            marks.append('text-decoration="underline"')
        else:
            marks.append(f'fill="{COLOURS[number]}"')
    return f"<tspan {' '.join(marks)}>{escape(piece.text)}</tspan>"


def text_of(picture: str) -> list[str]:
    """The lines that a picture shows."""
    found = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in found]


def masked(lines: list[str]) -> list[str]:
    """The lines with the text that differs in every run replaced."""
    masks = []
    for line in lines:
        for pattern, instead in _PASSING:
            line = pattern.sub(instead, line)
        masks.append(line)
    return masks


if __name__ == "__main__":
    sys.stdout.write(draw(lines_of(record())))
