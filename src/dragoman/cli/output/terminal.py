"""Write to stdout and stderr, detect terminals, apply colours.

Text for a terminal is escaped (`output.escape`). Output waits while a question to the user is open:
otherwise an agent could scroll its permission question off the screen and imitate another one. Held
output stays in memory up to a limit, then in a temporary file. Pipes and files get plain text.
``NO_COLOR`` disables colours, ``FORCE_COLOR`` enables them for pipes. Rows that are redrawn in
place (`output.live_area`) give way to everything else.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Final, Protocol, TextIO

from dragoman.cli.output.escape import Neutral, neutral

MEMORY_SIZE: Final = 1024 * 1024
"""Maximum number of bytes of held output in memory. More goes to a temporary file."""

PIECE_SIZE: Final = 64 * 1024
"""Maximum length of one record, in characters. Held output is written back one record at a time."""

ERASE_TIMEOUT: Final = 0.5
"""Seconds to wait for a thread that is drawing before the process exits. Drawing takes less than a
millisecond, unless the terminal was stopped."""

_RECORD: Final = struct.Struct("<BI")
"""The head of a record of held output: the stream's number, and the number of bytes that follow."""


ERASE_BELOW: Final = "\r\x1b[J"
"""Erases the cursor's row and everything below."""


class Overlay(Protocol):
    """Rows at the end of a terminal that are redrawn in place."""

    stream: TextIO

    def give_way(self, stream: TextIO, text: str) -> None:
        """Called before `text` is written to `stream`, so that it starts on a new line."""

    def last_words(self) -> Neutral:
        """Return the output that would leave only complete lines on the terminal if it were written
        now."""

    def settle(self) -> None:
        """Leave only complete lines on the terminal until there is something new to draw."""

    def close(self) -> None:
        """Leave only complete lines, and draw nothing more."""


class Held:
    """Writes to streams, or holds output back while a question is open."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Needed because the loop writes in its own thread, and questions are asked in the main
        one."""
        self.overlay: Overlay | None = None
        """What is redrawn in place now; None if nothing is."""
        self._spool: IO[bytes] | None = None
        self._streams: list[TextIO] = []
        self._lost = 0
        self._failed: OSError | None = None
        self._on_kept: Callable[[], None] | None = None
        self.at_line_start = True
        """Whether the last output ended with a newline."""

    def write(self, stream: TextIO, text: str) -> None:
        """Write now, or after the open question has been answered. Raises `OSError` if this or
        earlier held output cannot be written. Errors of stderr are ignored: messages that cannot be
        written must not end the work that they are about."""
        with self._lock:
            if self._spool is not None:
                self._keep(self._spool, stream, text)
                return
            self._raise_failed()
            if self.overlay is not None and text:
                self.overlay.give_way(stream, text)
            try:
                stream.write(text)
            except OSError:
                if stream is not sys.stderr:
                    raise
                silence(stream)
            self._wrote(text)

    def _wrote(self, text: str) -> None:
        if text:
            self.at_line_start = text[-1] == "\n"

    def draw(self, stream: TextIO, text: str) -> None:
        """Immediately write what the overlay draws. No question may be open."""
        with self._lock:
            self._raise_failed()
            stream.write(neutral(text))
            stream.flush()

    def _raise_failed(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Context manager: keep other threads from writing during the block."""
        with self._lock:
            yield

    @property
    def is_open(self) -> bool:
        """Whether a question is open."""
        return self._spool is not None

    def settle_overlay(self) -> None:
        """Show everything received so far, before a question. Called in the loop's thread."""
        with self._lock:
            if self.overlay is not None:
                self.overlay.settle()

    def close_overlay(self) -> None:
        """Leave only complete lines on the terminal at the end of the command."""
        with self._lock:
            if self.overlay is not None:
                self.overlay.close()
                self.overlay = None

    def erase_overlay(self, leave: Callable[[], None]) -> None:
        """Write the overlay's `last_words` and call `leave`, which exits the process, while no
        other thread can draw. If a thread has been drawing for longer than `ERASE_TIMEOUT`, or
        there is no overlay, only `leave` is called."""
        overlay = self.overlay
        if overlay is None or not self._lock.acquire(timeout=ERASE_TIMEOUT):
            leave()
            return
        import select

        try:
            # A stopped terminal accepts nothing.
            with suppress(OSError, ValueError):
                descriptor, last = overlay.stream.fileno(), overlay.last_words()
                if self._spool is None and last and select.select([], [descriptor], [], 0)[1]:
                    os.write(descriptor, last.encode())
            leave()
        finally:
            self._lock.release()

    @contextmanager
    def hold(self, on_kept: Callable[[], None] | None = None) -> Iterator[None]:
        """Context manager: hold all output until the block ends, and then write it. `on_kept` is
        called once, in the writer's thread, when the first output is held. Raises `RuntimeError` if
        output is already held."""
        # Imported here: every command loads this module, and few ask a question.
        import tempfile

        with self._lock:
            if self._spool is not None:
                raise RuntimeError("one question at a time")
            if self.overlay is not None:
                self.overlay.give_way(sys.stderr, "\n")
            spool = tempfile.SpooledTemporaryFile(MEMORY_SIZE)
            self._spool = spool
            self._streams, self._lost, self._on_kept = [], 0, on_kept
        try:
            yield
        finally:
            with self._lock, spool:
                self._spool = self._on_kept = None
                self._release(spool)

    def _keep(self, spool: IO[bytes], stream: TextIO, text: str) -> None:
        if stream not in self._streams:
            self._streams.append(stream)
        number = self._streams.index(stream)
        for at in range(0, len(text), PIECE_SIZE):
            piece = text[at : at + PIECE_SIZE]
            data = piece.encode("utf-8", "surrogatepass")
            try:
                if not self._lost:
                    spool.write(_RECORD.pack(number, len(data)) + data)
                    continue
            except OSError:
                pass  # The directory for temporary files is full.
            self._lost += len(piece)
        told, self._on_kept = self._on_kept, None
        if told is not None:
            told()

    def _release(self, spool: IO[bytes]) -> None:
        try:
            spool.seek(0)
            while len(head := spool.read(_RECORD.size)) == _RECORD.size:
                number, size = _RECORD.unpack(head)
                data = spool.read(size)
                if len(data) < size:
                    break
                text = data.decode("utf-8", "surrogatepass")
                self._streams[number].write(text)
                self._wrote(text)
            if self._lost:
                lost = f"\n[… {self._lost} characters were lost while a question was open]\n"
                self._streams[0].write(lost)
            for stream in self._streams:
                stream.flush()
        except OSError as error:
            # Raised at the next write instead: the caller here asked a question, it did not write.
            self._failed = error


held: Final = Held()
"""The instance for the streams of this process."""


STYLES: Final = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "underline": "4",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
"""The available styles, as terminal codes. Terminals with colours support all of them."""

DEFAULT_WIDTH: Final = 80


def is_terminal(stream: TextIO) -> bool:
    """Return whether the stream is a terminal."""
    try:
        return stream.isatty()
    except ValueError:
        return False  # The stream is closed.


def is_interactive() -> bool:
    """Return whether the user can be asked a question: stdin and stderr are terminals."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def drop_typed(stream: TextIO) -> None:
    """Discard what was typed at a terminal but not read yet. An answer must count only if it was
    typed after its question was shown."""
    if not is_terminal(stream):
        return
    try:
        import termios
    except ImportError:  # Windows.
        import msvcrt

        while msvcrt.kbhit():  # type: ignore[attr-defined, unused-ignore]
            msvcrt.getwch()  # type: ignore[attr-defined, unused-ignore]
        return
    with suppress(termios.error, OSError, ValueError):
        termios.tcflush(stream.fileno(), termios.TCIFLUSH)


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether to style output to this stream: never if ``NO_COLOR`` is set, otherwise always
    if ``FORCE_COLOR`` is set, and by default on a terminal that is not dumb."""
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and environ.get("TERM") != "dumb"


def is_live(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether rows can be redrawn and Markdown rendered: the stream is a capable terminal,
    and plain text was not requested. Always False on Windows."""
    environ = os.environ if environ is None else environ
    if os.name == "nt" or not is_terminal(stream):
        return False
    return environ.get("TERM", "dumb") not in ("", "dumb") and not environ.get("NO_COLOR")


def width_of(stream: TextIO) -> int:
    """Return the number of columns of the terminal; 0, which means no limit, if the stream is not
    one."""
    if not is_terminal(stream):
        return 0
    import shutil

    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def put(stream: TextIO, *parts: str) -> None:
    """Write text for people: every part that is not `Neutral` is escaped first."""
    for part in parts:
        held.write(stream, neutral(part))


def put_lines(stream: TextIO, *parts: str) -> None:
    """Write whole lines for people; long lines are wrapped at words on a terminal."""
    put(stream, _folded(stream, Neutral("".join(map(neutral, parts)))))


def _folded(stream: TextIO, text: Neutral) -> Neutral:
    width = width_of(stream)
    if not width or max(map(len, text.split("\n"))) <= width:
        return text
    from dragoman.cli.output.tables import fold_lines

    return Neutral(fold_lines(text, width))


def put_out(*parts: str) -> None:
    """Write text for people to stdout."""
    put_lines(sys.stdout, *parts)


def put_err(*parts: str) -> None:
    """Write text for people to stderr."""
    put_lines(sys.stderr, *parts)


def put_data(stream: TextIO, *parts: str) -> None:
    """Write machine-readable output unchanged, or on a terminal escaped like `put`."""
    if is_terminal(stream):
        put(stream, *parts)
    else:
        for part in parts:
            held.write(stream, part)


def put_relayed(stream: TextIO, text: str) -> None:
    """Write the output of another dragoman.

    On a terminal, its colours are kept and everything else is escaped.
    """
    if not is_terminal(stream):
        held.write(stream, text)
        return
    import re  # Few commands need it.

    for number, part in enumerate(re.split(r"(\x1b\[[0-9;]{0,20}m)", text)):
        # The odd parts are the colours.
        held.write(stream, part if number % 2 else neutral(part))


def put_question(text: str) -> None:
    """Write a question immediately, even while other output is held back."""
    # On stderr: redirected output of a command must not contain our questions.
    sys.stdout.flush()
    sys.stderr.write(_folded(sys.stderr, neutral(text)))
    sys.stderr.flush()


def silence(stream: TextIO) -> None:
    """Discard what is written to a stream from now on, even at process exit. Does nothing to a
    stream in memory."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return  # The stream is in memory.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class Paint:
    """Applies styles to text, or leaves it plain."""

    __slots__ = ("on",)

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, text: str, *styles: str) -> Neutral:
        safe = neutral(text)
        if not self.on or not styles or not safe:
            return safe
        codes = ";".join(STYLES[style] for style in styles)
        return Neutral(f"\x1b[{codes}m{safe}\x1b[0m")


def paint_for(stream: TextIO) -> Paint:
    """Return a `Paint` that applies styles if output to this stream is styled."""
    return Paint(wants_colour(stream))
