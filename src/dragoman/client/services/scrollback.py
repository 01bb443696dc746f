"""The end of a command's output, as text, in bounded memory.

Bytes become text as they arrive: a split character is joined, invalid bytes are replaced, and
output over the limit is dropped from the start, never within a character. `terminals` handles the
processes.
"""

from __future__ import annotations

import codecs


class Scrollback:
    """Keeps the last `limit_size` bytes, counted as UTF-8, of the text fed to it."""

    __slots__ = ("_decoder", "_kept", "_limit_size", "truncated")

    def __init__(self, limit_size: int) -> None:
        self.truncated = False
        """Whether anything was dropped."""
        self._limit_size = limit_size
        # Stored as UTF-8 because the limit is in bytes, and because a str needs more memory for
        # text with characters outside Latin-1.
        self._kept = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Add output, split at any byte."""
        if data.isascii() and not self._decoder.getstate()[0]:
            self._kept += data
        else:
            self._kept += self._decoder.decode(data).encode()
        self._trim()

    def end(self) -> None:
        """Mark the output as complete. An incomplete character at its end is replaced as
        invalid."""
        self._kept += self._decoder.decode(b"", final=True).encode()
        self._trim()

    def text(self) -> str:
        """Return the kept text. An incomplete character at the end waits for the rest."""
        return self._kept.decode()

    def _trim(self) -> None:
        kept = self._kept
        cut = len(kept) - self._limit_size
        if cut > 0:
            self.truncated = True
            while cut < len(kept) and kept[cut] & 0xC0 == 0x80:
                cut += 1
            # Cheap: a bytearray drops its front by moving its start.
            del kept[:cut]
