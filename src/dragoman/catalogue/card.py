"""The peer card: facts measured about one version of a peer on one platform.

`verify` measures and `CardStore` keeps the JSON files. A fact that was not measured is None, which
means "unknown", never "no".
"""

from __future__ import annotations

import enum
import os
import re
import stat
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.errors import FileFailed

CARD_FORMAT = 2
"""Raised when a field changes its meaning; a card of another format is measured anew."""


class RungVerdict(enum.StrEnum):
    """How a rung ended."""

    PASS = "pass"
    WARN = "warn"
    """Works, but whoever uses the peer has to know something."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """Not tried; the evidence says why."""


class RungResult(Struct, frozen=True, kw_only=True):
    """One rung of the ladder, as it went."""

    rung: str
    verdict: RungVerdict
    evidence: str
    remedy: str = ""
    """What to do about it, if there is something to do."""
    seconds: float = 0.0


class MeasuredFacts(Struct, frozen=True, kw_only=True):
    """What was measured. None: not measured."""

    executable: str | None = None
    """The file that is started."""
    launch: tuple[str, ...] | None = None
    """The words of the command line."""
    handshake_seconds: float | None = None
    """From the start of the program to its first answer."""
    dialect: str | None = None
    """What it speaks, by dragoman's name for it."""
    dialect_shown: bool | None = None
    """Whether its handshake shows that. One of ACP without any capability may be one of `keyed`."""
    protocol_version: str | None = None
    """The version that both sides agreed on, where the dialect has one."""
    agent_name: str | None = None
    """What it calls itself."""
    agent_version: str | None = None
    """The version that it says it has."""
    authenticated: bool | None = None
    """Whether it could be used without logging in first."""
    login: str | None = None
    """What a person does to log in, where that is known and needed."""
    models: tuple[str, ...] | None = None
    """As the peer names them."""
    model: str | None = None
    """The one that it uses if none is asked for."""
    parent_models: tuple[str, ...] | None = None
    """The same without ``-preview`` at the end."""
    modes: tuple[str, ...] | None = None
    """The modes of a session, by their ids."""
    sessions: bool | None = None
    """Whether a session could be opened."""
    echo: bool | None = None
    """Whether a turn gave text."""
    streaming: bool | None = None
    """Whether the text came in more than one piece."""
    cancel: bool | None = None
    """Whether a cancelled turn ended as cancelled within the grace."""
    asks_permission: bool | None = None
    """Whether it asked before it wrote, started as under a policy that restricts it."""
    respects_refusal: bool | None = None
    """Whether nothing was written after a refusal."""
    refusal_ends_turn: bool | None = None
    """Whether a turn ended because something was refused."""
    uses_files: bool | None = None
    """Whether it read or wrote through us."""
    uses_terminals: bool | None = None
    """Whether it ran a command through us."""
    mcp: bool | None = None
    """Whether it started the MCP server it was handed."""
    parallel_sessions: bool | None = None
    """Whether two sessions ran at once."""
    lists_sessions: bool | None = None
    """Whether another process of it lists the session."""
    loads_sessions: bool | None = None
    """Whether another process of it opens the session with its history."""
    resumes_sessions: bool | None = None
    """Whether another process of it opens the session without its history."""
    usage: bool | None = None
    """Whether a turn told its tokens."""
    noise_lines: int | None = None
    """Lines on its standard output that were no messages."""
    survives_oversized_line: bool | None = None
    """Whether it goes on after a line that is longer than it expects."""
    unknown_method_code: int | None = None
    """What it answers to a method that does not exist; 0 if it took that for a success."""
    unknown_session_code: int | None = None
    """What it answers about a session that does not exist; 0 if it took that for a success."""
    bad_params_code: int | None = None
    """What it answers to params that are wrong; 0 if it took that for a success."""
    required_params: dict[str, tuple[str, ...]] | None = None
    """By method, the params without which it is refused."""
    optional_params: dict[str, tuple[str, ...]] | None = None
    """By method, the params that may be left out."""
    methods: dict[str, str] | None = None
    """The method names that it knows, by what they do: `create`, `list`, `load`, `prompt`."""
    notifications: dict[str, tuple[str, ...]] | None = None
    """The notifications that it sent, each with the keys of its params."""
    id_format: str | None = None
    """How it numbers its own requests: ``integer``, ``string`` or ``none seen``."""
    turn_ids: bool | None = None
    """Whether updates carry the id of their turn."""
    late_updates: bool | None = None
    """Whether updates came after the answer that ends a turn."""
    duplicate_answers: int | None = None
    """Answers that came twice, too late, or to what nobody asked."""
    errors_as_text: bool | None = None
    """Whether a failed model call looked like a success."""
    clean_exit: bool | None = None
    """Whether it ended by itself when its input ended."""
    survivors: int | None = None
    """Processes that had to be killed after it."""


class Card(Struct, frozen=True, kw_only=True):
    """The result of one verification of a peer: every rung, and the measured facts."""

    peer: str
    version: str | None
    platform: str
    format: int = CARD_FORMAT
    measured_at: str
    """ISO 8601, UTC."""
    dragoman: str
    """Our own version."""
    turns: bool
    """Whether rungs that spend model calls were tried."""
    reached: str
    """The last rung that passed."""
    usable: bool
    """Whether the peer may be added: it speaks a protocol of ours and nothing essential failed."""
    rungs: tuple[RungResult, ...]
    facts: MeasuredFacts = field(default_factory=MeasuredFacts)


def to_know(card: Card) -> list[str]:
    """What a user of the peer has to know, each in one line."""
    bad = (RungVerdict.WARN, RungVerdict.FAIL)
    return [f"{one.rung}: {one.evidence}" for one in card.rungs if one.verdict in bad]


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
        cards = [card for file in self.files(peer) if (card := self._read(file))]
        return max(cards, key=lambda card: card.measured_at, default=None)

    def files(self, peer: str) -> list[Path]:
        """The files of all cards of a peer."""
        folder = self.folder / _fit(peer)
        # A path that is too long for a folder makes `glob` fail.
        return sorted(folder.glob("*.json")) if os.path.isdir(folder) else []

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
