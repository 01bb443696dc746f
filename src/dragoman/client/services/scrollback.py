"""The end of what a command printed, as text, in bounded memory.

It owns the rules of a terminal's output: bytes become text as they arrive, a character cut in two
by the arrival is put together again, bytes that are no text are replaced, and what is over the
limit is dropped from the beginning, never through a character. It knows nothing of processes:
`terminals` does.
"""

from __future__ import annotations

import codecs


class Scrollback:
    """Keeps the last `limit_size` bytes, counted as UTF-8, of the text that is fed to it."""

    __slots__ = ("_decoder", "_kept", "_limit_size", "truncated")

    def __init__(self, limit_size: int) -> None:
        self.truncated = False
        """Whether anything was dropped."""
        self._limit_size = limit_size
        # Kept as UTF-8 because the limit is in bytes, and because it is shorter than a str of
        # anything beyond Latin.
        self._kept = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """More was printed, cut anywhere."""
        if data.isascii() and not self._decoder.getstate()[0]:
            self._kept += data
        else:
            self._kept += self._decoder.decode(data).encode()
        self._trim()

    def end(self) -> None:
        """Nothing more will be printed: half a character at the end is no character."""
        self._kept += self._decoder.decode(b"", final=True).encode()
        self._trim()

    def text(self) -> str:
        """What is kept. Half a character at the end waits for its other half."""
        return self._kept.decode()

    def _trim(self) -> None:
        kept = self._kept
        cut = len(kept) - self._limit_size
        if cut > 0:
            self.truncated = True
            while cut < len(kept) and kept[cut] & 0xC0 == 0x80:
                cut += 1
            # Cheap: a bytearray gives up its front by moving its start.
            del kept[:cut]
