"""`BrokerSpec`: everything a broker needs to know about its peer, fixed when the broker starts.

The endpoint name contains a digest of what callers must share, so only callers that may share a
peer find the same broker. The broker does not look up its peer in configuration or catalogue. A
spec contains credentials: it is sent on the broker's stdin and never written to a file, log or
command line.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from dragoman.client.budgets import Budgets
from dragoman.client.options import PlainOptions
from dragoman.decoders import decode_typed
from dragoman.errors import BrokerUnavailable
from dragoman.errors.usage import shown
from dragoman.version import __version__

if TYPE_CHECKING:
    from dragoman.paths import Paths

PROTOCOL: Final = 1
"""Version of the `_dragoman/*` extensions; a broker of another version is not usable."""

DEFAULT_TTL: Final = 30 * 60.0
"""Default idle timeout in seconds: a coffee break should not cost a cold start."""

DEFAULT_MAX_IDLE: Final = 4
"""Maximum number of idle brokers: a real peer uses 100 to 900 MB."""

START_MARGIN: Final = 10.0
"""Seconds for starting the program of the peer, in addition to its first response."""

OF_THE_TERMINAL: Final = (
    "TERM", "COLORTERM", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "XDG_SESSION_*", "XDG_VTNR", "XDG_SEAT*",
    "XDG_ACTIVATION_TOKEN", "LANG", "LANGUAGE", "LC_*",
)  # fmt: skip
"""Variables that differ between the terminals of a user and do not affect billing or permissions.
They are not part of the name, so that a second terminal finds the broker. Of PATH, only the
directories that have files count (`search_path`)."""

_UNFIT: Final = re.compile(r"[^a-z0-9_.-]+")

MAX_PEER_SIZE: Final = 24
"""Maximum length of the peer's part of the name: socket paths are short."""


class Folders(Struct, frozen=True, kw_only=True):
    """The directories that a broker uses."""

    state: str
    runtime: str
    data: str
    config: str = ""
    """Directory of the user's settings, which say how long data is kept."""
    cache: str = ""
    """Directory of the cached facts about the peer's program; empty if there is none."""


class FileIdentity(Struct, frozen=True, kw_only=True):
    """Identity of one of the peer's files when the broker started.

    A difference means another version of the peer.
    """

    path: str
    size: int
    mtime_ns: int


class BrokerSpec(PlainOptions, frozen=True, kw_only=True):
    """The complete configuration of a broker."""

    peer: str
    """The peer's name, or the name of its program."""
    title: str = ""
    """Its display name."""
    command: tuple[str, ...] | None = None
    """The command line; None if there is an address."""
    address: str | None = None
    protocol: str = "auto"
    """The dialect it speaks, or ``auto``."""
    env: dict[str, str] = field(default_factory=dict)
    """The complete environment of the peer's process."""
    search_path: tuple[str, ...] = ()
    """The directories of PATH that have files, sorted: the part of PATH that counts in the name.
    The caller looks them up, because a directory may get a file before the broker runs."""
    workspace: str
    """The real path of the working directory of the peer's process. A session has its own
    directory, which may be below it."""
    details: dict[str, Any] = field(default_factory=dict)
    """Options of its dialect's client."""
    budgets: Budgets = Budgets()
    mode_after_open: str | None = None
    missing_file_is_empty: bool = False
    loads_next_minute: bool = False
    """Whether the peer loses a session that it loads within the minute in which the session was
    created."""
    error_texts: tuple[str, ...] = ()
    notice_texts: tuple[str, ...] = ()
    """Prefixes of texts that are the peer's error messages, and of remarks that may precede
    them."""
    command_titles: bool = False
    """Whether its program uses a command as the title of a question."""
    login_hint: str = ""
    """Instructions for logging in."""
    surroundings: str = ""
    """Which credential variables are set for the peer; see `catalogue.launch.surroundings_of`."""
    parallel: bool | None = None
    """Whether the peer's card says that it runs sessions in parallel; None if not measured."""
    identity: tuple[FileIdentity, ...] = ()
    """The files that the command names."""
    version: str = __version__
    """Version of the dragoman that starts the broker."""
    secret_values: tuple[str, ...] = ()
    """Values that must not be written to disk."""
    paths: Folders
    ttl: float = DEFAULT_TTL
    max_idle: int = DEFAULT_MAX_IDLE

    @property
    def identity_digest(self) -> str:
        """Digest of the peer's files, compared at every hello."""
        return _digest(self.identity)

    def encode(self) -> bytes:
        """Return the spec as JSON, on one line. Raises `BrokerUnavailable` if a text in it is not
        UTF-8."""
        return _json(self)


def decode(text: bytes) -> BrokerSpec:
    """Decode a spec from JSON. Raises one of the errors in `wire.messages.UNDECODABLE` if it is
    invalid."""
    return decode_typed(text, BrokerSpec)


def endpoint_name(spec: BrokerSpec) -> str:
    """Return the name of the endpoint: the peer and a digest of everything else that callers must
    share.

    What may differ between callers is left out: budgets, the idle timeout, the peer's files and our
    own version. A change of the last two replaces the broker under the same name.
    """
    return f"{_fit(spec.peer)}-{_digest((spec.peer, _terms(spec), _variables(spec)))}"


def shared_terms(spec: BrokerSpec) -> dict[str, str]:
    """Return short digests of what callers must have in common to share a broker. The keys are
    names of environment variables and phrases such as "the command". Any two brokers of the same
    peer differ in at least one digest."""
    words = {word: _digest(value)[:8] for word, value in _terms(spec).items()}
    return words | {name: _digest(value)[:8] for name, value in _variables(spec)}


def _terms(spec: BrokerSpec) -> dict[str, Any]:
    return {
        "the command": (spec.command, spec.address),
        "the dialect": (spec.protocol, spec.any_version, spec.unstable),
        "the folder": spec.workspace,
        "the options of the peer": (
            spec.details,
            spec.mode_after_open,
            spec.missing_file_is_empty,
            spec.max_line_size,
        ),
        "the files and terminals offered to it": (
            spec.read_files,
            spec.write_files,
            spec.terminals,
        ),
    }


def _variables(spec: BrokerSpec) -> list[tuple[str, Any]]:
    known: dict[str, Any] = dict(spec.env)
    if spec.search_path:
        known["PATH"] = spec.search_path
    return sorted((name, value) for name, value in known.items() if not _of_the_terminal(name))


def search_path_of(path: str) -> tuple[str, ...]:
    """Return the directories of a PATH that have files, sorted.

    Neither their order nor directories without files make a difference.
    """
    return tuple(sorted({folder for folder in path.split(os.pathsep) if _has_files(folder)}))


def _has_files(folder: str) -> bool:
    try:
        with os.scandir(folder or os.curdir) as entries:
            return any(not entry.is_dir() for entry in entries)
    except OSError:
        return False


def is_meant(word: str, name: str, peer: str | None = None) -> bool:
    """Return whether a user's word means the endpoint with this name.

    The word may be the whole name, the peer, or a prefix of the name that reaches into its digest.
    `peer` is the peer's name, if known. A prefix that ends within the peer's name does not count:
    `codex` is a separate peer, not a prefix of `codex-acp`.
    """
    label = name.rpartition("-")[0]
    if word in (name, peer, label) or (peer is None and _fit(word) == label):
        return bool(word)
    return name.startswith(word) and len(word) > len(f"{label}-")


def identify_files(command: Iterable[str]) -> tuple[FileIdentity, ...]:
    """Return the files that a command names by absolute paths, each with its real path, as they are
    now."""
    found: dict[str, FileIdentity] = {}
    for word in command:
        if not os.path.isabs(word):
            continue
        try:
            path = os.path.realpath(word)
            info = os.stat(path)
        except (OSError, ValueError):
            continue
        if os.path.isfile(path):
            found[path] = FileIdentity(path=path, size=info.st_size, mtime_ns=info.st_mtime_ns)
    return tuple(found.values())


def folders_of(paths: Paths) -> Folders:
    """Return the directories that a broker uses, from those of dragoman."""
    return Folders(
        state=str(paths.state),
        runtime=str(paths.runtime),
        data=str(paths.data),
        config=str(paths.config),
        cache=str(paths.cache),
    )


def real_workspace(folder: str | os.PathLike[str]) -> str:
    """Return the real path of a directory, with ``~`` expanded, so that a symlink to the directory
    leads to the same broker."""
    return str(Path(os.path.expanduser(folder)).resolve())


def _of_the_terminal(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in OF_THE_TERMINAL)


def _fit(peer: str) -> str:
    word = _UNFIT.sub("-", os.path.basename(peer).lower())[:MAX_PEER_SIZE].strip("-.")
    return word or "peer"


def _digest(value: Any) -> str:
    return hashlib.sha256(_json(value)).hexdigest()[:12]


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError as error:
        raise BrokerUnavailable(
            f"a broker accepts only UTF-8 paths and variables, not {shown(str(error.object))}"
        ) from None
