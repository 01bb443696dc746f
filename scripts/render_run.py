"""Draws the picture in the README: a real run of `dragoman run scout …`, as a terminal shows it.

    python scripts/render_run.py > docs/images/run.svg        or: make picture

The command is run in a pseudo-terminal, with folders of its own and nothing kept. Only what this
program prints is understood: text, line ends and styles; anything else is an error and not drawn
wrongly. tests/docs/test_picture.py holds the picture against what the command prints now.
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
"""The colours that dragoman uses, on a dark ground."""

GROUND, INK, FAINT = "#1c2128", "#d5dbe3", "#8a94a1"

ADVANCE: Final = 8.0
"""Width of a character, in the units of the picture."""
LEADING: Final = 18.0
"""From one line to the next."""
MARGIN: Final = 16.0

_SEQUENCE: Final = re.compile(r"\x1b\[([0-9;]*)m")

_PASSING: Final = (
    (re.compile(r"\bj-[0-9a-z]{12}\b"), "j-xxxxxxxxxxxx"),
    (re.compile(r"\b\d+\.\d s\b"), "0.0 s"),
    (re.compile(r"\bin [\d,]+ files\b"), "in 0 files"),
)
"""What is another at every run, or with every file that the project gets."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some characters of one line, in one style: the numbers that a terminal is sent."""

    text: str
    style: tuple[str, ...] = ()


Line = tuple[Piece, ...]


def record() -> str:
    """Run the command in a terminal, and return all it wrote."""
    with tempfile.TemporaryDirectory(prefix="dragoman-picture-") as home:
        environ = {
            "HOME": home,
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(ROOT / "src"),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            # A process that is kept for the next command would outlive its folders.
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
                break  # The other side of a terminal that is gone.
            if not data:
                break
            taken.append(data)
    finally:
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
    shown = b"".join(taken).decode()
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise RuntimeError(f"the command ended with {code}: {shown}")
    return shown


def lines_of(shown: str) -> list[Line]:
    """What stands on the screen afterwards, the command first, long lines folded."""
    lines: list[Line] = [(Piece(SHOWN, ("1",)),)]
    style: tuple[str, ...] = ()
    for row in shown.replace("\r\n", "\n").removesuffix("\n").split("\n"):
        pieces: list[Piece] = []
        for number, part in enumerate(_SEQUENCE.split(row)):
            if number % 2:
                style = () if part in ("", "0") else tuple(part.split(";"))
            elif part:
                if not part.isprintable():
                    raise ValueError(f"this cannot be drawn: {part!r}")
                pieces.append(Piece(part, style))
        lines += _folded(pieces)
    return lines


def _folded(pieces: list[Piece]) -> list[Line]:
    folded: list[list[Piece]] = [[]]
    room = COLUMNS
    for piece in pieces:
        text = piece.text
        while text:
            if not room:
                folded.append([])
                room = COLUMNS
            folded[-1].append(Piece(text[:room], piece.style))
            text, room = text[room:], max(room - len(text), 0)
    return [tuple(line) for line in folded]


def draw(lines: list[Line]) -> str:
    """The picture. Every line is one element, so that its text can be read back."""
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
        # On each line, for Chromium does not let it be inherited: runs of blanks would be drawn as
        # one, and the rest stretched to the length given.
        place = f'x="{MARGIN:g}" y="{y:g}" xml:space="preserve"'
        drawn.append(f"<text {place}>{''.join(map(_span, line))}</text>")
    return "\n".join([*drawn, "</g>", "</svg>", ""])


def _span(piece: Piece) -> str:
    # The length is given, so that the columns line up in whatever font there is.
    marks = [f'textLength="{len(piece.text) * ADVANCE:g}"']
    for number in piece.style:
        if number == "1":
            marks.append('font-weight="bold"')
        elif number == "2":
            marks.append(f'fill="{FAINT}"')
        else:
            marks.append(f'fill="{COLOURS[number]}"')
    return f"<tspan {' '.join(marks)}>{escape(piece.text)}</tspan>"


def text_of(picture: str) -> list[str]:
    """The lines that a picture shows."""
    found = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in found]


def masked(lines: list[str]) -> list[str]:
    """The same without what passes."""
    masks = []
    for line in lines:
        for pattern, instead in _PASSING:
            line = pattern.sub(instead, line)
        masks.append(line)
    return masks


if __name__ == "__main__":
    sys.stdout.write(draw(lines_of(record())))
