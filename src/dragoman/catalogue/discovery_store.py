"""Disk cache of what was discovered about a program: its dialect and its method names.

Implements `dialects.discovery.Cache` in dragoman's cache directory, with one small JSON file per
program. If the file at a path has changed, it counts as a different program. Facts that cannot be
read or written are discovered again at the next start, so no failure here is an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.decoders import decode_typed
from dragoman.dialects.discovery import Program

FOLDER: Final = "discovery"
"""Name of the directory of discovered facts, in dragoman's cache directory."""

FORMAT: Final = 1

MAX_SIZE: Final = 256 * 1024
"""Maximum number of bytes read from a file. A valid one has a few hundred."""

MAX_PROGRAMS: Final = 200
"""Maximum number of files; the least recently changed are deleted first."""

MAX_KNOWN: Final = 64
"""Maximum number of facts to keep per program; the oldest are dropped. Each of its launches has a
few."""

FAILURE_LIFETIME: Final = 24 * 3600.0
"""Seconds for which the fact "no method name known" is valid. A method may be added without a
change to the program's file, for example in a module that an interpreter loads."""

log = logging.getLogger(__name__)


class _Fact(Struct, frozen=True):
    value: str
    found_at: float


class _Known(Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    program: Program
    facts: dict[str, _Fact] = field(default_factory=dict)


class DiscoveryStore:
    """Discovered facts about programs, in the directory `discovery` of dragoman's cache."""

    def __init__(self, cache: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = cache / FOLDER
        self._clock = clock
        self._read: dict[Path, _Known | None] = {}

    def get(self, program: Program, concept: str) -> str | None:
        known = self._load(program)
        fact = None if known is None else known.facts.get(concept)
        if fact is None or (not fact.value and self._clock() > fact.found_at + FAILURE_LIFETIME):
            return None
        return fact.value

    def put(self, program: Program, concept: str, value: str) -> None:
        if self.get(program, concept) == value:
            return
        path = self._path(program)
        # Another process may have written in between.
        self._read.pop(path, None)
        before = self._load(program)
        facts = {} if before is None else dict(before.facts)
        facts.pop(concept, None)
        facts[concept] = _Fact(value, self._clock())
        newest = dict(list(facts.items())[-MAX_KNOWN:])
        self._read[path] = known = _Known(program=program, facts=newest)
        try:
            make_private(self.folder)
            write_whole(path, msgspec.json.encode(known))
            if before is None:
                self._prune()
        except OSError as error:
            log.debug("cannot cache what was discovered about %s: %s", program.path, error)

    def _path(self, program: Program) -> Path:
        name = hashlib.sha256(os.fsencode(program.path)).hexdigest()[:32]
        return self.folder / f"{name}.json"

    def _load(self, program: Program) -> _Known | None:
        """Return the facts known about exactly this program, or None if there are none."""
        path = self._path(program)
        if path not in self._read:
            self._read[path] = _decode(path)
        known = self._read[path]
        return known if known is not None and known.program == program else None

    def _prune(self) -> None:
        files = list(self.folder.glob("*.json"))
        if len(files) <= MAX_PROGRAMS:
            return
        ages = []
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                ages.append((file.stat().st_mtime, file))
        for _, file in sorted(ages)[: len(ages) - MAX_PROGRAMS]:
            file.unlink(missing_ok=True)


def _decode(path: Path) -> _Known | None:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_SIZE + 1)
        known = decode_typed(text, _Known)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        log.debug("cannot read %s: %s", path, error)
        return None
    return known if known.format == FORMAT else None
