"""Store peer cards as JSON files, one per peer, version and platform.

Writes are atomic. A file that cannot be read counts as missing, and `CardStore.trouble` has the
reason; it is not repaired, because ``dragoman peers verify`` measures the card again.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

import msgspec

from dragoman.catalogue.card import CARD_FORMAT, Card
from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.errors import FileFailed

CARDS: Final = "cards"
"""The name of the folder, below dragoman's data."""

UNKNOWN_VERSION: Final = "unknown"
"""Stands for the version of a peer that does not say it."""

MAX_SIZE: Final = 4 * 1024 * 1024
"""A card has a few kilobytes; what is larger is none."""

MAX_WORD: Final = 100
"""Characters of a version in a file's name. Agents say it themselves, and some system refuses names
of more than 255 bytes; two versions that begin alike share a file, and only the last is kept."""

_UNFIT: Final = re.compile(r"[^A-Za-z0-9._+-]")


class CardStore:
    """The cards in one folder, ``cards/`` of dragoman's data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trouble: dict[Path, str] = {}
        """Files that were found and could not be taken for cards, with the reason."""

    def path(self, peer: str, version: str | None, platform: str) -> Path:
        """The file of a card."""
        name = f"{_fit(version or UNKNOWN_VERSION)}-{_fit(platform)}.json"
        return self.folder / _fit(peer) / name

    def load(self, peer: str, version: str | None, platform: str) -> Card | None:
        """The card of this very version; None means that it has to be measured."""
        card = self._read(self.path(peer, version, platform))
        # Two versions may share a file whose name cannot hold what tells them apart.
        return card if card is not None and card.version == version else None

    def latest(self, peer: str) -> Card | None:
        """The newest card of a peer, of whatever version."""
        folder = self.folder / _fit(peer)
        # A path that is too long for a folder makes `glob` fail.
        files = sorted(folder.glob("*.json")) if os.path.isdir(folder) else []
        cards = [card for file in files if (card := self._read(file))]
        return max(cards, key=lambda card: card.measured_at, default=None)

    def outdated(self, peer: str, version: str | None) -> str | None:
        """What to tell of a peer that is of another version than its newest card; None if it is of
        the same, has no card, or does not tell."""
        card = self.latest(peer) if os.path.isdir(self.folder / _fit(peer)) else None
        if card is None or version is None or card.version in (None, version):
            return None
        return (
            f"{peer} is {version} now and was verified as {card.version}: "
            f"`dragoman peers verify {peer}` measures it again"
        )

    def save(self, card: Card) -> Path:
        """Keep a card in place of an earlier one, whole or not at all. Raises `FileFailed`."""
        path = self.path(card.peer, card.version, card.platform)
        text = msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n"
        try:
            make_private(path.parent)
            write_whole(path, text, sync=True)
        except OSError as error:
            detail = f"the card could not be kept: {error.strerror or error}"
            raise FileFailed(str(path), detail, error.errno) from error
        self.trouble.pop(path, None)
        return path

    def _read(self, path: Path) -> Card | None:
        try:
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                # A named pipe would hold us for ever.
                raise ValueError("it is no ordinary file")
            if info.st_size > MAX_SIZE:
                raise ValueError("it is too large to be a card")
            text = path.read_bytes()
            form = msgspec.json.decode(text, type=_Form).format
            if form != CARD_FORMAT:
                raise ValueError(f"it has the format {form}, and this is format {CARD_FORMAT}")
            card = msgspec.json.decode(text, type=Card)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.trouble[path] = f"{path}: {error}; it is measured again by `dragoman peers verify`"
            return None
        self.trouble.pop(path, None)
        return card


class _Form(msgspec.Struct):
    format: int


def _fit(word: str) -> str:
    """A word that is safe as a part of a file's name everywhere."""
    fit = _UNFIT.sub("_", word)[:MAX_WORD]
    return fit if fit.strip(".") else f"_{fit}"
