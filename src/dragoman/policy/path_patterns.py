"""Match paths against the globs of policy rules, after resolving symlinks, ``..`` and ``~``.

A rule that allows must match every path that a spelling may resolve to; a rule that restricts
matches on any of them, ignoring case. A path that cannot be resolved matches only rules that
restrict. Not covered: hard links, and symlinks made after the check; `client.services.workspace`
resolves the paths that dragoman itself opens for an agent again, safely.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from dragoman.policy.globs import DEEP, UNKNOWN, path_matches, plain

MAX_PATH_SIZE: Final = 4096
"""Maximum length of a path, in characters: the limit of Linux."""

OWN_VIEW: Final = ("/proc/", "/dev/fd/", "/dev/stdin", "/dev/stdout", "/dev/stderr")
"""Paths that mean something different for each process."""


@dataclass(frozen=True, slots=True)
class ResolvedPaths:
    """Where a path may lead: resolved paths, and the absolute spellings they came from."""

    real: frozenset[str]
    spelled: frozenset[str]


def places_of(text: str, folders: Sequence[str]) -> ResolvedPaths | None:
    """Return where a path may lead, or None if unknown.

    Relative paths are resolved against each of `folders`.
    """
    if UNKNOWN in text or not text.strip() or len(text) > MAX_PATH_SIZE:
        return None
    spellings = {text}
    if text.lower().startswith("file:"):
        try:
            parts = urlsplit(text)
        except ValueError:
            return None
        if parts.netloc not in ("", "localhost"):
            return None
        spellings = {unquote(parts.path)}
    if text.startswith("~"):
        spellings.add(os.path.expanduser(text))
    real: set[str] = set()
    spelled: set[str] = set()
    for spelling in spellings:
        for folder in folders:
            whole = os.path.join(folder, spelling)
            if not os.path.isabs(whole) or UNKNOWN in whole:
                return None
            plainly = os.path.normpath(whole)
            spelled.add(plainly)
            try:
                # Some programs remove `..` first, others follow the links first.
                real |= {os.path.realpath(whole), os.path.realpath(plainly)}
            except (OSError, ValueError):
                return None
    if any((path + "/").startswith(OWN_VIEW) for path in real | spelled):
        return None
    return ResolvedPaths(frozenset(real), frozenset(spelled))


def root_of(workspace: str) -> str:
    """Return the real path of a workspace."""
    return os.path.realpath(workspace)


def absolute(pattern: str, root: str) -> str:
    """Return the absolute form of a glob. A glob that begins with ``~/`` is resolved against the
    home directory, and any other relative one against `root`. A slash at the end stands for
    everything in the directory."""
    if pattern.startswith("~/"):
        pattern = str(Path.home()) + pattern[1:]
    if pattern.endswith("/"):
        pattern += DEEP
    pattern = "/".join(part for part in pattern.split("/") if part != ".") or DEEP
    return pattern if pattern.startswith("/") else f"{_literal(root)}/{pattern}"


def _literal(root: str) -> str:
    # A star in the workspace's own path is not escaped: as a pattern it also matches a star.
    return "" if root == "/" else root


def is_inside(place: str, root: str) -> bool:
    """Return whether a resolved path is inside a directory or is the directory itself."""
    return place == root or place.startswith("/" if root == "/" else root + "/")


def surely(patterns: Sequence[str], places: ResolvedPaths | None, root: str) -> bool:
    """Return whether each place that a path may lead to matches one of the patterns; False if it is
    unknown where the path leads."""
    return places is not None and all(
        any(_fits(pattern, place, root) for pattern in patterns) for place in places.real
    )


def _fits(pattern: str, place: str, root: str) -> bool:
    # A path outside the workspace must match a pattern that begins outside it: a directory with a
    # star in its name must not become a pattern.
    if not pattern.startswith(("/", "~/")):
        if not is_inside(place, root):
            return False
        relative = absolute(pattern, "")[1:]
        if place == root:
            return relative == DEEP
        return path_matches(relative, os.path.relpath(place, root))
    return path_matches(absolute(pattern, root), place)


def perhaps(
    patterns: Sequence[str], places: ResolvedPaths | None, root: str, *, with_parents: bool
) -> bool:
    """Return whether a path may lead to a match of one of the patterns, or to a place below one;
    True if it is unknown where the path leads.

    With `with_parents`, a directory that contains a match counts as well, because the whole
    directory is changed.
    """
    if places is None:
        return True
    spellings = {each for place in places.real | places.spelled for each in _spellings(place)}
    for pattern in patterns:
        for whole in real_patterns(absolute(pattern, root)):
            below = f"{whole}/{DEEP}"
            for spelling in spellings:
                if path_matches(whole, spelling) or path_matches(below, spelling):
                    return True
                if with_parents and _holds(spelling, whole):
                    return True
    return False


def real_patterns(pattern: str) -> set[str]:
    """Return a glob, and the same glob with the links in its literal directories resolved, both as
    `plain` returns them."""
    parts = pattern.split("/")
    wild = next((at for at, part in enumerate(parts) if "*" in part or "?" in part), len(parts))
    head = "/".join(parts[:wild])
    real = os.path.realpath(head) if head else ""
    return {plain(pattern), plain("/".join(["" if real == "/" else real, *parts[wild:]]))}


def _spellings(place: str) -> set[str]:
    """Return the forms in which any file system may see a path: without case, without trailing dots
    and spaces, and without anything after a colon."""
    folded = plain(place)
    cut = "/".join(part.rstrip(". ") for part in folded.split("/"))
    streams = "/".join(part.partition(":")[0] for part in cut.split("/"))
    return {folded, cut, streams}


def _holds(folder: str, pattern: str) -> bool:
    """Return whether a directory may contain something that a pattern matches."""
    parts = pattern.split("/")
    inside = [part for part in folder.split("/") if part]
    for own, wanted in zip(inside, parts[1:], strict=False):
        if wanted == DEEP:
            return True
        if not path_matches(wanted, own):
            return False
    return True
