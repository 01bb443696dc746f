"""Hold back output to stdout and stderr while a question to the user is open.

Otherwise an agent could scroll its permission question off the screen and imitate another one. Held
output stays in memory up to a limit, then in a temporary file.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, TextIO

MEMORY_SIZE: Final = 1024 * 1024
"""Bytes that wait in memory. More of them go to a temporary file."""

PIECE_SIZE: Final = 64 * 1024
"""Characters of one record: so much is in memory at once when it is written at last."""

_RECORD: Final = struct.Struct("<BI")
"""The number of the stream, and how many bytes follow."""


class Held:
    """Writes to streams, or keeps it until a question is answered."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """The loop writes in its own thread, and questions are asked in the main one."""
        self._spool: IO[bytes] | None = None
        self._streams: list[TextIO] = []
        self._lost = 0
        self._failed: OSError | None = None

    def write(self, stream: TextIO, text: str) -> None:
        """Write now, or when the question that is open has been answered."""
        with self._lock:
            if self._spool is not None:
                self._keep(self._spool, stream, text)
                return
            if self._failed is not None:
                failed, self._failed = self._failed, None
                raise failed
            stream.write(text)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep everything back until the block ends."""
        # Not at the top: every command loads this module, and few ask a question.
        import tempfile

        with self._lock:
            if self._spool is not None:
                raise RuntimeError("one question at a time")
            spool = tempfile.SpooledTemporaryFile(MEMORY_SIZE)
            self._spool = spool
            self._streams, self._lost = [], 0
        try:
            yield
        finally:
            with self._lock, spool:
                self._spool = None
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
                pass  # The folder for temporary files is full.
            self._lost += len(piece)

    def _release(self, spool: IO[bytes]) -> None:
        try:
            spool.seek(0)
            while len(head := spool.read(_RECORD.size)) == _RECORD.size:
                number, size = _RECORD.unpack(head)
                data = spool.read(size)
                if len(data) < size:
                    break
                self._streams[number].write(data.decode("utf-8", "surrogatepass"))
            if self._lost:
                lost = f"\n[… {self._lost} characters were lost while a question was open]\n"
                self._streams[0].write(lost)
            for stream in self._streams:
                stream.flush()
        except OSError as error:
            # Raised at the next write instead: this code asked the user, it did not write.
            self._failed = error


held: Final = Held()
"""The one for the streams of this process."""
