"""The peer card: facts measured about one version of a peer on one platform.

`verify` measures them, in steps called rungs, and `CardStore` keeps the JSON files. A fact that was
not measured is None, which means "unknown", never "no".
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
from dragoman.decoders import decode_typed
from dragoman.errors import FileFailed
from dragoman.wire.messages import UNDECODABLE

CARD_FORMAT = 2
"""Incremented when a field changes its meaning. A card in another format is measured again."""


class RungVerdict(enum.StrEnum):
    """How a rung (one step of a verification) ended."""

    PASS = "pass"
    WARN = "warn"
    """Works, but with something that users have to know."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """Not tried; the evidence says why."""


class RungResult(Struct, frozen=True, kw_only=True):
    """The result of one rung: its verdict, and what was seen."""

    rung: str
    verdict: RungVerdict
    evidence: str
    remedy: str = ""
    """What to do about it, if anything."""
    seconds: float = 0.0


class MeasuredFacts(Struct, frozen=True, kw_only=True):
    """What was measured about a peer. None means that a fact was not measured."""

    executable: str | None = None
    """The file that was started."""
    launch: tuple[str, ...] | None = None
    """The command line that was started, as a list with the program first."""
    handshake_seconds: float | None = None
    """Seconds from the start of the program to its first response."""
    dialect: str | None = None
    """Its dialect, by dragoman's name for it."""
    dialect_shown: bool | None = None
    """Whether its handshake proves the dialect. An agent that looks like ACP without any
    capabilities may speak the dialect `keyed`."""
    protocol_version: str | None = None
    """The version that both sides agreed on, if the dialect has one."""
    agent_name: str | None = None
    """The name that it reports."""
    agent_version: str | None = None
    """The version that it reports."""
    authenticated: bool | None = None
    """Whether it could be used without logging in first."""
    login: str | None = None
    """How to log in, if known and needed."""
    models: tuple[str, ...] | None = None
    """The model names that the peer lists."""
    model: str | None = None
    """The model that it uses if none is requested."""
    parent_models: tuple[str, ...] | None = None
    """The model names, each with a ``-preview`` suffix removed."""
    modes: tuple[str, ...] | None = None
    """The ids of the modes of a session."""
    sessions: bool | None = None
    """Whether a session could be opened."""
    echo: bool | None = None
    """Whether a turn produced text."""
    streaming: bool | None = None
    """Whether the text came in more than one chunk."""
    cancel: bool | None = None
    """Whether a cancelled turn ended as cancelled within the grace period."""
    asks_permission: bool | None = None
    """Whether it asked before writing when started under a restrictive policy."""
    respects_refusal: bool | None = None
    """Whether nothing was written after a refusal."""
    refusal_ends_turn: bool | None = None
    """Whether a refusal ended the turn."""
    uses_files: bool | None = None
    """Whether it read or wrote files through the client."""
    uses_terminals: bool | None = None
    """Whether it ran a command through the client."""
    mcp: bool | None = None
    """Whether it started the MCP server that was passed to it."""
    parallel_sessions: bool | None = None
    """Whether two sessions ran at once."""
    lists_sessions: bool | None = None
    """Whether a new process of the peer lists the session."""
    loads_sessions: bool | None = None
    """Whether a new process of the peer opens the session with its history."""
    resumes_sessions: bool | None = None
    """Whether a new process of the peer opens the session without its history."""
    usage: bool | None = None
    """Whether a turn reported its tokens."""
    noise_lines: int | None = None
    """Number of lines on its stdout that were not messages."""
    survives_oversized_line: bool | None = None
    """Whether it keeps working after a line that is longer than it expects."""
    unknown_method_code: int | None = None
    """Its error code for an unknown method; 0 if it reported success."""
    unknown_session_code: int | None = None
    """Its error code for an unknown session; 0 if it reported success."""
    bad_params_code: int | None = None
    """Its error code for invalid params; 0 if it reported success."""
    required_params: dict[str, tuple[str, ...]] | None = None
    """The required params of each method."""
    optional_params: dict[str, tuple[str, ...]] | None = None
    """The optional params of each method."""
    methods: dict[str, str] | None = None
    """The method names that it knows, by what they do: `create`, `list`, `load`, `prompt`."""
    notifications: dict[str, tuple[str, ...]] | None = None
    """The notifications that it sent, each with the keys of its params."""
    id_format: str | None = None
    """The type of the ids in its own requests: ``integer``, ``string`` or ``none seen``."""
    turn_ids: bool | None = None
    """Whether updates carry the id of their turn."""
    late_updates: bool | None = None
    """Whether updates came after the response that ends a turn."""
    duplicate_answers: int | None = None
    """Number of responses that were duplicates, too late, or did not match a request."""
    errors_as_text: bool | None = None
    """Whether a failed model call looked like a success."""
    clean_exit: bool | None = None
    """Whether it exited by itself when its input ended."""
    survivors: int | None = None
    """Number of processes that it left behind and that had to be killed."""


class Card(Struct, frozen=True, kw_only=True):
    """The result of one verification of a peer: every rung, and the measured facts."""

    peer: str
    version: str | None
    platform: str
    format: int = CARD_FORMAT
    measured_at: str
    """ISO 8601, UTC."""
    dragoman: str
    """The version of dragoman that verified the peer."""
    turns: bool
    """Whether rungs that spend model calls were tried."""
    reached: str
    """The last rung that passed or warned."""
    usable: bool
    """Whether the peer may be added: it speaks a supported protocol and nothing essential
    failed."""
    rungs: tuple[RungResult, ...]
    facts: MeasuredFacts = field(default_factory=MeasuredFacts)


NOTHING: Final = "Nothing: "
"""How the remedy of a warning (in `verify.remedies`) begins if dragoman handles what was found, so
that the user need not act."""


def to_know(card: Card) -> list[str]:
    """Return what a user of the peer should know, one line each: failures, and warnings that
    call for action. Other warnings are only on the card itself."""
    told = []
    for one in card.rungs:
        if one.verdict is RungVerdict.FAIL:
            told.append(f"{one.rung}: {one.evidence}")
        elif one.verdict is RungVerdict.WARN and not one.remedy.startswith(NOTHING):
            # Details follow the first part.
            told.append(f"{one.rung}: {one.evidence.partition('; ')[0]}")
    return told


CARDS: Final = "cards"
"""Name of the directory of the cards, in dragoman's data directory."""

UNKNOWN_VERSION: Final = "unknown"
"""Placeholder for the version of a peer that does not report one."""

MAX_SIZE: Final = 4 * 1024 * 1024
"""Maximum size of a card, in bytes. A card has a few kilobytes; a larger file is not a card."""

MAX_WORD: Final = 100
"""Maximum length of a peer's name, a version or a platform in a path, in characters. Agents report
their version themselves, and some systems reject names of more than 255 bytes; two versions with
the same beginning share a file, and only the last is kept."""

_UNFIT: Final = re.compile(r"[^A-Za-z0-9._+-]")


class CardStore:
    """The cards in one directory, ``cards/`` of dragoman's data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trouble: dict[Path, str] = {}
        """Files that were found but are not valid cards, with the reason."""

    def path(self, peer: str, version: str | None, platform: str) -> Path:
        """Return where the card of this peer, version and platform is stored, if there is one."""
        name = f"{_fit(version or UNKNOWN_VERSION)}-{_fit(platform)}.json"
        return self.folder / _fit(peer) / name

    def load(self, peer: str, version: str | None, platform: str) -> Card | None:
        """Return the card of exactly this version, or None if it has to be measured."""
        card = self._read(self.path(peer, version, platform))
        # Two versions share a file if the part that differs does not fit into its name.
        return card if card is not None and card.version == version else None

    def latest(self, peer: str) -> Card | None:
        """Return the newest card of a peer, of any version and platform, or None if there is
        none."""
        cards = [card for file in self.files(peer) if (card := self._read(file))]
        return max(cards, key=lambda card: card.measured_at, default=None)

    def files(self, peer: str) -> list[Path]:
        """Return the files of all cards of a peer."""
        folder = self.folder / _fit(peer)
        # A path that is too long makes `glob` fail.
        return sorted(folder.glob("*.json")) if os.path.isdir(folder) else []

    def outdated(self, peer: str, version: str | None) -> str | None:
        """Return a notice if the version of a peer differs from that on its newest card, or None if
        they are equal or one of them is unknown."""
        card = self.latest(peer) if os.path.isdir(self.folder / _fit(peer)) else None
        if card is None or version is None or card.version in (None, version):
            return None
        return (
            f"{peer} is {version} now and was verified as {card.version}: "
            f"`dragoman peers verify {peer}` measures it again"
        )

    def save(self, card: Card) -> Path:
        """Store a card, replacing an earlier one, completely or not at all. Raises `FileFailed`."""
        path = self.path(card.peer, card.version, card.platform)
        text = msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n"
        try:
            make_private(path.parent)
            write_whole(path, text, sync=True)
        except OSError as error:
            detail = f"the card could not be stored: {error.strerror or error}"
            raise FileFailed(str(path), detail, error.errno) from error
        self.trouble.pop(path, None)
        return path

    def _read(self, path: Path) -> Card | None:
        try:
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                # A named pipe would block forever.
                raise ValueError("it is not a regular file")
            if info.st_size > MAX_SIZE:
                raise ValueError("it is too large to be a card")
            text = path.read_bytes()
            form = decode_typed(text, _Form).format
            if form != CARD_FORMAT:
                raise ValueError(
                    f"it has format {form}, and this version reads format {CARD_FORMAT}"
                )
            card = decode_typed(text, Card)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, *UNDECODABLE) as error:
            self.trouble[path] = f"{path}: {error}; `dragoman peers verify` measures it again"
            return None
        self.trouble.pop(path, None)
        return card


class _Form(msgspec.Struct):
    format: int


def _fit(word: str) -> str:
    """Return a word as part of a file name that is valid on every system: shortened, with unsafe
    characters replaced."""
    fit = _UNFIT.sub("_", word)[:MAX_WORD]
    return fit if fit.strip(".") else f"_{fit}"
